//! The staging folder: a folder inside the target that holds the unfinished tree until the whole
//! archive is verified.
//!
//! The folder is inside the target for two reasons: the tree can then be moved by renames, and new
//! files get the group of the volume. The lock file beside it grants the right to unpack here. A
//! killed attempt leaves both behind. When the next attempt gets the lock, it knows that the
//! folder does not belong to a running process.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};

use stream::error::{TargetError, TargetRefusedError};
use stream::storage::Inode;
use tar::printable_name;

use super::directory::{Directory, WORKABLE};
use crate::lock::{LockState, lock_file};

/// Prefix of the folder's name, before its random part. Entries of an archive must not have such a
/// name.
pub(super) const STAGING_PREFIX: &[u8] = b".cdi-staging-";

/// Maximum number of attempts to open and lock the lock file. The previous holder may remove the
/// file between the two steps.
const ATTEMPTS: usize = 100;

/// The right to unpack into a directory: a lock on a file in that directory. While it is held,
/// every other staging folder there belongs to a dead process. The lock file is removed on drop.
///
/// Locking the directory itself would need no file, but NFS locks only files that are open for
/// writing.
struct Turn<'t> {
    target: &'t Directory,
    file: File,
    lock: LockState,
}

impl<'t> Turn<'t> {
    const NAME: &'static [u8] = b".cdi-staging-lock";

    /// Opens the lock file in `target` and locks it. Fails if another process holds the lock.
    fn acquire_turn(target: &'t Directory) -> Result<Self, TargetError> {
        for _ in 0..ATTEMPTS {
            let file = target.create_file(Self::NAME, false)?;
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

    /// Returns true if the lock file still has its name. A process that removed it in the meantime
    /// makes this lock worthless, since others would lock a new file.
    fn is_in_place(&self) -> bool {
        let named = self.target.entry_status(Self::NAME);
        let open = Inode::from_file(&self.file);
        matches!((named, open), (Ok(Some(named)), Ok(open)) if named.inode == open)
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

/// The staging folder. It is removed on drop, with everything that is left in it.
pub(super) struct Staging<'t> {
    /// The directory that the tree will be moved to. It contains the staging folder.
    target: &'t Directory,
    name: Vec<u8>,
    /// The root of the unfinished tree.
    pub(super) tree: Directory,
    /// The lock. It is released after the folder was removed.
    _turn: Turn<'t>,
}

impl<'t> Staging<'t> {
    /// Creates the folder in `target` and removes the folders of killed attempts. Fails if another
    /// process is unpacking there.
    pub(super) fn create(target: &'t Directory) -> Result<Self, TargetError> {
        let turn = Turn::acquire_turn(target)?;
        // While the lock is held, no running process of ours has a folder here: every folder that
        // is found is stale.
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
    // The lock keeps other processes out, so the name need not be secret. `RandomState` is seeded
    // randomly by the standard library, so no crate for random numbers is needed.
    let random = RandomState::new().hash_one(std::process::id());
    [STAGING_PREFIX, format!("{random:016x}").as_bytes()].concat()
}

/// Removes the folders of dead processes. On a filesystem without locks, these cannot be
/// distinguished from the folders of running processes, so they stay and a warning is logged.
fn remove_stale(target: &Directory, lock: LockState) -> Result<(), TargetError> {
    for name in target.entry_names()? {
        let name = name?;
        if !name.starts_with(STAGING_PREFIX)
            || !target.entry_status(&name)?.is_some_and(|status| status.is_directory())
        {
            continue;
        }
        if lock == LockState::Ours {
            tracing::info!("removing files left by an earlier attempt");
            target.remove_all(&name)?;
        } else {
            let name = printable_name(&name);
            tracing::warn!(
                name,
                "the filesystem does not support locks: remove this directory if no process is unpacking into it"
            );
        }
    }
    Ok(())
}

fn discard_directory(target: &Directory, name: &[u8]) {
    // A failure is only logged: the error of the transfer matters more, and the next attempt
    // removes the folder.
    if let Err(error) = target.remove_all(name) {
        tracing::warn!(%error, "could not remove an unfinished archive");
    }
}
