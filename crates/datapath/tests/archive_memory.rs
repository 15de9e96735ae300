//! Checks that the memory for an archive does not depend on the archive's size. This test needs a
//! process of its own, because it measures the peak of the whole process.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "transfers/archive/tape.rs"]
#[allow(dead_code, reason = "only some entries are written here")]
mod tape;

use std::ops::Range;

use bytes::Bytes;
use datapath::archive::{self, unpack_archive};
use datapath::error::SourceError;
use datapath::memory;
use datapath::options::ReadOptions;
use datapath::source::{Source, SourceBody};

use tape::{Fields, Tape};

/// Files in the root of the archive, which are moved into place one by one.
const FLAT: usize = 50_000;
/// Directories with one file each.
const DIRECTORIES: usize = 30_000;
/// Pieces of 1 MiB of a single large file.
const PIECES: usize = 200;

/// Limit on resident memory; the process starts with about 5 MiB.
const RESIDENT_KIB: u64 = 32 << 10;

/// An archive that is generated while it is read.
struct Generated;

impl Source for Generated {
    fn name(&self) -> String {
        "generated".into()
    }

    fn total_bytes(&self) -> Option<u64> {
        None
    }

    fn is_ranged(&self) -> bool {
        false
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(GeneratedBody(0)))
    }

    fn read_range(&self, _range: Range<u64>) -> Result<Bytes, SourceError> {
        unreachable!("the source has no ranges")
    }
}

struct GeneratedBody(usize);

impl SourceBody for GeneratedBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let number = self.0;
        self.0 += 1;
        Ok(piece(number).map(Bytes::from))
    }

    fn skip_to(&mut self, _offset: u64) -> Result<(), SourceError> {
        unreachable!("the source has no ranges")
    }
}

fn piece(number: usize) -> Option<Vec<u8>> {
    if number < FLAT {
        return Some(Tape::default().file(format!("flat-{number}"), b"").0);
    }
    let number = number - FLAT;
    if number < DIRECTORIES {
        let name = format!("there-before/directory-{number}");
        let directory = Tape::default().directory(&name, 0o555);
        return Some(directory.file(format!("{name}/file"), b"content").0);
    }
    let number = number - DIRECTORIES;
    if number == 0 {
        let mut fields = Fields::new(b'0', "large");
        fields.size = (PIECES as u64) << 20;
        return Some(fields.block().to_vec());
    }
    (number <= PIECES).then(|| vec![1; 1 << 20])
}

fn peak_resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "alone: measures memory"]
fn memory_does_not_grow_with_the_archive() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    std::fs::create_dir(folder.path().join("there-before")).unwrap();
    let target = archive::UnpackOptions {
        dir: folder.path().to_owned(),
        overwrite: true,
        available: u64::MAX,
    };
    let report = unpack_archive(&Generated, &target, &ReadOptions::default()).unwrap();
    assert_eq!(report.entries, (FLAT + 2 * DIRECTORIES + 1) as u64);
    let (held, resident) = (memory::peak_bytes(), peak_resident_kib());
    assert!(held < 4 << 20, "{held} bytes were held");
    assert!(resident < RESIDENT_KIB, "{resident} KiB were resident");
}
