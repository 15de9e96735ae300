//! Whole transfers from a source in memory.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bytes::Bytes;
use datapath::disk;
use datapath::options::WriteOptions;
use datapath::transfer::transfer_image;
use stream::error::SourceError;
use stream::options::{PayloadKind, ReadOptions};
use stream::source::{Source, SourceBody};

use crate::Pieces;

/// Space on the target. This limit also stops bombs.
pub const AVAILABLE: u64 = 1 << 20;

/// The folder to work in, in memory if possible, because the fuzzer makes thousands of files a
/// second.
pub static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let shared_memory = Path::new("/dev/shm");
    let parent =
        if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
    let folder = parent.join(format!("cdi-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder to work in");
    folder
});

/// A source whose object arrives in pieces.
pub struct MemorySource {
    pub pieces: Pieces,
    pub is_ranged: bool,
}

impl Source for MemorySource {
    fn name(&self) -> String {
        "memory".into()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.is_ranged.then_some(self.pieces.rest().len() as u64)
    }

    fn is_ranged(&self) -> bool {
        self.is_ranged
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(MemoryBody { length: self.pieces.rest().len(), pieces: self.pieces.clone() }))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        assert!(self.is_ranged, "the source has no ranges");
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

/// Transfers the source to a disk, and returns the disk if that succeeds. A failure must leave
/// nothing.
pub fn transfer(
    source: &MemorySource,
    payload: PayloadKind,
    reading: &ReadOptions,
) -> Option<Vec<u8>> {
    let target = disk::DiskOptions {
        path: FOLDER.join("disk"),
        available: AVAILABLE,
        counts_stored: false,
        size: None,
        preallocate: false,
        cache: disk::CacheMode::Auto,
        overwrite: false,
        mode: None,
    };
    let report = transfer_image(source, payload, &target, reading, &WriteOptions::default()).ok();
    let disk = report.map(|report| {
        let disk = std::fs::read(&target.path).expect("the target of a success");
        std::fs::remove_file(&target.path).expect("the target of a success");
        assert_eq!(disk.len() as u64, report.virtual_size);
        assert!(report.virtual_size <= AVAILABLE);
        disk
    });
    assert!(!target.path.exists(), "a failure left the target behind");
    disk
}
