//! Moves a finished tree to its place, by renames that can be undone.
//!
//! Other things of the same name change places with the new ones (two renames where the filesystem cannot exchange),
//! and are kept until the end. Only a kill between the renames leaves a part, of which every file is complete.

use super::directory::{Attributes, Directory, Status, WORKABLE};
use super::journal::{Journal, Step};
use super::name::printable;
use super::staging::Staging;
use super::unplaced::Unplaced;
use crate::error::{ArchiveErrorKind, TargetError, TargetRefused};
use crate::storage::{Inode, Storage};

/// Name of a folder that filesystems keep for themselves. It belongs to root, and is in every archive of a whole volume.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Names that are read at a time from a directory that is being moved.
const BATCH: usize = 16384;

/// Moves the tree, which has `names` names, to the target, gives that the attributes `root`, and
/// waits until all is on the disk. After a failure, the target is as it was. The archive itself,
/// which may lie in the target, is not replaced. Returns the attributes if the target has taken
/// them: only its owner can change them.
pub(super) fn commit(
    staging: &Staging,
    names: u64,
    root: Option<Attributes>,
    archive: Option<Storage>,
) -> Result<Option<Attributes>, Unplaced> {
    let mut commit = Commit {
        staging,
        archive: archive.and_then(Storage::inode),
        journal: Journal::default(),
        kept: 0,
    };
    let done = commit.run(names, root);
    if done.is_err() {
        commit.undo();
    }
    done
}

struct Commit<'s> {
    staging: &'s Staging,
    archive: Option<Inode>,
    journal: Journal,
    /// Number of entries of the target that made way.
    kept: u64,
}

/// A directory of the tree, and that of the target which it becomes.
#[derive(Clone, Copy)]
struct Sides<'d> {
    from: &'d Directory,
    to: &'d Directory,
    /// The path of `to` below the target.
    path: &'d [u8],
}

