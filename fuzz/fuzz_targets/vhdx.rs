//! Any VHDX image, its checksums made right, by every route; see `fuzz::image`.

#![no_main]

use diskimage::Format;
use fuzz::{Pieces, image, seal, spread};
use libfuzzer_sys::fuzz_target;

const MAX_IMAGE_BYTES: usize = 8 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((cuts, records)) = data.split_at_checked(Pieces::CUTS) else {
        return;
    };
    let Some(mut image) = spread::read(records, MAX_IMAGE_BYTES) else {
        return;
    };
    seal::vhdx(&mut image);
    if let Some(pieces) = Pieces::new(&[cuts, &image].concat()) {
        image::check(Format::Vhdx, &pieces);
    }
});
