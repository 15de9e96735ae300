//! From entries to files.

use std::os::unix::fs::FileExt;

use super::directory::Attributes;
use super::entries::{Entries, Entry, Kind};
use super::name::{PATH_MAX_BYTES, components, printable};
use super::staging::STAGING_PREFIX;
use super::tree::Tree;
use super::unplaced::Unplaced;
use crate::disk::Pacer;
use crate::error::{ArchiveErrorKind, Error, TargetError};
use crate::observe::Observer;

/// Makes files out of entries and keeps count.
pub(super) struct Extraction<'a> {
    tree: Tree<'a>,
    /// Bytes that may be written.
    available: u64,
    observer: &'a dyn Observer,
    done: Extracted,
}

/// Figures of what was extracted.
#[derive(Debug, Default)]
pub(super) struct Extracted {
    pub(super) entries: u64,
    /// Bytes of the files, holes included.
    pub(super) data_bytes: u64,
    pub(super) written_bytes: u64,
    /// Names that were made.
    pub(super) names: u64,
    /// Attributes of the directory that the archive is unpacked to.
    pub(super) root: Option<Attributes>,
}

impl<'a> Extraction<'a> {
    pub(super) fn new(tree: Tree<'a>, available: u64, observer: &'a dyn Observer) -> Self {
        Self {
            tree,
            available,
            observer,
            done: Extracted::default(),
        }
    }

    /// To be called when all entries are in their place.
    pub(super) fn finish(self) -> Result<Extracted, Unplaced> {
        let (names, root) = self.tree.finish()?;
        Ok(Extracted {
            names,
            root,
            ..self.done
        })
    }

    /// Makes what `entry` says, with the data that `archive` is at.
    pub(super) fn place(&mut self, entry: &Entry, archive: &mut Entries) -> Result<(), Error> {
        self.done.entries += 1;
        let placed = self.try_place(entry, archive);
        placed.map_err(|error| error.blame(archive))
    }

    fn try_place(&mut self, entry: &Entry, archive: &mut Entries) -> Result<(), Unplaced> {
        let path = components(&entry.name)?;
        // A name of ours in the target would be removed as what a dead attempt has left.
        if path
            .first()
            .is_some_and(|first| first.starts_with(STAGING_PREFIX))
        {
            return Err(ArchiveErrorKind::Name("is reserved for unfinished archives").into());
        }
        let attributes = Attributes {
            mode: entry.mode,
            mtime: Some(entry.mtime),
        };
        match &entry.kind {
            Kind::File {
                size,
                stored,
                is_sparse,
            } => {
                self.check_room(*stored)?;
                self.done.data_bytes = self.done.data_bytes.saturating_add(*size);
                let sparse_size = is_sparse.then_some(*size);
                self.write_file(&path, sparse_size, attributes, archive)?;
            }
            Kind::Directory => self.tree.create_directory(&path, attributes)?,
            Kind::Symlink(target) => {
                check_symlink(target)?;
                let (directory, name) = self.tree.make_room(&path)?;
                directory.create_symlink(name, target)?;
                directory.set_mtime(name, entry.mtime)?;
            }
            Kind::HardLink(target) => self.link(&path, target)?,
            Kind::Fifo => {
                let (directory, name) = self.tree.make_room(&path)?;
                directory.create_fifo(name)?;
                directory.set_attributes(name, attributes)?;
            }
            Kind::Special(what) => return Err(ArchiveErrorKind::Special(what).into()),
        }
        Ok(())
    }

    /// Fails before anything of a file is written for which there is no room.
    fn check_room(&self, stored: u64) -> Result<(), ArchiveErrorKind> {
        let needed = self.done.written_bytes.saturating_add(stored);
        if needed <= self.available {
            return Ok(());
        }
        Err(ArchiveErrorKind::NoRoom {
            needed,
            available: self.available,
        })
    }

    fn write_file(
        &mut self,
        path: &[&[u8]],
        sparse_size: Option<u64>,
        attributes: Attributes,
        archive: &mut Entries,
    ) -> Result<(), Unplaced> {
        let (directory, name) = self.tree.make_room(path)?;
        let file = directory.create_file(name)?;
        let failed = |action| move |source| TargetError::new(action, &directory.path_of(name), source);
        if let Some(size) = sparse_size {
            file.set_len(size).map_err(failed("resize"))?;
        }
        let pacer = Pacer::default();
        while let Some((offset, bytes)) = archive.next_data()? {
            file.write_all_at(&bytes, offset).map_err(failed("write"))?;
            pacer.wrote(bytes.len(), &file).map_err(failed("fsync"))?;
            self.done.written_bytes += bytes.len() as u64;
            self.observer.target_written(self.done.written_bytes);
        }
        // After the last write, which would change both.
        Ok(directory.set_attributes(name, attributes)?)
    }

    /// A second name for a file that came before.
    fn link(&mut self, path: &[&[u8]], target: &[u8]) -> Result<(), Unplaced> {
        let refused = |reason| {
            Unplaced::from(ArchiveErrorKind::HardLink {
                target: printable(target),
                reason,
            })
        };
        let target_path = components(target).map_err(|kind| match kind {
            ArchiveErrorKind::Name(reason) => refused(reason),
            other => other.into(),
        })?;
        let Some((from, old, status)) = self.tree.find(&target_path)? else {
            return Err(refused("is not a file that came before it in the archive"));
        };
        // A symbolic link gets a second name itself: nothing follows it.
        if status.is_directory() {
            return Err(refused("is a directory"));
        }
        if path == target_path {
            return Ok(());
        }
        let (directory, name) = self.tree.make_room(path)?;
        Ok(directory.create_link(name, &from, old)?)
    }
}

/// Checks a symbolic link. The place that it leads to does not matter, since it is not followed here.
fn check_symlink(target: &[u8]) -> Result<(), ArchiveErrorKind> {
    match target {
        [] => Err(ArchiveErrorKind::Symlink("is empty")),
        _ if target.len() >= PATH_MAX_BYTES => Err(ArchiveErrorKind::Symlink(
            "is longer than the 4095 bytes that a path may have",
        )),
        _ if target.contains(&0) => Err(ArchiveErrorKind::Symlink("has a NUL in it")),
        _ => Ok(()),
    }
}
