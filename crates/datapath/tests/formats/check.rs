//! Imports one image, possibly damaged, by one route and checks the outcome.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use datapath::source::Source;
use datapath::{Error, disk};
use diskimage::Format;
use testkit::tools;

use crate::common::{Memory, fast_folder, file, transfer};

/// Limit on the disk of a damaged image; the samples have less than a tenth of it.
const AVAILABLE: u64 = 64 << 20;

/// Time limit of a case: about a thousand times what it needs.
const PATIENCE: Duration = Duration::from_secs(1);

/// A case that takes longer is timed this often, because other processes may hold it up.
const TIMINGS: usize = 3;

/// The result of a successful import.
pub(crate) struct Outcome {
    pub(crate) format: Format,
    pub(crate) disk: Vec<u8>,
}

/// Imports `image` in large chunks, within the time limit.
pub(crate) fn import(image: &Bytes, ranged: bool) -> Option<Outcome> {
    import_from(&memory(image, ranged, &[1 << 20]))
}

/// Imports `image` in chunks of these sizes, without a time limit.
pub(crate) fn import_cut(image: &Bytes, ranged: bool, chunks: &[usize]) -> Option<Outcome> {
    timed(&memory(image, ranged, chunks)).0
}

fn memory(image: &Bytes, ranged: bool, chunks: &[usize]) -> Memory {
    Memory { ranged, chunks: chunks.to_vec(), ..Memory::new(image.clone()) }
}

/// Imports from `source` within the time limit. A failed import must return a typed error and
/// leave no file.
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
        Ok(report) => Some(Outcome {
            format: report.facts.format,
            disk: std::fs::read(&target.path).unwrap(),
        }),
        Err(error) => {
            let typed = matches!(error, Error::Format(_) | Error::Target(_));
            assert!(typed && !error.to_string().is_empty(), "{error:?}");
            assert!(!target.path.exists(), "the partial target is left");
            None
        }
    };
    (outcome, taken)
}

/// Returns the disk that qemu-img reads from an image of `format`; `None` if it refuses the image.
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

/// Returns true if `disk` is `image` itself, padded to a sector. That is correct for an image
/// without its signature, which is a raw disk.
pub(crate) fn is_itself(image: &[u8], disk: &[u8]) -> bool {
    disk.len() == image.len().next_multiple_of(512)
        && disk.starts_with(image)
        && disk[image.len()..].iter().all(|byte| *byte == 0)
}
