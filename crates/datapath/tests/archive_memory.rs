//! Checks that the memory for an archive does not depend on the archive's size. This test needs a
//! process of its own, because it measures the peak of the whole process.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "transfers/archive/tape.rs"]
#[allow(dead_code, reason = "only some entries are written here")]
mod tape;

#[path = "common/mod.rs"]
mod common;

use bytes::Bytes;
use datapath::unpack::{UnpackOptions, unpack_archive};
use stream::memory;
use stream::options::ReadOptions;

use common::Generated;
use tape::{Fields, Tape};

/// Files in the root of the archive, which are moved into place one by one.
const FLAT: usize = 50_000;
/// Directories with one file each.
const DIRECTORIES: usize = 30_000;
/// Pieces of 1 MiB of a single large file.
const PIECES: usize = 200;

/// Limit on resident memory; the process starts with about 5 MiB.
const RESIDENT_KIB: u64 = 32 << 10;

/// Returns the pieces of an archive, which is generated while it is read.
fn piece(number: usize) -> Option<Bytes> {
    if number < FLAT {
        return Some(Tape::default().file(format!("flat-{number}"), b"").0.into());
    }
    let number = number - FLAT;
    if number < DIRECTORIES {
        let name = format!("there-before/directory-{number}");
        let directory = Tape::default().directory(&name, 0o555);
        return Some(directory.file(format!("{name}/file"), b"content").0.into());
    }
    let number = number - DIRECTORIES;
    if number == 0 {
        let mut fields = Fields::new(b'0', "large");
        fields.size = (PIECES as u64) << 20;
        return Some(Bytes::copy_from_slice(&fields.block()));
    }
    (number <= PIECES).then(|| vec![1; 1 << 20].into())
}

fn peak_resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "alone: measures memory"]
fn memory_does_not_grow_with_the_archive() {
    let folder = common::fast_folder();
    std::fs::create_dir(folder.path().join("there-before")).unwrap();
    let target =
        UnpackOptions { dir: folder.path().to_owned(), overwrite: true, available: u64::MAX };
    let report = unpack_archive(&Generated(piece), &target, &ReadOptions::default()).unwrap();
    assert_eq!(report.entries, (FLAT + 2 * DIRECTORIES + 1) as u64);
    let (held, resident) = (memory::peak_bytes(), peak_resident_kib());
    assert!(held < 4 << 20, "{held} bytes were held");
    assert!(resident < RESIDENT_KIB, "{resident} KiB were resident");
}
