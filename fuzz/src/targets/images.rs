//! Reads any image of a format with a map in every way; see `crate::image`.

use crate::{Pieces, image, seal, spread};
use diskimage::Format;

pub fn qcow2(data: &[u8]) {
    if let Some(pieces) = Pieces::new(data) {
        image::check(Format::Qcow2, &pieces);
    }
}

pub fn vmdk(data: &[u8]) {
    check(data, Format::Vmdk, 1 << 20, |_| {});
}

pub fn vdi(data: &[u8]) {
    check(data, Format::Vdi, 3 << 20, |_| {});
}

pub fn vhd(data: &[u8]) {
    check(data, Format::Vhd, 3 << 20, seal::vhd);
}

pub fn vhdx(data: &[u8]) {
    check(data, Format::Vhdx, 10 << 20, seal::vhdx);
}

/// Checks an image in its compact form, of at most `limit` bytes, after `seal` has corrected its
/// checksums.
fn check(data: &[u8], format: Format, limit: usize, seal: impl FnOnce(&mut [u8])) {
    let Some((sizes, records)) = data.split_first_chunk() else {
        return;
    };
    let Some(mut image) = spread::read(records, limit) else {
        return;
    };
    seal(&mut image);
    image::check(format, &Pieces::of(*sizes, image));
}
