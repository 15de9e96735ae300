//! Random file trees.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::fail::OrFail;
use crate::random::Random;

/// Limits of the entries that an archive format can store.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// Longest path in bytes.
    pub path_bytes: usize,
    /// Longest name in bytes.
    pub name_bytes: usize,
    /// Longest target of a symbolic link in bytes.
    pub target_bytes: usize,
    /// True if names may contain any bytes.
    pub has_any_bytes: bool,
    /// True if times may be before 1970.
    pub has_negative_times: bool,
}

impl Reach {
    /// The limits of a tar file.
    pub const ANY: Self = Self {
        path_bytes: 1500,
        name_bytes: 255,
        target_bytes: 1500,
        has_any_bytes: true,
        has_negative_times: true,
    };
}

/// A random name, usually a harmless one.
fn name(random: &mut Random, most: usize, has_any_bytes: bool) -> Vec<u8> {
    let length = match random.below(20) {
        0 => 100 + random.below(155),
        1 => 30 + random.below(70),
        _ => 1 + random.below(12),
    };
    let length = usize::try_from(length).or_fail("a random tree").min(most);
    let mut name = Vec::new();
    while name.len() < length {
        let piece: &[u8] = match random.below(30) {
            0 => "ü".as_bytes(),
            1 => "日本".as_bytes(),
            2 => b"\n",
            3 => b" ",
            4 => b"\\",
            5 => b"-",
            6 => b"=",
            7 => "🦀".as_bytes(),
            8 => b"'",
            9 => b"*",
            letter => {
                &b"abcdefghijklmnopqrstuvwxyz"
                    [usize::try_from(letter % 26).or_fail("a random tree")..][..1]
            }
        };
        name.extend_from_slice(piece);
    }
    // This may cut a character in half: names need not be UTF-8.
    name.truncate(length);
    if !has_any_bytes && std::str::from_utf8(&name).is_err() {
        name = vec![b'u'; length];
    }
    name
}

fn mode(random: &mut Random) -> u32 {
    match random.below(8) {
        0 => u32::try_from(random.below(0o10000)).or_fail("a random tree"),
        1 => 0o4755,
        2 => 0o2755,
        3 => 0o1777,
        4 => 0,
        _ => 0o644,
    }
}

fn set_time(path: &Path, random: &mut Random, reach: Reach) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
    let nanoseconds = i64::try_from(random.below(1_000_000_000)).or_fail("a random tree");
    let seconds = match random.below(10) {
        0 if reach.has_negative_times => {
            -i64::try_from(random.below(1 << 32)).or_fail("a random tree")
        }
        1 => 0,
        2 => 4_000_000_000,
        _ => i64::try_from(random.below(2_000_000_000)).or_fail("a random tree"),
    };
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).or_fail("a random tree");
}

/// Makes a tree of up to a dozen entries in the existing directory `root`, whose name takes `used`
/// bytes of every path.
pub fn grow(root: &Path, random: &mut Random, reach: Reach, used: usize) {
    let mut directories = vec![PathBuf::new()];
    let mut files: Vec<PathBuf> = Vec::new();
    let mut links = Vec::new();
    for _ in 0..random.below(13) {
        let parent = &directories
            [usize::try_from(random.below(directories.len() as u64)).or_fail("a random tree")];
        // Space for the slashes before the parent, before the name and after the name of a
        // directory.
        let taken = used + parent.as_os_str().len() + 3;
        if taken >= reach.path_bytes {
            continue;
        }
        let most = reach.name_bytes.min(reach.path_bytes - taken);
        let path = parent.join(OsStr::from_bytes(&name(random, most, reach.has_any_bytes)));
        let full = root.join(&path);
        if fs::symlink_metadata(&full).is_ok() {
            continue;
        }
        match random.below(10) {
            0..3 => {
                fs::create_dir(&full).or_fail("a random tree");
                directories.push(path);
            }
            7 => {
                write_sparse(&full, random);
                files.push(path);
            }
            8 => {
                symlink(OsStr::from_bytes(&target(random, reach)), &full).or_fail("a random tree");
                links.push(path);
            }
            9 if !files.is_empty() => {
                let old = &files
                    [usize::try_from(random.below(files.len() as u64)).or_fail("a random tree")];
                // Either path may become the link's target: the one that the writer visits first.
                let longer = old.as_os_str().len().max(path.as_os_str().len());
                if used + longer + 1 < reach.target_bytes {
                    fs::hard_link(root.join(old), &full).or_fail("a random tree");
                }
            }
            _ => {
                fs::write(&full, content(random)).or_fail("a random tree");
                files.push(path);
            }
        }
    }
    for path in files.iter().chain(directories.iter().rev()) {
        let full = root.join(path);
        fs::set_permissions(&full, Permissions::from_mode(mode(random))).or_fail("a random tree");
        set_time(&full, random, reach);
    }
    for path in links {
        set_time(&root.join(path), random, reach);
    }
    // Adding entries changed the times of the directories.
    for path in directories.iter().rev() {
        set_time(&root.join(path), random, reach);
    }
}

fn target(random: &mut Random, reach: Reach) -> Vec<u8> {
    let start: &[u8] = match random.below(4) {
        0 => b"/",
        1 => b"../../",
        _ => b"",
    };
    let most = reach.target_bytes - start.len();
    [start, &name(random, most, reach.has_any_bytes)].concat()
}

fn content(random: &mut Random) -> Vec<u8> {
    let length = match random.below(5) {
        0 => 0,
        1 => 512 * random.below(20),
        _ => random.below(3000),
    };
    let mut bytes = vec![0; usize::try_from(length).or_fail("a random tree")];
    if !random.one_in(5) {
        random.fill(&mut bytes);
    }
    bytes
}

fn write_sparse(path: &Path, random: &mut Random) {
    let file = File::create(path).or_fail("a random tree");
    let length = random.below(200_000);
    file.set_len(length).or_fail("a random tree");
    for _ in 0..random.below(5) {
        let mut bytes = vec![0; usize::try_from(random.below(6000)).or_fail("a random tree")];
        random.fill(&mut bytes);
        let offset = random.below(length + 1);
        let room = usize::try_from(length - offset).or_fail("a random tree");
        file.write_all_at(&bytes[..bytes.len().min(room)], offset).or_fail("a random tree");
    }
}
