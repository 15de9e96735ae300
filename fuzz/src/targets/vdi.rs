//! Reads any VDI image in every way; see `crate::image`.

use crate::{Pieces, image, spread};
use diskimage::Format;

const MAX_IMAGE_BYTES: usize = 3 << 20;

pub fn run(data: &[u8]) {
    let Some((sizes, records)) = data.split_first_chunk() else {
        return;
    };
    let Some(image) = spread::read(records, MAX_IMAGE_BYTES) else {
        return;
    };
    image::check(Format::Vdi, &Pieces::of(*sizes, image));
}
