//! Writes a layout as a tar: `oci-archive:FILE`.
//!
//! The documents come first, as in KubeVirt's export, so that a reader needs only one pass. They
//! contain the digests of the layers, so space is reserved for them, and they are written last.

use std::path::{Path, PathBuf};

use datapath::disk::folder_of;
use stream::error::TargetError;
use tar::write::{EntryAttributes, NewEntryKind, encode_header, end_bytes, padding_bytes};

use super::LayoutWriter;
use super::documents::{BLOBS, INDEX, LAYOUT, LayoutDocuments};
use super::staged_file::{StagedFile, refuse_existing, sync_directory};

/// Bytes of a member's header. All names are short, so one block is enough.
const HEADER_BYTES: u64 = 512;

/// Attributes of all members. They are constant, so that equal disks give equal archives.
const ATTRIBUTES: EntryAttributes = EntryAttributes { mode: 0o644, uid: 0, gid: 0, mtime: 0 };

/// A layout in a tar.
pub(super) struct ArchiveWriter {
    staged: StagedFile,
    path: PathBuf,
    replace: bool,
    /// Offset of the header of the current or next blob.
    end: u64,
    /// Bytes of the current blob.
    blob_bytes: u64,
    digests: Vec<String>,
}

impl ArchiveWriter {
    /// Creates the archive. The documents will have the lengths of `placeholders`.
    pub(super) fn open(
        path: &Path,
        replace: bool,
        placeholders: &LayoutDocuments,
    ) -> Result<Self, TargetError> {
        refuse_existing(path, replace)?;
        let end =
            members(placeholders).iter().map(|(_, bytes)| member_bytes(bytes.len() as u64)).sum();
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".cdi-importer-pack");
        let staged = StagedFile::create(path.with_file_name(name), path)?;
        Ok(Self { staged, path: path.to_owned(), replace, end, blob_bytes: 0, digests: Vec::new() })
    }

    /// Writes the header at `offset`, and the padding behind the content of `bytes` bytes.
    fn frame_member(&self, offset: u64, name: &str, bytes: u64) -> Result<(), TargetError> {
        let header =
            encode_header(name.as_bytes(), &ATTRIBUTES, &NewEntryKind::File { size: bytes });
        self.staged.write_at(offset, &header)?;
        self.staged.write_at(offset + HEADER_BYTES + bytes, &vec![0; padding_bytes(bytes)])
    }
}

impl LayoutWriter for ArchiveWriter {
    fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), TargetError> {
        self.staged.write_at(self.end + HEADER_BYTES + self.blob_bytes, bytes)?;
        self.blob_bytes += bytes.len() as u64;
        Ok(())
    }

    fn end_blob(&mut self, digest: &str) -> Result<(), TargetError> {
        // If an earlier equal disk has the same layer, the next member overwrites this copy.
        if !self.digests.iter().any(|known| known == digest) {
            self.frame_member(self.end, &blob_name(digest), self.blob_bytes)?;
            self.end += member_bytes(self.blob_bytes);
            self.digests.push(digest.to_owned());
        }
        self.blob_bytes = 0;
        Ok(())
    }

    fn finish_layout(self: Box<Self>, documents: &LayoutDocuments) -> Result<(), TargetError> {
        let mut offset = 0;
        for (name, bytes) in members(documents) {
            self.frame_member(offset, &name, bytes.len() as u64)?;
            self.staged.write_at(offset + HEADER_BYTES, bytes)?;
            offset += member_bytes(bytes.len() as u64);
        }
        self.staged.set_len(self.end)?;
        self.staged.set_len(self.end + end_bytes(self.end))?;
        self.staged.publish(&self.path, self.replace)?;
        sync_directory(folder_of(&self.path))
    }
}

/// Returns the members before the layers.
fn members(documents: &LayoutDocuments) -> [(String, &[u8]); 4] {
    [
        (LAYOUT.to_owned(), &documents.oci_layout),
        (INDEX.to_owned(), &documents.index),
        (blob_name(&documents.manifest.digest), &documents.manifest.bytes),
        (blob_name(&documents.config.digest), &documents.config.bytes),
    ]
}

fn blob_name(digest: &str) -> String {
    format!("{BLOBS}/{}", digest.replacen(':', "/", 1))
}

/// Returns the bytes that a member with `bytes` bytes of content takes in the archive.
fn member_bytes(bytes: u64) -> u64 {
    HEADER_BYTES + bytes + padding_bytes(bytes) as u64
}
