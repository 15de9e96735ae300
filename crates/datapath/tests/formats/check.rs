//! Imports one image, possibly damaged, by one route and checks the outcome.

use std::time::Instant;

use bytes::Bytes;
use datapath::disk;
use diskimage::Format;
use stream::Error;
use stream::source::Source;
use testkit::tools;
use testkit::wait::PATIENCE;

use crate::common::{Memory, fast_folder, file, transfer};

/// Limit on the disk of a damaged image; the samples have less than a tenth of it.
const AVAILABLE: u64 = 64 << 20;

/// The result of a successful import.
pub(crate) struct Outcome {
    pub(crate) format: Format,
    pub(crate) disk: Vec<u8>,
}

/// Imports `image` in large chunks.
pub(crate) fn import(image: &Bytes, ranged: bool) -> Option<Outcome> {
    import_from(&Memory { ranged, chunks: vec![1 << 20], ..Memory::new(image.clone()) })
}

/// Imports from `source`. A failed import must return a typed error and leave no file.
pub(crate) fn import_from(source: &dyn Source) -> Option<Outcome> {
    let folder = fast_folder();
    let target = disk::DiskOptions { available: AVAILABLE, ..file(&folder.path().join("disk")) };
    let started = Instant::now();
    let result = transfer(source, &target);
    let taken = started.elapsed();
    assert!(taken < PATIENCE, "it took {taken:?}");
    match result {
        Ok(report) => Some(Outcome {
            format: report.facts.format,
            disk: std::fs::read(&target.path).unwrap(),
        }),
        Err(error) => {
            let typed = matches!(error, Error::Format(_) | Error::Target(_) | Error::Decode(_));
            assert!(typed && !error.to_string().is_empty(), "{error:?}");
            assert!(!target.path.exists(), "the partial target is left");
            None
        }
    }
}

/// Returns the disk that qemu-img reads from an image of `format`; `None` if it refuses the image.
pub(crate) fn ask_qemu(image: &[u8], format: &str) -> Option<Vec<u8>> {
    let folder = fast_folder();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("image"), image).unwrap();
    let reads = tools::qemu_converts(format, &path("image"), &path("raw"));
    reads.then(|| std::fs::read(path("raw")).unwrap())
}

/// Returns true if `disk` is `image` itself, padded to a sector. That is correct for an image
/// without its signature, which is a raw disk.
pub(crate) fn is_itself(image: &[u8], disk: &[u8]) -> bool {
    disk.len() == image.len().next_multiple_of(512)
        && disk.starts_with(image)
        && disk[image.len()..].iter().all(|byte| *byte == 0)
}
