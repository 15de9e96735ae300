//! Creates files, directories and links from the entries of an archive.

use std::os::unix::fs::FileExt;

use stream::error::{ArchiveErrorKind, Error, TargetError};
use stream::observe::{ByteCount, Observer};
use tar::{PATH_MAX_BYTES, path_components, printable_name, unsupported_error};
use tar::{TarEntry, TarEntryKind, TarReader};

use super::directory::Attributes;
use super::staging::STAGING_PREFIX;
use super::tree::{PlacementError, Tree};
use crate::disk::FlushPacer;

/// Creates files from entries and counts them.
pub(super) struct ArchiveExtraction<'a> {
    tree: Tree<'a>,
    /// Limit on the bytes of file data that may be written.
    available: u64,
    observer: &'a dyn Observer,
    done: ExtractionStats,
}

/// Statistics of an extraction.
#[derive(Debug, Default)]
pub(super) struct ExtractionStats {
    pub(super) entries: u64,
    /// Size of all files in bytes, holes included.
    pub(super) data_bytes: u64,
    pub(super) written_bytes: u64,
    /// Number of names that were created in the tree.
    pub(super) names: u64,
    /// Attributes in the archive for the directory that it is unpacked to.
    pub(super) root: Option<Attributes>,
}

impl<'a> ArchiveExtraction<'a> {
    pub(super) fn new(tree: Tree<'a>, available: u64, observer: &'a dyn Observer) -> Self {
        Self { tree, available, observer, done: ExtractionStats::default() }
    }

    /// Finishes the tree and returns the statistics. Call this after all entries were placed.
    pub(super) fn finish_extraction(self) -> Result<ExtractionStats, PlacementError> {
        let (names, root) = self.tree.finish_tree()?;
        Ok(ExtractionStats { names, root, ..self.done })
    }

    /// Creates `entry`, the current entry of `archive`, from which its data is read.
    pub(super) fn place_entry(
        &mut self,
        entry: &TarEntry,
        archive: &mut TarReader,
    ) -> Result<(), Error> {
        self.done.entries += 1;
        let placed = self.try_place(entry, archive);
        placed.map_err(|error| error.into_error(archive))
    }

    fn try_place(
        &mut self,
        entry: &TarEntry,
        archive: &mut TarReader,
    ) -> Result<(), PlacementError> {
        let path = path_components(&entry.name)?;
        // A later attempt would mistake such a name for the leftover of a dead process and remove
        // it.
        if path.first().is_some_and(|first| first.starts_with(STAGING_PREFIX)) {
            return Err(ArchiveErrorKind::Name("is reserved for unfinished archives").into());
        }
        let attributes = Attributes { mode: entry.mode, mtime: Some(entry.mtime) };
        match &entry.kind {
            TarEntryKind::File { size, stored, is_sparse } => {
                self.check_room(*stored)?;
                self.done.data_bytes = self.done.data_bytes.saturating_add(*size);
                let sparse_size = is_sparse.then_some(*size);
                self.write_file(&path, sparse_size, attributes, archive)?;
                let skipped = self.done.data_bytes.saturating_sub(self.done.written_bytes);
                self.observer.record_bytes(ByteCount::Skipped, skipped);
            }
            TarEntryKind::Directory => self.tree.create_directory(&path, attributes)?,
            TarEntryKind::Symlink(target) => {
                check_symlink(target)?;
                let (directory, name) = self.tree.make_room(&path)?;
                directory.create_symlink(name, target)?;
                directory.set_mtime(name, entry.mtime)?;
            }
            TarEntryKind::HardLink(target) => self.create_hard_link(&path, target)?,
            TarEntryKind::Fifo => {
                let (directory, name) = self.tree.make_room(&path)?;
                directory.create_fifo(name)?;
                directory.set_attributes(name, attributes)?;
            }
            TarEntryKind::Special(what) => {
                return Err(unsupported_error(&format!("{what} is refused")).into());
            }
        }
        Ok(())
    }

    /// Fails if there is no room for `stored` more bytes. Called before any of the file is
    /// written.
    fn check_room(&self, stored: u64) -> Result<(), ArchiveErrorKind> {
        let needed = self.done.written_bytes.saturating_add(stored);
        if needed <= self.available {
            return Ok(());
        }
        Err(ArchiveErrorKind::NoRoom { needed, available: self.available })
    }

    fn write_file(
        &mut self,
        path: &[&[u8]],
        sparse_size: Option<u64>,
        attributes: Attributes,
        archive: &mut TarReader,
    ) -> Result<(), PlacementError> {
        let (directory, name) = self.tree.make_room(path)?;
        let file = directory.create_file(name, true)?;
        let failed =
            |action| move |source| TargetError::new(action, &directory.path_of(name), source);
        // Only a sparse file can end in a hole, which writing the data does not create.
        if let Some(size) = sparse_size {
            file.set_len(size).map_err(failed("resize"))?;
        }
        let pacer = FlushPacer::default();
        while let Some((offset, bytes)) = archive.next_data()? {
            file.write_all_at(&bytes, offset).map_err(failed("write"))?;
            pacer.record_write(bytes.len(), &file).map_err(failed("fsync"))?;
            self.done.written_bytes += bytes.len() as u64;
            self.observer.record_bytes(ByteCount::Target, self.done.written_bytes);
        }
        // Set after the last write, since a write changes both mode and time.
        Ok(directory.set_attributes(name, attributes)?)
    }

    /// Creates a hard link to a file that came earlier in the archive.
    fn create_hard_link(&mut self, path: &[&[u8]], target: &[u8]) -> Result<(), PlacementError> {
        let refused = |reason| {
            let target = printable_name(target);
            let reason = format!("its hard link target `{target}` {reason}");
            PlacementError::from(ArchiveErrorKind::Misplaced(reason))
        };
        let target_path = path_components(target).map_err(|kind| match kind {
            ArchiveErrorKind::Name(reason) => refused(reason),
            other => other.into(),
        })?;
        let Some((from, old, status)) = self.tree.find_entry(&target_path)? else {
            return Err(refused("is not an earlier file in the archive"));
        };
        // A hard link to a symbolic link is allowed: it is a second name of the link itself, which
        // is not followed.
        if status.is_directory() {
            return Err(refused("is a directory"));
        }
        // Stop here, because `make_room` would remove the file before the link to it is created.
        if path == target_path {
            return Ok(());
        }
        let (directory, name) = self.tree.make_room(path)?;
        Ok(directory.create_link(name, &from, old)?)
    }
}

/// Checks the target of a symbolic link. It may lead anywhere, since links are not followed here.
fn check_symlink(target: &[u8]) -> Result<(), ArchiveErrorKind> {
    match target {
        [] => Err(ArchiveErrorKind::Symlink("is empty")),
        _ if target.len() >= PATH_MAX_BYTES => {
            Err(ArchiveErrorKind::Symlink("is longer than 4095 bytes, the limit for a path"))
        }
        _ if target.contains(&0) => Err(ArchiveErrorKind::Symlink("contains a NUL byte")),
        _ => Ok(()),
    }
}
