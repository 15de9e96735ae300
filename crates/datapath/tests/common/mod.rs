//! Sources and helpers around `transfer`.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "each test file uses a part"
)]

mod memory;
pub mod objects;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use datapath::disk;
use datapath::options::WriteOptions;
use datapath::transfer::{TransferReport, transfer_image};
use stream::Error;
use stream::error::SourceError;
use stream::observe::{Observer, TransferPhase};
use stream::options::{PayloadKind, ReadOptions};
use stream::source::{Source, SourceBody};
use testkit::loopdev::{DIRT, LoopDevice};
use testkit::random::Random;
use tokio_util::sync::CancellationToken;

pub use self::memory::Memory;
pub use testkit::tmpfs::fast_folder;

/// A source without ranges, which generates its chunks: `next` gets 0, 1, 2…
pub struct Generated<F>(pub F);

struct GeneratedBody<F>(F, usize);

impl<F: Fn(usize) -> Option<Bytes> + Clone + Send + Sync + 'static> Source for Generated<F> {
    fn name(&self) -> String {
        "generated".into()
    }

    fn total_bytes(&self) -> Option<u64> {
        None
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(GeneratedBody(self.0.clone(), 0)))
    }
}

impl<F: Fn(usize) -> Option<Bytes> + Send> SourceBody for GeneratedBody<F> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.1 += 1;
        Ok((self.0)(self.1 - 1))
    }
}

/// A point of a transfer.
#[derive(Clone, Copy, PartialEq)]
pub enum Point {
    SourceByte(u64),
    Phase(TransferPhase),
}

/// Stops the transfer at a given point.
struct StopAt(Point, CancellationToken);

impl Observer for StopAt {
    fn begin_phase(&self, phase: TransferPhase) {
        if self.0 == Point::Phase(phase) {
            self.1.cancel();
        }
    }

    fn source_position(&self, position: u64, _total: Option<u64>) {
        if matches!(self.0, Point::SourceByte(at) if at <= position) {
            self.1.cancel();
        }
    }
}

/// Returns options that stop the transfer at this point.
pub fn stopping_at(point: Point) -> ReadOptions {
    let stop = CancellationToken::new();
    let observer = Arc::new(StopAt(point, stop.clone()));
    ReadOptions { observer, stop, ..ReadOptions::default() }
}

/// Returns options for a new file without a limit.
pub fn file(path: &Path) -> disk::DiskOptions {
    disk::DiskOptions::new(path, u64::MAX)
}

/// Returns the same pseudo-random bytes for the same `seed`.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::new(seed).fill(&mut bytes);
    bytes
}

/// Runs qemu-img.
pub fn qemu_img(arguments: &[&str]) {
    testkit::tools::run("qemu-img", arguments);
}

/// Fills the device with other bytes than any test writes.
pub fn make_dirty(device: &LoopDevice) {
    let dirt = vec![DIRT; usize::try_from(device.bytes()).unwrap()];
    let file = std::fs::File::options().write(true).open(device.path()).unwrap();
    file.write_all_at(&dirt, 0).unwrap();
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
