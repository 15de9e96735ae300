//! A source in memory and helpers around `transfer`.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "each test file uses a part"
)]

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::{Body, Source};
use datapath::target;

/// An object in memory that arrives in chunks of a fixed size, and may break.
pub struct Memory {
    pub bytes: Bytes,
    pub chunk: usize,
    pub ranged: bool,
    /// Fails with a source error at this offset.
    pub broken_at: Option<usize>,
}

impl Memory {
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            chunk: 100_000,
            ranged: false,
            broken_at: None,
        }
    }

    pub fn ranged(bytes: impl Into<Bytes>) -> Self {
        Self {
            ranged: true,
            ..Self::new(bytes)
        }
    }
}

impl Source for Memory {
    fn name(&self) -> String {
        "memory".into()
    }

    fn length(&self) -> Option<u64> {
        self.ranged.then_some(self.bytes.len() as u64)
    }

    fn is_ranged(&self) -> bool {
        self.ranged
    }

    fn body(&self) -> Result<Box<dyn Body>, SourceError> {
        Ok(Box::new(MemoryBody {
            bytes: self.bytes.clone(),
            position: 0,
            chunk: self.chunk.max(1),
            broken_at: self.broken_at.unwrap_or(usize::MAX),
        }))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        Ok(self
            .bytes
            .slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()))
    }
}

struct MemoryBody {
    bytes: Bytes,
    position: usize,
    chunk: usize,
    broken_at: usize,
}

impl Body for MemoryBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let end = (self.position + self.chunk).min(self.bytes.len());
        if end > self.broken_at {
            return Err(SourceError::new(SourceErrorKind::Io, "the wire is cut"));
        }
        let chunk = self.bytes.slice(self.position..end);
        self.position = end;
        Ok((!chunk.is_empty()).then_some(chunk))
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        self.position = usize::try_from(offset).unwrap();
        Ok(())
    }
}

/// A fresh file with no limit.
pub fn file(path: &Path) -> target::Options {
    target::Options {
        path: path.to_owned(),
        available: u64::MAX,
        size: None,
        preallocate: false,
        direct: false,
        overwrite: false,
        mode: None,
    }
}

/// Deterministic noise.
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

/// Runs qemu-img (Debian package qemu-utils), which these tests cannot do without.
pub fn qemu_img(arguments: &[&str]) {
    let status = std::process::Command::new("qemu-img")
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .status()
        .expect("qemu-img is needed: install the Debian package qemu-utils");
    assert!(status.success(), "qemu-img {arguments:?}");
}