impl Commit<'_> {
    fn run(&mut self, names: u64, root: Option<Attributes>) -> Result<Option<Attributes>, Unplaced> {
        let Staging { tree, target, .. } = self.staging;
        tree.sync_filesystem()?;
        self.staging.check_whole(names)?;
        self.merge(Sides {
            from: tree,
            to: target,
            path: b"",
        })?;
        let adopted = match root {
            Some(root) => self.adopt_root(root)?,
            None => None,
        };
        target.sync_filesystem()?;
        Ok(adopted)
    }

    /// Gives the target itself its attributes, but for what would keep its owner from removing the
    /// folder in it.
    fn adopt_root(&mut self, root: Attributes) -> Result<Option<Attributes>, Unplaced> {
        let target = &self.staging.target;
        if let Some(old) = target.status(b".")? {
            self.journal.add_attributes(b".", old.attributes)?;
        }
        let workable = Attributes {
            mode: root.mode | WORKABLE,
            ..root
        };
        Ok(target.adopt(workable)?.then_some(root))
    }

    /// Moves what is in the one directory to the other.
    fn merge(&mut self, sides: Sides<'_>) -> Result<(), Unplaced> {
        loop {
            let names = sides.from.names(BATCH, |_| true)?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                self.place(sides, &name)?;
            }
        }
    }

    fn place(&mut self, sides: Sides<'_>, name: &[u8]) -> Result<(), Unplaced> {
        let Sides { from, to, path } = sides;
        let new_is_directory = from.status(name)?.is_some_and(|status| status.is_directory());
        match to.status(name)? {
            None => self.move_in(sides, name, false),
            Some(old) if old.is_directory() && new_is_directory => {
                // Only root may look into the one that is there: that of the archive is dropped if nothing is in it.
                if path.is_empty() && name == LOST_AND_FOUND && from.remove_directory(name)? {
                    return Ok(());
                }
                self.merge_directories(sides, name)
            }
            Some(old) if old.is_directory() && !is_empty(&to.open_child(name)?)? => {
                Err(ArchiveErrorKind::Occupied(printable(name)).into())
            }
            Some(old) if Some(old.inode) == self.archive => {
                Err(TargetError::refused("replace", &to.path_of(name), TargetRefused::Source).into())
            }
            Some(_) => self.move_in(sides, name, true),
        }
    }

    /// `name` is a directory on both sides.
    fn merge_directories(&mut self, sides: Sides<'_>, name: &[u8]) -> Result<(), Unplaced> {
        let Some(staged) = sides.from.status(name)? else {
            return Ok(());
        };
        let path = match sides.path {
            [] => name.to_vec(),
            path => [path, b"/", name].concat(),
        };
        let to = sides.to.open_child(name)?;
        let from = sides.from.open_child_for_work(name, staged.attributes.mode)?;
        // Before the first entry moves in, which changes its time: an undone commit gives that back.
        if let Some(old) = to.status(b".")? {
            self.journal.add_attributes(&path, old.attributes)?;
        }
        self.merge(Sides {
            from: &from,
            to: &to,
            path: &path,
        })?;
        to.adopt(staged.attributes)?;
        sides.from.remove_directory(name)?;
        Ok(())
    }

    /// Moves `name`, to where nothing is or into the place of what it `replaces`.
    fn move_in(&mut self, sides: Sides<'_>, name: &[u8], replaces: bool) -> Result<(), Unplaced> {
        self.journal.add(sides.path, name, replaces)?;
        let (new, place) = ((sides.from, name), (sides.to, name));
        let moved = if replaces {
            replace_anything(new, place, (&self.staging.kept, &number_name(self.kept)))
        } else {
            move_anything(new, place)
        };
        match moved {
            Ok(()) => self.kept += u64::from(replaces),
            Err(_) => self.journal.take_back(name),
        }
        Ok(moved?)
    }

    /// Brings the target back to what it was, as far as that is possible.
    fn undo(&self) {
        // First, because what the archive says of a directory may forbid to change it.
        self.restore_attributes();
        let mut directory = open_below(&self.staging.target, b"");
        let mut replaced = 0;
        for (number, step) in (0..).zip(self.journal.steps()) {
            match step {
                Step::In(path) => directory = open_below(&self.staging.target, path),
                Step::Moved(name) => self.withdraw(&directory, name, number, None),
                Step::Replaced(name) => {
                    self.withdraw(&directory, name, number, Some(replaced));
                    replaced += 1;
                }
            }
        }
        // Again, because that has changed the times.
        self.restore_attributes();
    }

    /// Takes away what was moved to a directory of the target, and puts back what made way for it.
    fn withdraw(
        &self,
        directory: &Result<Directory, TargetError>,
        name: &[u8],
        number: u64,
        kept: Option<u64>,
    ) {
        let directory = match directory {
            Ok(directory) => directory,
            Err(error) => return tracing::error!(%error, "could not undo a part of an archive"),
        };
        let (there, away) = (
            (directory, name),
            (&self.staging.undone, &number_name(number)[..]),
        );
        let undone = match kept {
            Some(kept) => replace_anything((&self.staging.kept, &number_name(kept)), there, away),
            None => move_anything(there, away),
        };
        if let Err(error) = undone {
            tracing::error!(%error, "could not undo a part of an archive");
        }
    }

    /// Makes the directories that were there before what they were, parents first.
    fn restore_attributes(&self) {
        for (path, attributes) in &self.journal.attributes {
            let slash = path.iter().rposition(|byte| *byte == b'/');
            let (parent, name) = slash.map_or((&[][..], &path[..]), |at| (&path[..at], &path[at + 1..]));
            let restored = open_below(&self.staging.target, parent)
                .and_then(|parent| parent.set_attributes(name, *attributes));
            if let Err(error) = restored {
                tracing::debug!(%error, "could not restore the mode and time of a directory");
            }
        }
    }
}

/// Puts `new` into the place of `old`, which goes to `away`. At once where the filesystem can exchange names: then a kill
/// at any moment leaves one of both in its place.
fn replace_anything(new: Entry<'_>, old: Entry<'_>, away: Entry<'_>) -> Result<(), TargetError> {
    let exchange = || new.0.exchange(new.1, old.0, old.1);
    if exchange() {
        // What was `old` now has the name of `new`.
        return move_anything(new, away).inspect_err(|_| {
            exchange();
        });
    }
    move_anything(old, away)?;
    move_anything(new, old).inspect_err(|_| {
        if let Err(error) = move_anything(away, old) {
            tracing::error!(%error, "could not undo a part of an archive");
        }
    })
}

/// A name in a directory.
type Entry<'e> = (&'e Directory, &'e [u8]);

fn move_anything((from, name): Entry<'_>, (to, new): Entry<'_>) -> Result<(), TargetError> {
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
