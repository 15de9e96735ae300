//! The folder inside the target in which a tree grows until all of it is verified, and the proof that it is ours.
//!
//! It lies inside, so that moving is renaming and new files get the group of the volume. The lock beside it is the
//! right to unpack here. A killed attempt leaves both, and the next one that gets the lock knows by it that the
//! folder belongs to no living process.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};

use super::directory::{Directory, WORKABLE};
use super::name::printable_name;
use crate::error::{TargetError, TargetRefusedError};
use crate::lock::{LockState, lock_file};
use crate::storage::Inode;

/// Name of the folder, before its random part. Nothing of an archive may be called like that.
pub(super) const STAGING_PREFIX: &[u8] = b".cdi-staging-";

/// Attempts to open the lock file: the process that held it before may remove it in the same moment.
const ATTEMPTS: usize = 100;

/// The right to unpack into a directory: the lock of a file in it. With it, every other staging folder there is one of a
/// dead process. The file is removed when this is dropped.
///
/// A lock of the directory itself would need no file, but NFS locks only what is open for writing.
struct Turn<'t> {
    target: &'t Directory,
    file: File,
    lock: LockState,
}

impl<'t> Turn<'t> {
    const NAME: &'static [u8] = b".cdi-staging-lock";

    fn acquire_turn(target: &'t Directory) -> Result<Self, TargetError> {
        for _ in 0..ATTEMPTS {
            let file = target.create_or_open_file(Self::NAME)?;
            let lock = lock_file(&file);
            if lock == LockState::Taken {
                break;
            }
            let turn = Self { target, file, lock };
            if turn.is_in_place() {
                return Ok(turn);
            }
        }
        Err(target.refusal_error("unpack into", TargetRefusedError::InUse))
    }

    fn is_in_place(&self) -> bool {
        matches!((self.target.entry_inode(Self::NAME), Inode::from_file(&self.file)), (Ok(Some(named)), Ok(open)) if named == open)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.is_in_place()
            && let Err(error) = self.target.remove_file(Self::NAME)
        {
            tracing::warn!(%error, "could not remove a lock file");
        }
    }
}

/// The folder: removed with all that is left in it when it is dropped.
pub(super) struct Staging<'t> {
    /// The directory that the tree will be moved to. The folder lies in it, so that moving is renaming, and new files get the group of
    /// the target if it is passed on.
    target: &'t Directory,
    name: Vec<u8>,
    /// The tree.
    pub(super) tree: Directory,
    /// Dropped behind the folder.
    _turn: Turn<'t>,
}

impl<'t> Staging<'t> {
    /// Makes the folder in `target`, unless another process unpacks there, and removes those of attempts that were killed.
    pub(super) fn create(target: &'t Directory) -> Result<Self, TargetError> {
        let turn = Turn::acquire_turn(target)?;
        // With the turn held, no living process of ours has a folder here: all that is found is stale.
        remove_stale(target, turn.lock)?;
        let name = unused_name();
        target.create_directory(&name, WORKABLE)?;
        let tree = target.open_child(&name).inspect_err(|_| discard_directory(target, &name))?;
        tracing::debug!("took the target");
        Ok(Self { target, name, tree, _turn: turn })
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        discard_directory(self.target, &self.name);
    }
}

fn unused_name() -> Vec<u8> {
    let random = RandomState::new().hash_one(std::process::id());
    [STAGING_PREFIX, format!("{random:016x}").as_bytes()].concat()
}

/// Removes the folders of dead processes. Without locks they cannot be told from those of live ones, and stay.
fn remove_stale(target: &Directory, lock: LockState) -> Result<(), TargetError> {
    for name in target.entry_names()? {
        let name = name?;
        if !name.starts_with(STAGING_PREFIX)
            || !target.entry_status(&name)?.is_some_and(|status| status.is_directory())
        {
            continue;
        }
        if lock == LockState::Ours {
            tracing::info!("removing what an earlier attempt has left");
            target.remove_all(&name)?;
        } else {
            let name = printable_name(&name);
            tracing::warn!(
                name,
                "the filesystem has no locks: remove this folder if nothing unpacks into it"
            );
        }
    }
    Ok(())
}

fn discard_directory(target: &Directory, name: &[u8]) {
    if let Err(error) = target.remove_all(name) {
        tracing::warn!(%error, "could not remove an unfinished archive");
    }
}
