//! Moves a complete tree to its final location by renaming its entries.
//!
//! All conditions that can be checked in advance are checked before the first rename. If a check
//! fails, the directory is unchanged. Renames are not undone: a commit that fails or is killed
//! halfway leaves a part of the archive in the directory. Every file of that part is complete, and
//! the next attempt unpacks the archive again and replaces it.

use rustix::io::Errno;
use stream::error::{TargetError, TargetRefusedError};
use stream::storage::Inode;

use super::directory::{Directory, Status, WORKABLE};

/// A folder that filesystems create in their root directory. It belongs to root, and every archive
/// of a whole volume contains it.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// A complete tree, and the directory that it is moved to.
pub(super) struct Commit<'c> {
    pub(super) tree: &'c Directory,
    pub(super) target: &'c Directory,
    /// If true, existing files are replaced. A directory of this user whose mode forbids changes
    /// is then made accessible first, because a killed attempt leaves such directories.
    pub(super) overwrite: bool,
    /// The archive file that is being unpacked. It may lie in the target directory and is never
    /// replaced.
    pub(super) archive: Option<Inode>,
}

impl Commit<'_> {
    /// Checks all names of the tree, then moves it. `names` is the number of names that were
    /// created in the tree. The commit is refused if the tree contains more or fewer.
    pub(super) fn move_tree(&self, names: u64) -> Result<(), TargetError> {
        // Sync before the first rename, so that after a power failure each file with its final
        // name also has its content.
        self.tree.sync_filesystem()?;
        let made = names - u64::from(self.drop_lost_and_found()?);
        let found = self.check_names(self.tree, Some(self.target))?;
        // On a filesystem without locks, another process may mistake this tree for the leftover of
        // a dead process and remove it. Without this check, an empty tree would be committed
        // successfully.
        if found != made {
            let reason = TargetRefusedError::NotWhole { made, found };
            return Err(self.target.refusal_error("unpack into", reason));
        }
        let moved = self.tree.clear_entries(|name| self.place_entry(self.tree, self.target, name));
        moved.and_then(|()| self.target.sync_filesystem()).map_err(TargetError::partly_unpacked)
    }

    /// Removes an empty `lost+found` from the tree if the target contains such a folder too. The
    /// target's folder belongs to the filesystem, and only root can open it. Returns whether the
    /// folder was removed.
    fn drop_lost_and_found(&self) -> Result<bool, TargetError> {
        for side in [self.target, self.tree] {
            if !side.entry_status(LOST_AND_FOUND)?.is_some_and(|status| status.is_directory()) {
                return Ok(false);
            }
        }
        self.tree.remove_directory(LOST_AND_FOUND)
    }

    /// Counts the names below `from`, and checks that all of them can be moved into `to`. Does not
    /// change anything.
    fn check_names(&self, from: &Directory, to: Option<&Directory>) -> Result<u64, TargetError> {
        let mut count = 0;
        for name in from.entry_names()? {
            let name = name?;
            let Some(new) = from.entry_status(&name)? else {
                continue;
            };
            count += 1;
            let old = to.map(|to| self.check_place(to, &name, new)).transpose()?;
            if !new.is_directory() {
                continue;
            }
            count +=
                from.with_child(&name, new.attributes.mode, |from| match (to, old.flatten()) {
                    (Some(to), Some(old)) if old.is_directory() => {
                        to.with_child(&name, self.mode_to_open(old), |to| {
                            to.check_writable()?;
                            self.check_names(from, Some(to))
                        })
                    }
                    _ => self.check_names(from, None),
                })?;
        }
        Ok(count)
    }

    /// Checks that `new` may be moved to `name` in `to`. Returns the entry that it merges with or
    /// replaces there.
    fn check_place(
        &self,
        to: &Directory,
        name: &[u8],
        new: Status,
    ) -> Result<Option<Status>, TargetError> {
        let Some(old) = to.entry_status(name)? else {
            return Ok(None);
        };
        let refused = |reason| Err(TargetError::from_refusal("replace", &to.path_of(name), reason));
        match (old.is_directory(), new.is_directory()) {
            // Another filesystem is mounted there, and a rename cannot move entries into it.
            (true, true) if old.inode.device != new.inode.device => {
                Err(TargetError::new("move into", &to.path_of(name), Errno::XDEV.into()))
            }
            (true, true) => Ok(Some(old)),
            // Even with `overwrite`, a file replaces only an empty directory: the archive does not
            // contain the entries of a full one, so they must not be lost.
            (true, false) if to.open_child(name)?.entry_names()?.next().is_some() => {
                refused(TargetRefusedError::Occupied)
            }
            _ if Some(old.inode) == self.archive => refused(TargetRefusedError::Source),
            _ if !self.overwrite => refused(TargetRefusedError::Exists),
            _ => Ok(Some(old)),
        }
    }

    /// Returns the mode from which to decide whether a target directory has to be made accessible
    /// before it is opened. Without `overwrite` no mode is ever changed.
    fn mode_to_open(&self, old: Status) -> u32 {
        if self.overwrite { old.attributes.mode } else { WORKABLE }
    }

    /// Moves one entry. Directories are merged and files replaced, as `check_place` allows.
    fn place_entry(
        &self,
        from: &Directory,
        to: &Directory,
        name: &[u8],
    ) -> Result<(), TargetError> {
        let Some(new) = from.entry_status(name)? else {
            return Ok(());
        };
        let mode = new.attributes.mode;
        match self.check_place(to, name, new)? {
            Some(old) if old.is_directory() && new.is_directory() => {
                let below = to.open_child_for_work(name, self.mode_to_open(old))?;
                let child = from.open_child_for_work(name, mode)?;
                child.clear_entries(|name| self.place_entry(&child, &below, name))?;
                // Set the attributes after the moves, which change the directory's time and need
                // write permission.
                below.apply_attributes(new.attributes)?;
                return from.remove_directory(name).map(|_| ());
            }
            // If the directory is no longer empty, it stays, and the rename below fails.
            Some(old) if old.is_directory() => _ = to.remove_directory(name)?,
            Some(_) if new.is_directory() => to.remove_file(name)?,
            // Nothing to remove: a rename replaces an existing file in one step.
            _ => {}
        }
        // Moving a directory changes its `..` entry, so the directory has to be writable.
        let is_closed = new.is_directory() && mode & WORKABLE != WORKABLE;
        if is_closed {
            from.set_mode(name, mode | WORKABLE)?;
        }
        from.move_entry(name, to, self.overwrite)?;
        if is_closed {
            to.set_mode(name, mode)?;
        }
        Ok(())
    }
}
