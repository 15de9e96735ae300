//! Any VDI image, by every route; see `fuzz::image`.

#![no_main]

use diskimage::Format;
use fuzz::{Pieces, image, spread};
use libfuzzer_sys::fuzz_target;

const MAX_IMAGE_BYTES: usize = 3 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((cuts, records)) = data.split_at_checked(Pieces::CUTS) else {
        return;
    };
    let Some(image) = spread::read(records, MAX_IMAGE_BYTES) else {
        return;
    };
    if let Some(pieces) = Pieces::new(&[cuts, &image].concat()) {
        image::check(Format::Vdi, &pieces);
    }
});
