//! Reads any VHDX image, with corrected checksums, in every way; see `fuzz::image`.

#![no_main]

use diskimage::Format;
use fuzz::{Pieces, image, seal, spread};
use libfuzzer_sys::fuzz_target;

const MAX_IMAGE_BYTES: usize = 10 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((sizes, records)) = data.split_first_chunk() else {
        return;
    };
    let Some(mut image) = spread::read(records, MAX_IMAGE_BYTES) else {
        return;
    };
    seal::vhdx(&mut image);
    image::check(Format::Vhdx, &Pieces::of(*sizes, image));
});
