//! Extracts the disk image from an OVA. An OVA is a tar that contains the description of a virtual
//! machine, its disks and optionally a manifest (DMTF DSP0243, "OVF package", "Distribution as a
//! single file").

use bytes::Bytes;
use diskimage::Format;
use stream::chunks::ChunkStream;
use stream::digest::{Checksum, DigestAlgorithm, HashingThread};
use stream::error::{ArchiveErrorKind, Error, FormatError};

use super::entries::{TarEntry, TarEntryKind, TarReader};
use super::find::{ArchivedFile, MemberSearch, SearchResult, find_file};
use super::manifest;
use super::name::printable_name;

/// File extensions of disk images. An OVF description may refer to any of them, though nearly all
/// disks are `.vmdk`. The description itself is not read.
const DISK_EXTENSIONS: [&[u8]; 7] = [b"vmdk", b"vhd", b"vhdx", b"vdi", b"qcow2", b"img", b"raw"];
/// File extension of a manifest.
const MANIFEST_EXTENSION: &[u8] = b"mf";
/// Digest algorithms of manifests: SHA-1 in OVF 1, SHA-256 in OVF 2, and SHA-512, which ovftool
/// uses on request.
const MANIFEST_ALGORITHMS: [DigestAlgorithm; 3] =
    [DigestAlgorithm::Sha1, DigestAlgorithm::Sha256, DigestAlgorithm::Sha512];
/// Limit on the total size of all manifests, in bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// Maximum number of file names that the error lists if no disk is found.
const MAX_LISTED: usize = 20;

/// The search for the only disk of an appliance. Holes of the disk are read as zeros: Google
/// Compute Engine's images are tars with a sparse `disk.raw`.
///
/// At the end of the archive, the archive is known to contain no second disk, and the digests in
/// its manifests are verified.
#[derive(Default)]
pub(crate) struct ApplianceSearch {
    /// The name of the disk, once it was found.
    disk: Option<Vec<u8>>,
    /// The names of entries before the disk.
    others: Vec<String>,
    hashing: Vec<(DigestAlgorithm, HashingThread)>,
    manifests: OvfManifests,
}

/// The manifests read so far.
#[derive(Default)]
struct OvfManifests {
    texts: Vec<Vec<u8>>,
    bytes: u64,
}

/// Reads the tar up to the data of the first disk. Fails if the archive contains no disk.
pub(crate) fn find_appliance(
    stream: Box<dyn ChunkStream>,
) -> Result<Box<ArchivedFile<ApplianceSearch>>, Error> {
    match find_file(stream, ApplianceSearch::default()).map_err(no_appliance)? {
        SearchResult::File(file) => Ok(file),
        SearchResult::Nothing { search, archive } => {
            let others = search.others.join(", ");
            Err(archive.entry_error(ArchiveErrorKind::NoDisk { others }))
        }
    }
}

impl ApplianceSearch {
    /// Returns the format that the file extension indicates. `None` for formats without a
    /// signature at the beginning of the file.
    pub(crate) fn expected_format(&self) -> Option<Format> {
        let extension = file_extension(self.disk.as_ref()?)?.to_ascii_lowercase();
        match &extension[..] {
            b"vmdk" => Some(Format::Vmdk),
            b"vdi" => Some(Format::Vdi),
            b"vhdx" => Some(Format::Vhdx),
            b"qcow2" => Some(Format::Qcow2),
            _ => None,
        }
    }

    /// Begins to hash the disk `name`. It is read only once, so its digests have to be computed
    /// while it is read. A manifest before the disk determines the algorithms; a manifest after it
    /// may use any of them.
    fn begin_disk(&mut self, name: &[u8], archive: &TarReader) -> Result<(), Error> {
        for algorithm in self.manifests.needed_algorithms(archive, name)? {
            self.hashing.push((algorithm, HashingThread::start(algorithm)?));
        }
        self.disk = Some(name.to_vec());
        Ok(())
    }
}

impl MemberSearch for ApplianceSearch {
    fn inspect_member(&mut self, entry: &TarEntry, archive: &mut TarReader) -> Result<bool, Error> {
        if !is_disk(&entry.name) {
            self.manifests.add_if_one(entry, archive)?;
            if self.disk.is_none() && self.others.len() < MAX_LISTED {
                self.others.push(format!("`{}`", printable_name(&entry.name)));
            }
            return Ok(false);
        }
        match &self.disk {
            None => {
                check_file(entry, archive)?;
                self.begin_disk(&entry.name, archive)?;
                Ok(true)
            }
            Some(_) if entry.kind == TarEntryKind::Directory => Ok(false),
            Some(first) => {
                let first = printable_name(first);
                Err(archive.entry_error(ArchiveErrorKind::Refused(format!(
                    "the OVA contains more than one disk image: `{first}` came before this one. Unpack it and import them one by one"
                ))))
            }
        }
    }

    fn inspect_bytes(&mut self, bytes: &Bytes) {
        for (_, hashing) in &self.hashing {
            hashing.update(bytes);
        }
    }

