//! Checksums made right: no fuzzer guesses them, and what they cover is what matters.

use std::ops::Range;

use diskimage::bytes_at::be64;

/// The footer and the header of a dynamic VHD: the complement of the sum of all other bytes (VHD 1.0, "Checksum").
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
    let sum = structure
        .iter()
        .fold(0_u32, |sum, byte| sum.wrapping_add(u32::from(*byte)));
    structure[at..at + 4].copy_from_slice(&(!sum).to_be_bytes());
}

/// The headers and region tables of a VHDX: CRC-32C over all of them with zeros in its place (MS-VHDX 2.2.2, 2.2.3.1).
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

/// A stream of frames: its mark, kinds that there are, the checksum of every frame, and what the end says of the headers before it
/// (`datapath::frames`).
pub fn frames(stream: &mut [u8]) {
    const MARK: &[u8] = b"cdifrm1\n";
    const HEADER: usize = 20;
    const SUMMED: usize = 16;
    const END: u8 = 4;
    let Some((mark, mut rest)) = stream.split_at_mut_checked(MARK.len()) else {
        return;
    };
    mark.copy_from_slice(MARK);
    let mut headers = 0;
    while let Some((header, behind)) = rest.split_at_mut_checked(HEADER) {
        header[0] = 1 + header[0] % END;
        header[1..4].fill(0);
        let stored = [header[4], header[5], header[6], header[7]];
        let stored = usize::try_from(u32::from_le_bytes(stored)).unwrap_or(usize::MAX);
        let Some((payload, next)) = behind.split_at_mut_checked(stored) else {
            return;
        };
        if header[0] == END && payload.len() == 4 {
            payload.copy_from_slice(&u32::to_le_bytes(headers));
        }
        let sum = crc32c::crc32c_append(crc32c::crc32c(&header[..SUMMED]), payload);
        header[SUMMED..].copy_from_slice(&sum.to_le_bytes());
        headers = crc32c::crc32c_append(headers, header);
        rest = next;
    }
}
