//! One image, maybe damaged, through the data path by one route, and what has to come out.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use datapath::source::Source;
use datapath::{Error, disk};
use diskimage::Format;
use testkit::tools;

use crate::common::{Memory, fast_folder, file, transfer};

/// Most that a damaged image may ask for; the samples have less than a tenth.
const AVAILABLE: u64 = 64 << 20;

/// What a case may take at most: a thousand times what it does.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a case is timed that took longer: others use the processors too, and hold one up now and then.
const TIMINGS: usize = 3;

/// What the data path makes of an image.
pub(crate) struct Outcome {
    pub(crate) format: Format,
    pub(crate) disk: Vec<u8>,
}

/// Imports `image`, which comes in large chunks, in time.
pub(crate) fn import(image: &Bytes, ranged: bool) -> Option<Outcome> {
    import_from(&memory(image, ranged, &[1 << 20]))
}

/// Imports `image`, which comes in chunks of these sizes, however long that takes.
pub(crate) fn import_cut(image: &Bytes, ranged: bool, chunks: &[usize]) -> Option<Outcome> {
    timed(&memory(image, ranged, chunks)).0
}

fn memory(image: &Bytes, ranged: bool, chunks: &[usize]) -> Memory {
    Memory { ranged, chunks: chunks.to_vec(), ..Memory::new(image.clone()) }
}

/// Imports what `source` gives, in time. A failure is a typed one and leaves nothing.
pub(crate) fn import_from(source: &dyn Source) -> Option<Outcome> {
    let (outcome, mut taken) = timed(source);
    for _ in 1..TIMINGS {
        if taken >= PATIENCE {
            taken = timed(source).1;
        }
    }
    assert!(taken < PATIENCE, "it took {taken:?}");
    outcome
}

fn timed(source: &dyn Source) -> (Option<Outcome>, Duration) {
    let folder = fast_folder();
    let target = disk::DiskOptions { available: AVAILABLE, ..file(&folder.path().join("disk")) };
    let started = Instant::now();
    let result = transfer(source, &target);
    let taken = started.elapsed();
    let outcome = match result {
        Ok(report) => {
            Some(Outcome { format: report.facts.format, disk: std::fs::read(&target.path).unwrap() })
        }
        Err(error) => {
            let typed = matches!(error, Error::Format(_) | Error::Target(_));
            assert!(typed && !error.to_string().is_empty(), "{error:?}");
            assert!(!target.path.exists(), "the partial target is left");
            None
        }
    };
    (outcome, taken)
}

/// What qemu-img makes of an image of `format`; `None` if it refuses.
pub(crate) fn ask_qemu(image: &[u8], format: &str) -> Option<Vec<u8>> {
    let folder = fast_folder();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("image"), image).unwrap();
    let reads = tools::qemu_converts(format, &path("image"), &path("raw"));
    reads.then(|| read(&path("raw")))
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// An image without its signature is the disk itself.
pub(crate) fn is_itself(image: &[u8], disk: &[u8]) -> bool {
    disk.len() == image.len().next_multiple_of(512)
        && disk.starts_with(image)
        && disk[image.len()..].iter().all(|byte| *byte == 0)
}