    /// Verifies the digests of the disk.
    fn end_search(&mut self, archive: &TarReader) -> Result<(), Error> {
        let disk = self.disk.as_deref().unwrap_or_default();
        let expected = self.manifests.find_checksums(archive, disk)?;
        let hashed: Vec<_> = std::mem::take(&mut self.hashing)
            .into_iter()
            .map(|(algorithm, hashing)| (algorithm, hashing.finish_digest()))
            .collect();
        for checksum in &expected {
            match hashed.iter().find(|(algorithm, _)| *algorithm == checksum.algorithm()) {
                Some((_, calculated)) => checksum.verify(calculated).map_err(|mut wrong| {
                    let disk = printable_name(disk);
                    wrong.expected = format!("{} (for {disk}, by the manifest)", wrong.expected);
                    wrong
                })?,
                // A second manifest, after the disk, may name an algorithm that the first one did
                // not. The disk cannot be read again to verify it, so only warn: the first digest
                // did match.
                None => tracing::warn!(%checksum, "a digest in a manifest was not verified"),
            }
        }
        if expected.is_empty() {
            let disk = printable_name(disk);
            tracing::info!(disk, "no manifest contains a digest of the disk");
        }
        Ok(())
    }
}

impl OvfManifests {
    /// Reads and keeps the current entry if it is a manifest.
    fn add_if_one(&mut self, entry: &TarEntry, archive: &mut TarReader) -> Result<(), Error> {
        let TarEntryKind::File { size, is_sparse: false, .. } = entry.kind else {
            return Ok(());
        };
        if !has_extension(&entry.name, MANIFEST_EXTENSION) {
            return Ok(());
        }
        // The limit applies to all manifests together, because an archive may have any number of
        // them.
        self.bytes = self.bytes.saturating_add(size);
        let checked =
            ArchiveErrorKind::check_limit("a manifest in bytes", self.bytes, MAX_MANIFEST_BYTES);
        archive.locate_error(checked)?;
        let mut text = Vec::new();
        while let Some((_, bytes)) = archive.next_data()? {
            text.extend_from_slice(&bytes);
        }
        self.texts.push(text);
        Ok(())
    }

    /// Returns the algorithms to hash `disk` with. If no manifest was read yet, these are all
    /// known algorithms, because a manifest after the disk may use any of them.
    fn needed_algorithms(
        &self,
        archive: &TarReader,
        disk: &[u8],
    ) -> Result<Vec<DigestAlgorithm>, Error> {
        if self.texts.is_empty() {
            return Ok(MANIFEST_ALGORITHMS.into());
        }
        let expected = self.find_checksums(archive, disk)?;
        let is_named = |algorithm: &DigestAlgorithm| {
            expected.iter().any(|checksum| checksum.algorithm() == *algorithm)
        };
        Ok(MANIFEST_ALGORITHMS.into_iter().filter(is_named).collect())
    }

    fn find_checksums(&self, archive: &TarReader, disk: &[u8]) -> Result<Vec<Checksum>, Error> {
        let mut found = Vec::new();
        for text in &self.texts {
            found.extend(archive.locate_error(manifest::find_checksums(text, disk))?);
        }
        Ok(found)
    }
}

/// Fails unless the disk is a regular file.
fn check_file(entry: &TarEntry, archive: &TarReader) -> Result<(), Error> {
    let refuse = |what| {
        let reason = format!("the disk image in the OVA {what}: it must be a regular file");
        Err(archive.entry_error(ArchiveErrorKind::Refused(reason)))
    };
    match entry.kind {
        TarEntryKind::File { .. } => Ok(()),
        TarEntryKind::Symlink(_) | TarEntryKind::HardLink(_) => refuse("is a link"),
        TarEntryKind::Directory => refuse("is a directory"),
        TarEntryKind::Fifo | TarEntryKind::Special(_) => refuse("is a device or a pipe"),
    }
}

/// Turns the error "not a tar" into "not an appliance"; other errors are returned unchanged.
fn no_appliance(mut error: Error) -> Error {
    if let Error::Format(FormatError::Archive(refusal)) = &mut error
        && refusal.kind == ArchiveErrorKind::NotTar
    {
        refusal.kind = ArchiveErrorKind::NotAppliance;
    }
    error
}

fn is_disk(name: &[u8]) -> bool {
    DISK_EXTENSIONS.iter().any(|known| has_extension(name, known))
}

fn has_extension(name: &[u8], known: &[u8]) -> bool {
    file_extension(name).is_some_and(|extension| extension.eq_ignore_ascii_case(known))
}

fn file_extension(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    name.get(dot + 1..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_recognised_by_their_extension() {
        for name in ["disk.vmdk", "./VM-disk1.VMDK", "vm/a.b.qcow2", ".img", "x.vhd"] {
            assert!(is_disk(name.as_bytes()), "{name}");
        }
        for name in [
            "vm.ovf",
            "vm.mf",
            "vm.cert",
            "vm.nvram",
            "vmdk",
            "disk.vmdk.gz",
            "cd.iso",
            "a.vmdk/notes",
        ] {
            assert!(!is_disk(name.as_bytes()), "{name}");
        }
    }
}
