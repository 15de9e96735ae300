//! The disk image in an OVA: a tar with a virtual machine's description, perhaps a manifest, and its disks (DMTF DSP0243, "OVF
//! package", "Distribution as a single file").

use bytes::Bytes;
use diskimage::Format;

use super::entries::{Entries, Entry, Kind};
use super::manifest;
use super::name::printable;
use crate::chunks::Chunks;
use crate::digest::{Algorithm, Checksum, Hashing};
use crate::error::{ArchiveErrorKind, Error, FormatError, NoThread};

/// Names that end like this are disk images. An OVF description may refer to any of them, though nearly all are `.vmdk`; what
/// it says is not looked at.
const DISK_EXTENSIONS: [&[u8]; 7] = [b"vmdk", b"vhd", b"vhdx", b"vdi", b"qcow2", b"img", b"raw"];
/// A manifest.
const MANIFEST_EXTENSION: &[u8] = b"mf";
/// Algorithms of manifests: those of OVF 1 and 2, and the one that ovftool may be told to take.
const MANIFEST_ALGORITHMS: [Algorithm; 3] = [Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha512];
/// Bytes of all manifests.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;
/// Names that a refusal lists.
const MAX_LISTED: usize = 20;

/// The only disk of an appliance. Its end is reported when the rest of the archive was read, and there was no other disk, and
/// what a manifest says of it is true.
pub(crate) struct Appliance {
    entries: Entries,
    name: Vec<u8>,
    size: u64,
    hashing: Vec<(Algorithm, Hashing)>,
    manifests: Manifests,
    ended: bool,
}

/// All manifests so far.
#[derive(Default)]
struct Manifests {
    texts: Vec<Vec<u8>>,
    bytes: u64,
}

impl Appliance {
    /// Finds the disk.
    pub(crate) fn find(stream: Box<dyn Chunks>) -> Result<Self, Error> {
        let mut entries = Entries::new(stream);
        let mut manifests = Manifests::default();
        let mut others = Vec::new();
        while let Some(Entry { name, kind, .. }) = entries.next_entry().map_err(no_appliance)? {
            if is_disk(&name) {
                // The disk passes once: the digests are taken now that a manifest before it names, or that one behind it may name.
                let size = disk_size(&entries, &kind)?;
                let hashing = manifests.algorithms(&entries, &name)?;
                return Ok(Self {
                    hashing: hashing
                        .into_iter()
                        .map(|algorithm| Ok((algorithm, Hashing::start(algorithm)?)))
                        .collect::<Result<_, NoThread>>()?,
                    entries,
                    name,
                    size,
                    manifests,
                    ended: false,
                });
            }
            manifests.add_if_one(&mut entries, &name, &kind)?;
            if others.len() < MAX_LISTED {
                others.push(format!("`{}`", printable(&name)));
            }
        }
        entries.drain()?;
        Err(entries.refuse(ArchiveErrorKind::NoDisk {
            others: others.join(", "),
        }))
    }

    /// Bytes of the disk image.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The format that the name promises, where it is one that has a signature at its beginning.
    pub(crate) fn promised(&self) -> Option<Format> {
        let extension = extension(&self.name)?.to_ascii_lowercase();
        match &extension[..] {
            b"vmdk" => Some(Format::Vmdk),
            b"vdi" => Some(Format::Vdi),
            b"vhdx" => Some(Format::Vhdx),
            b"qcow2" => Some(Format::Qcow2),
            _ => None,
        }
    }

    /// Reads the rest of the archive.
    fn finish(&mut self) -> Result<(), Error> {
        let entries = &mut self.entries;
        while let Some(Entry { name, kind, .. }) = entries.next_entry()? {
            if is_disk(&name) && kind != Kind::Directory {
                let first = printable(&self.name);
                return Err(entries.refuse(ArchiveErrorKind::SeveralDisks { first }));
            }
            self.manifests.add_if_one(entries, &name, &kind)?;
        }
        entries.drain()?;
        let expected = self.manifests.checksums(entries, &self.name)?;
        self.verify(&expected)?;
        self.ended = true;
        Ok(())
    }

