//! Tests of the shortcut for zstd frames that contain only zeros: those are counted, and frames
//! that only begin like them are decoded.

use proptest::prelude::*;

use super::*;
use crate::decode::zstd::{BLOCK_BYTES, FRAME_HEADER, RAW, RLE};
use crate::encode::VolumePiece;

/// Returns a zstd block of `length` times `byte`.
fn block(kind: u32, byte: u8, length: usize, is_last: bool) -> Vec<u8> {
    let header = u32::from(is_last) | kind << 1 | u32::try_from(length).unwrap() << 3;
    let body = vec![byte; if kind == RLE { 1 } else { length }];
    [&header.to_le_bytes()[..3], &body].concat()
}

/// Returns a zstd frame of such blocks.
fn frame(blocks: &[(u32, u8, usize)]) -> Vec<u8> {
    let mut frame = FRAME_HEADER.to_vec();
    for (index, (kind, byte, length)) in blocks.iter().enumerate() {
        frame.extend(block(*kind, *byte, *length, index + 1 == blocks.len()));
    }
    frame
}

#[test]
fn a_terabyte_of_zeros_is_counted() {
    let zeros = NETWORK.zeros_at_once();
    let frame = NETWORK.new_encoder().encode_piece(VolumePiece::Zeros(zeros), false).concat();
    let frames = usize::try_from((1 << 40) / zeros).unwrap();
    let mut decoder = new_decoder(
        Codec::Zstd,
        pieces(&frame.repeat(frames), &[1 << 18, 3000]),
        &DecodeLimits::default(),
    );
    let mut bytes = 0;
    while let Some(chunk) = decoder.next_chunk().unwrap() {
        assert!(stream::zeros::is_known_zero(&chunk));
        bytes += chunk.len() as u64;
    }
    assert_eq!(bytes, 1 << 40);
}

#[test]
fn truncated_and_oversized_frames_of_zeros_are_refused() {
    let good = frame(&[(RLE, 0, BLOCK_BYTES), (RLE, 0, 5)]);
    assert_eq!(unpack(Codec::Zstd, &good).unwrap(), vec![0; BLOCK_BYTES + 5]);
    for length in 0..good.len() {
        let error = unpack(Codec::Zstd, &good[..length]).unwrap_err();
        assert!(matches!(error, DecodeError::Truncated { .. }), "{length}: {error}");
    }
    let too_long = frame(&[(RLE, 0, BLOCK_BYTES + 1)]);
    let error = unpack(Codec::Zstd, &too_long).unwrap_err();
    assert!(matches!(error, DecodeError::Corrupt { .. }), "{error}");
}

proptest! {
    #[test]
    fn frames_decode_as_in_the_zstd_library(
        frames in prop::collection::vec(
            prop::collection::vec(
                (prop_oneof![3 => Just(RLE), 1 => Just(RAW)], prop_oneof![3 => Just(0), 1 => any::<u8>()], 0..=BLOCK_BYTES),
                1..6,
            ),
            1..5,
        ),
        size in 1..5000_usize,
    ) {
        let stream: Vec<u8> = frames.iter().flat_map(|blocks| frame(blocks)).collect();
        let mut expected = Vec::new();
        zstd::Decoder::new(&stream[..]).unwrap().read_to_end(&mut expected).unwrap();
        let unpacked = unpack_with(Codec::Zstd, &stream, &[size], &DecodeLimits::default()).unwrap();
        prop_assert!(unpacked == expected);
    }
}
