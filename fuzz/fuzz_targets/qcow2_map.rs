//! Any image with its map first: extents on the disk, each byte once, and the same disk as in one pass.

#![no_main]

use diskimage::qcow2::{HEADER_BYTES, Header};
use fuzz::{Array, Pieces};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(pieces) = Pieces::new(data) else { return };
    let image = pieces.rest();
    let Ok(header) = Header::parse(&image[..image.len().min(HEADER_BYTES)]) else {
        return;
    };
    if let (Some(Ok(mapped)), Some(Ok(passed))) = (
        Array::map_first(&header, pieces.clone()),
        Array::one_pass(&header, pieces),
    ) {
        assert!(mapped == passed, "the routes lead to different disks");
    }
});
