//! Reads any qcow2 image in every way; see `fuzz::image`.

#![no_main]

use diskimage::Format;
use fuzz::{Pieces, image};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(pieces) = Pieces::new(data) {
        image::check(Format::Qcow2, &pieces);
    }
});
