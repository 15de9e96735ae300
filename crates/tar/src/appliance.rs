//! Extracts the disk image from an OVA. An OVA is a tar that contains the description of a virtual
//! machine, its disks and optionally a manifest (DMTF DSP0243, "OVF package", "Distribution as a
//! single file").

use bytes::Bytes;
use diskimage::Format;
use stream::chunks::ChunkStream;
use stream::digest::{Checksum, DigestAlgorithm, HashingThread};
use stream::error::{ArchiveErrorKind, Error, FormatError, ThreadStartError};

use super::entries::{TarEntry, TarEntryKind, TarReader};
use super::expanded::ExpandedFile;
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

/// The only disk of an appliance, as a stream of its bytes. Holes are returned as zeros: Google
/// Compute Engine's images are tars with a sparse `disk.raw`.
///
/// The end of the stream is reported only after the rest of the archive was read. By then the
/// archive is known to contain no second disk, and the digests in its manifests were verified.
pub(crate) struct ApplianceDisk {
    file: ExpandedFile,
    name: Vec<u8>,
    hashing: Vec<(DigestAlgorithm, HashingThread)>,
    manifests: OvfManifests,
    ended: bool,
}

/// The manifests read so far.
#[derive(Default)]
struct OvfManifests {
    texts: Vec<Vec<u8>>,
    bytes: u64,
}

impl ApplianceDisk {
    /// Reads the tar up to the data of the first disk. Fails if the archive contains no disk.
    pub(crate) fn find_disk(stream: Box<dyn ChunkStream>) -> Result<Self, Error> {
        let mut entries = TarReader::new(stream);
        let mut manifests = OvfManifests::default();
        let mut others = Vec::new();
        while let Some(TarEntry { name, kind, .. }) = entries.next_entry().map_err(no_appliance)? {
            if is_disk(&name) {
                // The disk is read only once, so its digests have to be computed while it is read.
                // A manifest before the disk determines the algorithms; a manifest after it may
                // use any of them.
                let size = disk_size(&entries, &kind)?;
                let hashing = manifests.needed_algorithms(&entries, &name)?;
                return Ok(Self {
                    hashing: hashing
                        .into_iter()
                        .map(|algorithm| Ok((algorithm, HashingThread::start(algorithm)?)))
                        .collect::<Result<_, ThreadStartError>>()?,
                    file: ExpandedFile::new(entries, size),
                    name,
                    manifests,
                    ended: false,
                });
            }
            manifests.add_if_one(&mut entries, &name, &kind)?;
            if others.len() < MAX_LISTED {
                others.push(format!("`{}`", printable_name(&name)));
            }
        }
        entries.drain_stream()?;
        Err(entries.entry_error(ArchiveErrorKind::NoDisk { others: others.join(", ") }))
    }

    /// The size of the disk image in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.file.size()
    }

    /// Returns the format that the file extension indicates. `None` for formats without a
    /// signature at the beginning of the file.
    pub(crate) fn expected_format(&self) -> Option<Format> {
        let extension = file_extension(&self.name)?.to_ascii_lowercase();
        match &extension[..] {
            b"vmdk" => Some(Format::Vmdk),
            b"vdi" => Some(Format::Vdi),
            b"vhdx" => Some(Format::Vhdx),
            b"qcow2" => Some(Format::Qcow2),
            _ => None,
        }
    }

    /// Reads the rest of the archive and verifies the digests of the disk. Fails if there is a
    /// second disk.
    fn drain_archive(&mut self) -> Result<(), Error> {
        let entries = &mut self.file.entries;
        while let Some(TarEntry { name, kind, .. }) = entries.next_entry()? {
            if is_disk(&name) && kind != TarEntryKind::Directory {
                let first = printable_name(&self.name);
                return Err(entries.entry_error(ArchiveErrorKind::SeveralDisks { first }));
            }
            self.manifests.add_if_one(entries, &name, &kind)?;
        }
        entries.drain_stream()?;
        let expected = self.manifests.find_checksums(entries, &self.name)?;
        self.verify_checksums(&expected)?;
        self.ended = true;
        Ok(())
    }

    fn verify_checksums(&mut self, expected: &[Checksum]) -> Result<(), Error> {
        let hashed: Vec<_> = std::mem::take(&mut self.hashing)
            .into_iter()
            .map(|(algorithm, hashing)| (algorithm, hashing.finish_digest()))
            .collect();
        for checksum in expected {
            match hashed.iter().find(|(algorithm, _)| *algorithm == checksum.algorithm()) {
                Some((_, calculated)) => checksum.verify(calculated)?,
                // A second manifest, after the disk, may name an algorithm that the first one did
                // not. The disk cannot be read again to verify it, so only warn: the first digest
                // did match.
                None => tracing::warn!(%checksum, "a digest in a manifest was not verified"),
            }
        }
        if expected.is_empty() {
            tracing::info!(
                disk = printable_name(&self.name),
                "no manifest contains a digest of the disk"
            );
        }
        Ok(())
    }
}

impl ChunkStream for ApplianceDisk {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.ended {
            return Ok(None);
        }
        let Some(bytes) = self.file.next_chunk()? else {
            return self.drain_archive().map(|()| None);
        };
        for (_, hashing) in &self.hashing {
            hashing.update(&bytes);
        }
        Ok(Some(bytes))
    }
}

impl OvfManifests {
    /// Reads and keeps the current entry if it is a manifest.
    fn add_if_one(
        &mut self,
        entries: &mut TarReader,
        name: &[u8],
        kind: &TarEntryKind,
    ) -> Result<(), Error> {
        let TarEntryKind::File { size, is_sparse: false, .. } = kind else {
            return Ok(());
        };
        if !has_extension(name, MANIFEST_EXTENSION) {
            return Ok(());
        }
        // The limit applies to all manifests together, because an archive may have any number of
        // them.
        self.bytes = self.bytes.saturating_add(*size);
        let checked =
            ArchiveErrorKind::check_limit("a manifest in bytes", self.bytes, MAX_MANIFEST_BYTES);
        entries.locate_error(checked)?;
        let mut text = Vec::new();
        while let Some((_, bytes)) = entries.next_data()? {
            text.extend_from_slice(&bytes);
        }
        self.texts.push(text);
        Ok(())
    }

    /// Returns the algorithms to hash `disk` with. If no manifest was read yet, these are all
    /// known algorithms, because a manifest after the disk may use any of them.
    fn needed_algorithms(
        &self,
        entries: &TarReader,
        disk: &[u8],
    ) -> Result<Vec<DigestAlgorithm>, Error> {
        if self.texts.is_empty() {
            return Ok(MANIFEST_ALGORITHMS.into());
        }
        let expected = self.find_checksums(entries, disk)?;
        let is_named = |algorithm: &DigestAlgorithm| {
            expected.iter().any(|checksum| checksum.algorithm() == *algorithm)
        };
        Ok(MANIFEST_ALGORITHMS.into_iter().filter(is_named).collect())
    }

    fn find_checksums(&self, entries: &TarReader, disk: &[u8]) -> Result<Vec<Checksum>, Error> {
        let mut found = Vec::new();
        for text in &self.texts {
            found.extend(entries.locate_error(manifest::find_checksums(text, disk))?);
        }
        Ok(found)
    }
}

/// Returns the size of the disk in bytes. Fails unless the disk is a regular file.
fn disk_size(entries: &TarReader, kind: &TarEntryKind) -> Result<u64, Error> {
    let refuse = |what| Err(entries.entry_error(ArchiveErrorKind::Disk(what)));
    match kind {
        TarEntryKind::File { size, .. } => Ok(*size),
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
