//! The tree that is being extracted, and the open directories down to the current entry.
//!
//! Each of these directories is opened relative to its parent and without following links, so an
//! entry cannot replace one of them with a link. The mode and time of a directory are set whenever
//! it is left, so they are stored in the filesystem and not in memory.

use std::io::ErrorKind;

use stream::error::{ArchiveErrorKind, Error, TargetError};
use tar::{TarReader, printable_name};

use super::directory::{Attributes, Directory, Status, WORKABLE};

/// Permissions of directories that have no entry in the archive, before the umask is applied.
const IMPLIED_MODE: u32 = 0o755;

/// The directories from the root of the tree to the current one, all of them open.
///
/// Nothing is assumed about a path that was used before: a former directory may have become a
/// symbolic link, so every step is checked when it is taken. A directory gets its final mode and
/// time when it is left, because creating files changes the time and may be forbidden by the mode.
pub(super) struct Tree<'s> {
    /// The root of the tree.
    root: &'s Directory,
    /// The directory that the tree will be moved to.
    target: &'s Directory,
    levels: Vec<Level>,
    /// Number of names in the tree.
    made: u64,
    /// Attributes of the root, if the archive contains them.
    root_attributes: Option<Attributes>,
}

/// An open directory below the root.
struct Level {
    name: Vec<u8>,
    directory: Directory,
    /// Attributes that are set when the directory is left.
    finally: Option<Attributes>,
}

impl<'s> Tree<'s> {
    /// Begins an empty tree at `root`, which will be moved to `target`.
    pub(super) fn new(root: &'s Directory, target: &'s Directory) -> Self {
        Self { root, target, levels: Vec::new(), made: 0, root_attributes: None }
    }

    /// Creates the directory `path`, or enters it if it exists. A file in its place is removed.
    pub(super) fn create_directory(
        &mut self,
        path: &[&[u8]],
        attributes: Attributes,
    ) -> Result<(), PlacementError> {
        let Some((name, parents)) = path.split_last() else {
            self.root_attributes = Some(attributes);
            return Ok(());
        };
        let parent = self.enter_directory(parents)?;
        let there = parent.entry_status(name)?;
        if !there.is_some_and(|status| status.is_directory()) {
            if there.is_some() {
                parent.remove_file(name)?;
            }
            parent.create_directory(name, WORKABLE)?;
            self.made += u64::from(there.is_none());
        }
        self.enter_directory(path)?;
        if let Some(level) = self.levels.last_mut() {
            level.finally = Some(attributes);
        }
        Ok(())
    }

    /// Prepares a place for a new entry at `path`. Returns the parent directory and the name, with
    /// which the caller creates the entry. An earlier entry at `path` is removed; a directory that
    /// is not empty is an error.
    pub(super) fn make_room<'p>(
        &mut self,
        path: &[&'p [u8]],
    ) -> Result<(&Directory, &'p [u8]), PlacementError> {
        let Some((name, parents)) = path.split_last() else {
            return Err(ArchiveErrorKind::Name("refers to the target directory itself").into());
        };
        let parent = self.enter_directory(parents)?;
        let there = parent.entry_status(name)?;
        if there.is_some_and(|status| status.is_directory()) {
            if !parent.remove_directory(name)? {
                let name = printable_name(name);
                let reason = format!("cannot replace a directory that is not empty: {name}");
                return Err(ArchiveErrorKind::Misplaced(reason).into());
            }
        } else if there.is_some() {
            parent.remove_file(name)?;
        }
        self.made += u64::from(there.is_none());
        Ok((self.current_directory(), name))
    }

