//! A source in memory and helpers around `transfer`.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "each test file uses a part"
)]

pub mod objects;

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::options::{PayloadKind, ReadOptions, WriteOptions};
use datapath::source::{Source, SourceBody};
use datapath::transfer::{TransferReport, transfer_image};
use datapath::{Error, disk};

pub use testkit::tmpfs::fast_folder;

/// An object in memory that arrives in chunks of chosen sizes and may fail on the way.
pub struct Memory {
    pub bytes: Bytes,
    /// Sizes of the chunks, repeated in turn.
    pub chunks: Vec<usize>,
    pub ranged: bool,
    /// What ranged reads return, if not the same as the stream.
    pub ahead: Option<Bytes>,
    /// Reading fails with a source error at this offset.
    pub broken_at: Option<usize>,
}

impl Memory {
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            chunks: vec![100_000],
            ranged: false,
            ahead: None,
            broken_at: None,
        }
    }

    pub fn ranged(bytes: impl Into<Bytes>) -> Self {
        Self { ranged: true, ..Self::new(bytes) }
    }
}

impl Source for Memory {
    fn name(&self) -> String {
        "memory".into()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.ranged.then_some(self.bytes.len() as u64)
    }

    fn is_ranged(&self) -> bool {
        self.ranged
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(MemoryBody {
            bytes: self.bytes.clone(),
            position: 0,
            chunks: self.chunks.clone().into_iter().cycle(),
            broken_at: self.broken_at.unwrap_or(usize::MAX),
        }))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        Ok(self.ahead.as_ref().unwrap_or(&self.bytes).slice(range))
    }
}

struct MemoryBody {
    bytes: Bytes,
    position: usize,
    chunks: std::iter::Cycle<std::vec::IntoIter<usize>>,
    broken_at: usize,
}

impl SourceBody for MemoryBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.position == self.broken_at {
            return Err(SourceError::new(SourceErrorKind::Io, "the wire is cut"));
        }
        let size = self.chunks.next().unwrap_or(usize::MAX).max(1);
        let end = self.position.saturating_add(size).min(self.bytes.len()).min(self.broken_at);
        let chunk = self.bytes.slice(self.position..end);
        self.position = end;
        Ok((!chunk.is_empty()).then_some(chunk))
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        self.position = usize::try_from(offset).unwrap();
        Ok(())
    }
}

/// Returns options for a new file without a limit.
pub fn file(path: &Path) -> disk::DiskOptions {
    disk::DiskOptions {
        path: path.to_owned(),
        available: u64::MAX,
        size: None,
        preallocate: false,
        cache: disk::CacheMode::Auto,
        overwrite: false,
        mode: None,
    }
}

/// Returns the same pseudo-random bytes for the same `seed`.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Runs qemu-img (Debian package qemu-utils), which must be installed.
pub fn qemu_img(arguments: &[&str]) {
    let status = std::process::Command::new("qemu-img")
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .status()
        .expect("qemu-img is needed: install the Debian package qemu-utils");
    assert!(status.success(), "qemu-img {arguments:?}");
}

/// Transfers an image with default options.
pub fn transfer(source: &dyn Source, target: &disk::DiskOptions) -> Result<TransferReport, Error> {
    transfer_reading(source, target, &ReadOptions::default())
}

/// Transfers an image with these read options.
pub fn transfer_reading(
    source: &dyn Source,
    target: &disk::DiskOptions,
    options: &ReadOptions,
) -> Result<TransferReport, Error> {
    transfer_image(source, PayloadKind::default(), target, options, &WriteOptions::default())
}
