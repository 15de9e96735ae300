//! Reads any qcow2 image in every way; see `crate::image`.

use crate::{Pieces, image};
use diskimage::Format;

pub fn run(data: &[u8]) {
    if let Some(pieces) = Pieces::new(data) {
        image::check(Format::Qcow2, &pieces);
    }
}