    /// Returns the directory that contains `path`, the name in it and its status. `None` if the
    /// entry does not exist, or if one of its parents is not a directory. Changes nothing.
    pub(super) fn find_entry<'p>(
        &self,
        path: &[&'p [u8]],
    ) -> Result<Option<Found<'p>>, TargetError> {
        resolve_path(self.root, path)
    }

    /// Leaves all directories. Returns the number of names in the tree, and the attributes that
    /// the archive contains for the root.
    pub(super) fn finish_tree(mut self) -> Result<(u64, Option<Attributes>), PlacementError> {
        self.leave_to(0)?;
        Ok((self.made, self.root_attributes))
    }

    /// Makes the directory `path` the current one, creating missing directories on the way.
    fn enter_directory(&mut self, path: &[&[u8]]) -> Result<&Directory, PlacementError> {
        let same = self.levels.iter().zip(path);
        let common = same.take_while(|(level, name)| level.name == **name).count();
        self.leave_to(common)?;
        for depth in common + 1..=path.len() {
            self.descend_into(path.get(..depth).unwrap_or(path))?;
        }
        Ok(self.current_directory())
    }

    fn current_directory(&self) -> &Directory {
        self.levels.last().map_or(self.root, |level| &level.directory)
    }

    /// Enters the directory `path`, which is one level below the current one.
    fn descend_into(&mut self, path: &[&[u8]]) -> Result<(), PlacementError> {
        let Some(name) = path.last() else { return Ok(()) };
        let parent = self.current_directory();
        let there = parent.entry_status(name)?;
        let is_new = there.is_none();
        let (mode, finally) = match there {
            Some(status) if status.is_directory() => {
                (status.attributes.mode, Some(status.attributes))
            }
            // GNU tar follows the link. Here it is an error, because the link may lead out of the
            // target, and the archive itself can contain the link.
            Some(status) if status.is_symlink() => {
                return Err(ArchiveErrorKind::Misplaced(format!(
                    "the path of the entry leads through the symbolic link `{}`, which may point anywhere",
                    printable_name(name)
                ))
                .into());
            }
            Some(_) => {
                let name = printable_name(name);
                let reason = format!("the entry lies below `{name}`, which is not a directory");
                return Err(ArchiveErrorKind::Misplaced(reason).into());
            }
            None => {
                parent.create_directory(name, IMPLIED_MODE)?;
                (WORKABLE, self.attributes_in_target(path)?)
            }
        };
        let directory = parent.open_child_for_work(name, mode)?;
        self.made += u64::from(is_new);
        self.levels.push(Level { name: name.to_vec(), directory, finally });
        Ok(())
    }

    /// Returns the attributes for a directory without an entry in the archive: the mode of the
    /// existing directory at `path` in the target, if there is one.
    fn attributes_in_target(&self, path: &[&[u8]]) -> Result<Option<Attributes>, TargetError> {
        let there = match resolve_path(self.target, path) {
            // A parent directory is not accessible, because a killed attempt has already set its
            // final mode.
            Err(error) if error.source.kind() == ErrorKind::PermissionDenied => None,
            other => other?.filter(|(_, _, status)| status.is_directory()),
        };
        Ok(there.map(|(_, _, status)| Attributes { mtime: None, ..status.attributes }))
    }

    /// Leaves directories until only `depth` of them are open, and sets their final attributes.
    fn leave_to(&mut self, depth: usize) -> Result<(), PlacementError> {
        while self.levels.len() > depth
            && let Some(Level { name, finally, .. }) = self.levels.pop()
        {
            if let Some(attributes) = finally {
                self.current_directory().set_attributes(&name, attributes)?;
            }
        }
        Ok(())
    }
}

/// A directory, and a name in it with its status.
type Found<'p> = (Directory, &'p [u8], Status);

/// Returns the entry at `path` below `root`. `None` if it does not exist, or if one of its parents
/// is not a directory.
fn resolve_path<'p>(root: &Directory, path: &[&'p [u8]]) -> Result<Option<Found<'p>>, TargetError> {
    let Some((name, parents)) = path.split_last() else {
        return Ok(None);
    };
    let mut current = root.open_child(b".")?;
    for parent in parents {
        match current.entry_status(parent)? {
            Some(status) if status.is_directory() => current = current.open_child(parent)?,
            _ => return Ok(None),
        }
    }
    let there = current.entry_status(name)?;
    Ok(there.map(|status| (current, *name, status)))
}

/// An entry that is refused, or any other error of the data path.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum PlacementError {
    Refused(#[from] ArchiveErrorKind),
    Other(#[from] Error),
}

impl PlacementError {
    /// Returns the error with the offset and name of the current entry of `archive`.
    pub(super) fn into_error(self, archive: &TarReader) -> Error {
        match self {
            Self::Refused(kind) => archive.entry_error(kind),
            Self::Other(error) => error,
        }
    }
}

impl From<TargetError> for PlacementError {
    fn from(error: TargetError) -> Self {
        Self::Other(error.into())
    }
}
