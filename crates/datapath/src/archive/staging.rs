//! The folder inside the target in which a tree grows until all of it is verified, and the proof that it is ours.
//!
//! It lies inside, so that moving is renaming and new files get the group of the volume. The lock beside it is the
//! right to unpack here. A killed attempt leaves both, and the next one that gets the lock knows by it that the
//! folder belongs to no living process.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use super::directory::{Attributes, Directory, WORKABLE};
use super::name::printable;
use crate::error::{TargetError, TargetRefused};
use crate::lock::{Lock, lock};
use crate::storage::Inode;

/// Name of the folder, before its random part. Nothing of an archive may be called like that.
pub(super) const STAGING_PREFIX: &[u8] = b".cdi-staging-";

/// Times that the turn file is opened anew because the process before has removed it in the same moment.
const ATTEMPTS: usize = 100;

/// The right to unpack into a directory: the lock of a file in it. With it, every other staging folder there is one of a
/// dead process. The holder of the lock removes the file at the end.
///
/// A lock of the directory itself would need no file, but NFS locks only what is open for writing.
struct Turn {
    file: File,
    lock: Lock,
}

impl Turn {
    const NAME: &[u8] = b".cdi-staging-lock";

    fn take(target: &Directory) -> Result<Self, TargetError> {
        for _ in 0..ATTEMPTS {
            let file = target.create_or_open_file(Self::NAME)?;
            let lock = lock(&file);
            if lock == Lock::Taken {
                break;
            }
            let turn = Self { file, lock };
            if turn.is_in(target) {
                return Ok(turn);
            }
        }
        Err(target.refused("unpack into", TargetRefused::InUse))
    }

    fn is_in(&self, target: &Directory) -> bool {
        matches!((target.inode(Self::NAME), Inode::of(&self.file)), (Ok(Some(named)), Ok(open)) if named == open)
    }

    fn end(&self, target: &Directory) {
        if self.is_in(target)
            && let Err(error) = target.remove_file(Self::NAME)
        {
            tracing::warn!(%error, "could not remove a lock file");
        }
    }
}

/// The folder: removed with all that is left in it when it is dropped.
pub(super) struct Staging {
    /// The directory that the tree will be moved to. The folder lies in it, so that moving is renaming, and new files get the group of
    /// the target if it is passed on.
    pub(super) target: Directory,
    name: Vec<u8>,
    /// The tree.
    pub(super) tree: Directory,
    /// Entries of the target that had to make way for the tree.
    pub(super) kept: Directory,
    /// Entries that were moved to the target and back again.
    pub(super) undone: Directory,
    turn: Turn,
    /// Attributes of the target that are set in the end.
    finally: Option<Attributes>,
}

impl Staging {
    /// Makes the folder in `target`, unless another process unpacks there, and removes those of attempts that were killed.
    pub(super) fn create(target: &Path) -> Result<Self, TargetError> {
        let target = Directory::open(target)?;
        let turn = Turn::take(&target)?;
        let name = unused_name();
        // With the turn held, no living process of ours has a folder here: all that is found is stale.
        let made = remove_stale(&target, turn.lock).and_then(|()| {
            target.create_directory(&name, WORKABLE)?;
            Self::fill(&target, &name).inspect_err(|_| discard(&target, &name))
        });
        match made {
            Ok([tree, kept, undone]) => {
                tracing::debug!("took the target");
                Ok(Self {
                    target,
                    name,
                    tree,
                    kept,
                    undone,
                    turn,
                    finally: None,
                })
            }
            Err(error) => {
                turn.end(&target);
                Err(error)
            }
        }
    }

    fn fill(target: &Directory, name: &[u8]) -> Result<[Directory; 3], TargetError> {
        let folder = target.open_child(name)?;
        let make = |part: &[u8]| {
            folder.create_directory(part, WORKABLE)?;
            folder.open_child(part)
        };
        Ok([make(b"tree")?, make(b"kept")?, make(b"undone")?])
    }

    /// Fails unless the tree has the `made` names that were put into it.
    pub(super) fn check_whole(&self, made: u64) -> Result<(), TargetError> {
        match self.tree.count_all()? {
            found if found == made => Ok(()),
            found => Err(self
                .target
                .refused("unpack into", TargetRefused::NotWhole { made, found })),
        }
    }

    /// Gives the target, in which all of the tree is, these attributes once more when the folder
    /// has gone: that has changed its time, and needed a directory that can be written.
    pub(super) fn close(mut self, root: Option<Attributes>) {
        self.finally = root;
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        discard(&self.target, &self.name);
        self.turn.end(&self.target);
        if let Some(attributes) = self.finally
            && let Err(error) = self.target.set_attributes(b".", attributes)
        {
            tracing::warn!(%error, "the archive is complete, but for the mode and time of the directory itself");
        }
    }
}

fn unused_name() -> Vec<u8> {
    let random = RandomState::new().hash_one(std::process::id());
    [STAGING_PREFIX, format!("{random:016x}").as_bytes()].concat()
}

/// Removes the folders of dead processes. Without locks they cannot be told from those of live ones, and stay.
fn remove_stale(target: &Directory, lock: Lock) -> Result<(), TargetError> {
    for name in target.names(usize::MAX, |name| name.starts_with(STAGING_PREFIX))? {
        if !target.status(&name)?.is_some_and(|status| status.is_directory()) {
            continue;
        }
        if lock == Lock::Ours {
            tracing::info!("removing what an earlier attempt has left");
            target.remove_all(&name)?;
        } else {
            let name = printable(&name);
            tracing::warn!(
                name,
                "the filesystem has no locks: remove this folder if nothing unpacks into it"
            );
        }
    }
    Ok(())
}

fn discard(target: &Directory, name: &[u8]) {
    if let Err(error) = target.remove_all(name) {
        tracing::warn!(%error, "could not remove an unfinished archive");
    }
}
