//! Moves a finished tree to its place, by renames that can be undone.

use super::directory::{Directory, Status, WORKABLE};
use super::error::ArchiveErrorKind;
use super::failure::Failure;
use super::journal::{Journal, Step};
use super::name::printable;
use super::staging::Staging;
use crate::error::TargetError;

/// What filesystems keep for themselves. It belongs to root.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Names that are read at a time from a directory that is being moved.
const BATCH: usize = 16384;

/// Moves the tree to the target and waits until it is on the disk. After a failure, the target is as it was.
pub(super) fn commit(staging: &Staging) -> Result<(), Failure> {
    let mut commit = Commit {
        staging,
        journal: Journal::default(),
        kept: 0,
    };
    let done = commit.run();
    if done.is_err() {
        commit.undo();
    }
    done
}

struct Commit<'s> {
    staging: &'s Staging,
    journal: Journal,
    /// Things that made way.
    kept: u64,
}

impl Commit<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let Staging { tree, target, .. } = self.staging;
        tree.sync_filesystem()?;
        self.merge(tree, target, &mut Vec::new())?;
        Ok(target.sync_filesystem()?)
    }

    /// Moves what is in `from` to `to`, which is the directory `path` of the target.
    fn merge(&mut self, from: &Directory, to: &Directory, path: &mut Vec<u8>) -> Result<(), Failure> {
        loop {
            let names = from.names(BATCH, |_| true)?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                self.place(from, to, path, &name)?;
            }
        }
    }

    fn place(
        &mut self,
        from: &Directory,
        to: &Directory,
        path: &mut Vec<u8>,
        name: &[u8],
    ) -> Result<(), Failure> {
        let new_is_directory = from.status(name)?.is_some_and(|status| status.is_directory());
        match to.status(name)? {
            None => self.move_in(from, to, path, name),
            Some(old) if old.is_directory() && new_is_directory => {
                self.merge_directories(from, to, path, name)
            }
            Some(old) if old.is_directory() && !is_empty(&to.open_child(name)?)? => {
                Err(ArchiveErrorKind::Occupied(printable(name)).into())
            }
            Some(_) => self.replace(from, to, path, name),
        }
    }

    /// `name` is a directory on both sides.
    fn merge_directories(
        &mut self,
        from: &Directory,
        to: &Directory,
        path: &mut Vec<u8>,
        name: &[u8],
    ) -> Result<(), Failure> {
        let Some(staged) = from.status(name)? else {
            return Ok(());
        };
        let before = path.len();
        if before > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let (old, new) = (
            to.open_child(name)?,
            from.open_child_for_work(name, staged.attributes.mode)?,
        );
        self.remember(&old, path)?;
        self.merge(&new, &old, path)?;
        if path != LOST_AND_FOUND {
            old.adopt(staged.attributes)?;
        }
        path.truncate(before);
        from.remove_directory(name)?;
        Ok(())
    }

    fn remember(&mut self, directory: &Directory, path: &[u8]) -> Result<(), Failure> {
        if let Some(old) = directory.status(b".")? {
            self.journal.add_attributes(path, old.attributes)?;
        }
        Ok(())
    }

    fn move_in(&mut self, from: &Directory, to: &Directory, path: &[u8], name: &[u8]) -> Result<(), Failure> {
        self.journal.add(path, name, false)?;
        let moved = move_anything(from, name, to, name);
        if moved.is_err() {
            self.journal.take_back(name);
        }
        Ok(moved?)
    }

    fn replace(&mut self, from: &Directory, to: &Directory, path: &[u8], name: &[u8]) -> Result<(), Failure> {
        let number = number_name(self.kept);
        self.journal.add(path, name, true)?;
        let kept = move_anything(to, name, &self.staging.kept, &number);
        let moved = kept.and_then(|()| {
            move_anything(from, name, to, name).inspect_err(|_| {
                put_back(&self.staging.kept, &number, to, name);
            })
        });
        match moved {
            Ok(()) => self.kept += 1,
            Err(_) => self.journal.take_back(name),
        }
        Ok(moved?)
    }

    /// Brings the target back to what it was, as far as that is possible.
    fn undo(&self) {
        let Staging { target, kept, .. } = self.staging;
        let mut directory = target.open_child(b".");
        let mut replaced = 0;
        for (number, step) in (0..).zip(self.journal.steps()) {
            match (step, &directory) {
                (Step::In(path), _) => directory = open_below(target, path),
                (Step::Moved(name), Ok(directory)) => self.withdraw(directory, name, number),
                (Step::Replaced(name), Ok(directory)) => {
                    self.withdraw(directory, name, number);
                    put_back(kept, &number_name(replaced), directory, name);
                    replaced += 1;
                }
                (_, Err(error)) => tracing::error!(%error, "could not undo a part of an archive"),
            }
        }
        for (path, attributes) in self.journal.attributes.iter().rev() {
            let restored = open_below(target, path).and_then(|old| old.set_attributes(b".", *attributes));
            if let Err(error) = restored {
                tracing::debug!(%error, "could not restore the mode and time of a directory");
            }
        }
    }

    /// Takes away what was moved to the target.
    fn withdraw(&self, directory: &Directory, name: &[u8], number: u64) {
        put_back(directory, name, &self.staging.undone, &number_name(number));
    }
}

/// Moves something back, and complains if that fails: there is nothing else left to do.
fn put_back(from: &Directory, name: &[u8], to: &Directory, new: &[u8]) {
    if let Err(error) = move_anything(from, name, to, new) {
        tracing::error!(%error, "could not undo a part of an archive");
    }
}

fn move_anything(from: &Directory, name: &[u8], to: &Directory, new: &[u8]) -> Result<(), TargetError> {
    match from.rename(name, to, new) {
        Err(error) if error.source.kind() == std::io::ErrorKind::PermissionDenied => {
            // Moving a directory changes its `..`, for which it has to be writable.
            let directory = from.status(name)?.filter(Status::is_directory);
            let Some(mode) = directory.map(|status| status.attributes.mode) else {
                return Err(error);
            };
            from.set_mode(name, mode | WORKABLE)?;
            match from.rename(name, to, new) {
                Ok(()) => to.set_mode(new, mode),
                Err(error) => from.set_mode(name, mode).and(Err(error)),
            }
        }
        other => other,
    }
}

/// The directory `path` of the target, through no symbolic link.
fn open_below(target: &Directory, path: &[u8]) -> Result<Directory, TargetError> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.fold(target.open_child(b"."), |directory, name| {
        directory?.open_child(name)
    })
}

fn is_empty(directory: &Directory) -> Result<bool, TargetError> {
    Ok(directory.names(1, |_| true)?.is_empty())
}

fn number_name(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}
