//! The folder inside the target in which a tree grows until all of it is verified.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use super::directory::{Attributes, Directory, WORKABLE};
use crate::error::TargetError;

/// How the folder is called, before its random part. Nothing of an archive may be called like that.
pub(super) const STAGING_PREFIX: &[u8] = b".cdi-staging-";

/// The folder: removed with all that is left in it when it is dropped.
pub(super) struct Staging {
    /// Where the tree will be moved to. The folder lies in it, so that moving is renaming, and new files get the group of
    /// the target if it is passed on.
    pub(super) target: Directory,
    name: Vec<u8>,
    /// The tree.
    pub(super) tree: Directory,
    /// What had to make way for it.
    pub(super) kept: Directory,
    /// What was moved to the target and back again.
    pub(super) undone: Directory,
}

impl Staging {
    /// Makes the folder in `target`, and removes those of attempts that were killed.
    pub(super) fn create(target: &Path) -> Result<Self, TargetError> {
        let target = Directory::open(target)?;
        for stale in target.names(usize::MAX, |name| name.starts_with(STAGING_PREFIX))? {
            tracing::info!("removing what an earlier attempt has left");
            target.remove_all(&stale)?;
        }
        let random = RandomState::new().hash_one(std::process::id());
        let name = [STAGING_PREFIX, format!("{random:016x}").as_bytes()].concat();
        target.create_directory(&name, WORKABLE)?;
        match Self::fill(&target, &name) {
            Ok([tree, kept, undone]) => Ok(Self {
                target,
                name,
                tree,
                kept,
                undone,
            }),
            Err(error) => {
                discard(&target, &name);
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
}

impl Staging {
    /// Removes the folder and, now that nothing changes the target any more, gives it what the archive says of it. That may be
    /// somebody else's directory: then it keeps what it has.
    pub(super) fn close(self, root: Option<Attributes>) -> Result<(), TargetError> {
        let target = self.target.open_child(b".")?;
        drop(self);
        root.map_or(Ok(()), |attributes| target.adopt(attributes))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        discard(&self.target, &self.name);
    }
}

fn discard(target: &Directory, name: &[u8]) {
    if let Err(error) = target.remove_all(name) {
        tracing::warn!(%error, "could not remove an unfinished archive");
    }
}