    fn verify(&mut self, expected: &[Checksum]) -> Result<(), Error> {
        let hashed: Vec<_> = std::mem::take(&mut self.hashing)
            .into_iter()
            .map(|(algorithm, hashing)| (algorithm, hashing.finish()))
            .collect();
        for checksum in expected {
            match hashed
                .iter()
                .find(|(algorithm, _)| *algorithm == checksum.algorithm())
            {
                Some((_, calculated)) => checksum.verify(calculated)?,
                None => tracing::warn!(%checksum, "a digest in a manifest was not verified"),
            }
        }
        if expected.is_empty() {
            tracing::info!(
                disk = printable(&self.name),
                "no manifest has a digest of the disk"
            );
        }
        Ok(())
    }
}

impl Chunks for Appliance {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.ended {
            return Ok(None);
        }
        let Some((_, bytes)) = self.entries.next_data()? else {
            return self.finish().map(|()| None);
        };
        for (_, hashing) in &self.hashing {
            hashing.update(&bytes);
        }
        Ok(Some(bytes))
    }
}

impl Manifests {
    /// Keeps the current entry if it is a manifest.
    fn add_if_one(&mut self, entries: &mut Entries, name: &[u8], kind: &Kind) -> Result<(), Error> {
        let Kind::File {
            size,
            is_sparse: false,
            ..
        } = kind
        else {
            return Ok(());
        };
        if !has_extension(name, MANIFEST_EXTENSION) {
            return Ok(());
        }
        // Of all manifests together: an archive may have any number of them.
        self.bytes = self.bytes.saturating_add(*size);
        let checked = ArchiveErrorKind::check_limit("a manifest in bytes", self.bytes, MAX_MANIFEST_BYTES);
        entries.located(checked)?;
        let mut text = Vec::new();
        while let Some((_, bytes)) = entries.next_data()? {
            text.extend_from_slice(&bytes);
        }
        self.texts.push(text);
        Ok(())
    }

    /// The algorithms to hash `disk` with: a manifest that comes behind it may say anything.
    fn algorithms(&self, entries: &Entries, disk: &[u8]) -> Result<Vec<Algorithm>, Error> {
        if self.texts.is_empty() {
            return Ok(MANIFEST_ALGORITHMS.into());
        }
        let expected = self.checksums(entries, disk)?;
        let is_named =
            |algorithm: &Algorithm| expected.iter().any(|checksum| checksum.algorithm() == *algorithm);
        Ok(MANIFEST_ALGORITHMS.into_iter().filter(is_named).collect())
    }

    fn checksums(&self, entries: &Entries, disk: &[u8]) -> Result<Vec<Checksum>, Error> {
        let mut found = Vec::new();
        for text in &self.texts {
            found.extend(entries.located(manifest::checksums(text, disk))?);
        }
        Ok(found)
    }
}

/// Bytes of the disk, which is a plain file.
fn disk_size(entries: &Entries, kind: &Kind) -> Result<u64, Error> {
    let refuse = |what| Err(entries.refuse(ArchiveErrorKind::Disk(what)));
    match kind {
        Kind::File {
            size,
            is_sparse: false,
            ..
        } => Ok(*size),
        Kind::File { .. } => refuse("is stored with holes"),
        Kind::Symlink(_) | Kind::HardLink(_) => refuse("is a link"),
        Kind::Directory => refuse("is a directory"),
        Kind::Fifo | Kind::Special(_) => refuse("is a device or a pipe"),
    }
}

/// `error`, in which a file that is no tar at all is called no appliance.
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
    extension(name).is_some_and(|extension| extension.eq_ignore_ascii_case(known))
}

fn extension(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    name.get(dot + 1..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_known_by_their_extension() {
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
