//! Sends any object through the whole data path, with and without ranges. The result is a disk
//! that fits, or an error and no file. If both ways succeed, the disks are equal.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::LazyLock;

use crate::Pieces;
use bytes::Bytes;
use datapath::decode::DecodeLimits;
use datapath::disk;
use datapath::error::SourceError;
use datapath::memory::MemoryBudget;
use datapath::options::{PayloadKind, ReadOptions, WriteOptions};
use datapath::source::{Source, SourceBody};
use datapath::transfer::transfer_image;

/// Space on the target. This limit also stops bombs.
const AVAILABLE: u64 = 1 << 20;

struct Memory {
    pieces: Pieces,
    ranged: bool,
}

impl Source for Memory {
    fn name(&self) -> String {
        "memory".into()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.ranged.then_some(self.pieces.rest().len() as u64)
    }

    fn is_ranged(&self) -> bool {
        self.ranged
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(MemoryBody { length: self.pieces.rest().len(), pieces: self.pieces.clone() }))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let at = |offset| usize::try_from(offset).expect("an offset in memory");
        Ok(self.pieces.rest().slice(at(range.start)..at(range.end)))
    }
}

struct MemoryBody {
    pieces: Pieces,
    length: usize,
}

impl SourceBody for MemoryBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        Ok(self.pieces.next())
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let position = self.length - self.pieces.rest().len();
        let offset = usize::try_from(offset).expect("an offset in memory");
        self.pieces.advance(offset.checked_sub(position).expect("only forwards"));
        Ok(())
    }
}

/// The target, in memory if possible, because the fuzzer makes thousands of files a second.
static TARGET: LazyLock<PathBuf> = LazyLock::new(|| {
    let shared_memory = PathBuf::from("/dev/shm");
    let folder = if shared_memory.is_dir() { shared_memory } else { std::env::temp_dir() };
    folder.join(format!("cdi-fuzz-{}", std::process::id()))
});

/// Imports the object and returns the disk if that succeeds.
fn import(pieces: &Pieces, ranged: bool) -> Option<Vec<u8>> {
    let source = Memory { pieces: pieces.clone(), ranged };
    let target = disk::DiskOptions {
        path: TARGET.clone(),
        available: AVAILABLE,
        size: None,
        preallocate: false,
        cache: disk::CacheMode::Auto,
        overwrite: false,
        mode: None,
    };
    let reading = ReadOptions {
        // Small, so that a window that passes the check unnoticed exceeds the fuzzer's memory
        // limit.
        limits: DecodeLimits { memory: MemoryBudget::new(8 << 20), ..DecodeLimits::default() },
        ..ReadOptions::default()
    };
    match transfer_image(
        &source,
        PayloadKind::default(),
        &target,
        &reading,
        &WriteOptions::default(),
    ) {
        Ok(report) => {
            let disk = std::fs::read(&target.path).expect("the target of a success");
            std::fs::remove_file(&target.path).expect("the target of a success");
            assert_eq!(disk.len() as u64, report.virtual_size);
            assert!(report.virtual_size <= AVAILABLE);
            Some(disk)
        }
        Err(_) => {
            assert!(!target.path.exists(), "a failure left the target behind");
            None
        }
    }
}

pub fn run(data: &[u8]) {
    let Some(pieces) = Pieces::new(data) else { return };
    if let (Some(ranged), Some(passed)) = (import(&pieces, true), import(&pieces, false)) {
        assert!(ranged == passed, "reading with and without ranges gives different disks");
    }
}
