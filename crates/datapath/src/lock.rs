//! The advisory lock that marks a file as being written, for other processes of this project.
//!
//! The lock belongs to the open file, and so to the inode: a second writer finds it under any name
//! of the file. It ends with the process that holds it, even if that process is killed. Other
//! programs do not check it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::OFlags;
use stream::storage::Inode;

/// Number of attempts to take a lock that another process holds, and the pause between them.
/// Together they last longer than a process takes to exit, but are too short for a person to
/// notice.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// State of a lock, as seen by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// This process holds the lock until it closes the file.
    Ours,
    /// Another open file holds the lock.
    Taken,
    /// The filesystem does not support locks (for example NFS without a lock daemon).
    Impossible,
}

/// Repeats `attempt` for a short time while another process holds the resource. A process that is
/// exiting holds it a moment longer, and so does a child that the process has just forked, until
/// the child executes another program.
pub(crate) fn retry_while_held<T>(
    mut attempt: impl FnMut() -> T,
    is_held: impl Fn(&T) -> bool,
) -> T {
    for _ in 0..ATTEMPTS {
        let result = attempt();
        if !is_held(&result) {
            return result;
        }
        sleep(PAUSE);
    }
    attempt()
}

/// Takes the lock of `file`. Retries for a moment, but does not wait for the end of a transfer.
pub fn lock_file(file: &File) -> LockState {
    retry_while_held(|| try_lock(file), |lock| *lock == LockState::Taken)
}

fn try_lock(file: &File) -> LockState {
    loop {
        // `try_lock` calls `flock`. A POSIX lock (`fcntl`) would end as soon as this process
        // closes any other descriptor of the file.
        match file.try_lock() {
            Ok(()) => return LockState::Ours,
            Err(TryLockError::WouldBlock) => return LockState::Taken,
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, "the target's filesystem does not support locks");
                return LockState::Impossible;
            }
        }
    }
}

/// Opens an existing file in order to lock it. It is opened for writing if possible, because NFS
/// locks only files that are open for writing.
pub fn open_to_lock(path: &Path) -> io::Result<File> {
    // The name may lead to something else by now, so links are not followed, and opening a pipe
    // does not wait for its other end.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let open = |write| OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
    open(true).or_else(|_| open(false))
}

/// Returns true if `path` is a name of `file`.
pub fn leads_to(path: &Path, file: &File) -> bool {
    let named = rustix::fs::lstat(path).map(|stat| Inode::from(&stat));
    matches!((named, Inode::from_file(file)), (Ok(named), Ok(open)) if named == open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_a_second_open_file_until_the_first_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let first = File::create(&path).unwrap();
        std::fs::hard_link(&path, folder.path().join("other")).unwrap();
        let second = File::open(folder.path().join("other")).unwrap();
        assert_eq!((lock_file(&first), lock_file(&second)), (LockState::Ours, LockState::Taken));
        drop(first);
        assert_eq!(lock_file(&second), LockState::Ours);
    }

    #[test]
    fn a_lock_that_is_released_soon_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let first = File::create(&path).unwrap();
        assert_eq!(lock_file(&first), LockState::Ours);
        let ending = std::thread::spawn(move || {
            sleep(PAUSE);
            drop(first);
        });
        assert_eq!(lock_file(&File::open(&path).unwrap()), LockState::Ours);
        ending.join().unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_locked_is_told_from_a_locked_one() {
        let path_only = i32::try_from(OFlags::PATH.bits()).unwrap();
        let file = File::options().read(true).custom_flags(path_only).open("/").unwrap();
        assert_eq!(lock_file(&file), LockState::Impossible);
    }
}
