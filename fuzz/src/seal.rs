//! Corrects checksums. The fuzzer cannot guess them, and the checked content is what is to be
//! tested.

use std::ops::Range;

use diskimage::bytes_at::be64;

/// Corrects the footer and the header of a dynamic VHD: the complement of the sum of all other
/// bytes (VHD 1.0, "Checksum").
pub fn vhd(image: &mut [u8]) {
    let header = be64(image, 16).and_then(|offset| usize::try_from(offset).ok());
    sum(image, 0..512, 64);
    if let Some(start) = header.filter(|start| *start < image.len()) {
        sum(image, start..start + 1024, 36);
    }
}

fn sum(image: &mut [u8], range: Range<usize>, at: usize) {
    let Some(structure) = image.get_mut(range) else {
        return;
    };
    structure[at..at + 4].fill(0);
    let sum = structure.iter().fold(0_u32, |sum, byte| sum.wrapping_add(u32::from(*byte)));
    structure[at..at + 4].copy_from_slice(&(!sum).to_be_bytes());
}

/// Corrects the headers and region tables of a VHDX: a CRC-32C of the structure with zeros in the
/// checksum's place (MS-VHDX 2.2.2, 2.2.3.1).
pub fn vhdx(image: &mut [u8]) {
    const KIB: usize = 1 << 10;
    for (start, length) in [(64, 4), (128, 4), (192, 64), (256, 64)] {
        let Some(structure) = image.get_mut(start * KIB..(start + length) * KIB) else {
            return;
        };
        structure[4..8].fill(0);
        let sum = crc32c::crc32c(structure);
        structure[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}
