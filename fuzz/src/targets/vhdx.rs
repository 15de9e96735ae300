//! Reads any VHDX image, with corrected checksums, in every way; see `crate::image`.

use crate::{Pieces, image, seal, spread};
use diskimage::Format;

const MAX_IMAGE_BYTES: usize = 10 << 20;

pub fn run(data: &[u8]) {
    let Some((sizes, records)) = data.split_first_chunk() else {
        return;
    };
    let Some(mut image) = spread::read(records, MAX_IMAGE_BYTES) else {
        return;
    };
    seal::vhdx(&mut image);
    image::check(Format::Vhdx, &Pieces::of(*sizes, image));
}
