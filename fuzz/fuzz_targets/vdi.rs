//! Reads any VDI image in every way; see `fuzz::image`.

#![no_main]

use diskimage::Format;
use fuzz::{Pieces, image, spread};
use libfuzzer_sys::fuzz_target;

const MAX_IMAGE_BYTES: usize = 3 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((sizes, records)) = data.split_first_chunk() else {
        return;
    };
    let Some(image) = spread::read(records, MAX_IMAGE_BYTES) else {
        return;
    };
    image::check(Format::Vdi, &Pieces::of(*sizes, image));
});
