//! Any image with its map first: extents on the disk, each byte once, and the same disk as in one pass.

#![no_main]

use diskimage::Format;
use fuzz::{Array, Pieces};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(pieces) = Pieces::new(data) else { return };
    if let (Some(Ok(mapped)), Some(Ok(passed))) = (
        Array::map_first(Format::Qcow2, pieces.clone()),
        Array::one_pass(Format::Qcow2, pieces),
    ) {
        assert!(mapped == passed, "the routes lead to different disks");
    }
});
