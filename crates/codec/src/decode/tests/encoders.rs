//! Checks that the decoders restore what both of our encoders produce.

use proptest::prelude::*;

use super::*;
use crate::encode::{PIECE_BYTES, VolumePiece};

const ENCODINGS: [(Encoding, Codec); 2] =
    [(NETWORK, Codec::Zstd), (Encoding::Snappy, Codec::Snappy)];

/// Returns a stream of `pieces`. The pieces with `true` are compressed.
fn encode(encoding: Encoding, pieces: &[(VolumePiece, bool)]) -> Vec<u8> {
    // The encoders take turns, like two threads that share the work.
    let mut encoders = [encoding.new_encoder(), encoding.new_encoder()];
    let mut stream = encoding.stream_header().to_vec();
    for (index, (piece, squeeze)) in pieces.iter().enumerate() {
        for part in encoders[index % 2].encode_piece(piece.clone(), *squeeze) {
            stream.extend_from_slice(&part);
        }
    }
    stream
}

fn expanded(pieces: &[(VolumePiece, bool)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (piece, _) in pieces {
        match piece {
            VolumePiece::Data(bytes) => all.extend_from_slice(bytes),
            VolumePiece::Zeros(count) => {
                all.resize(all.len() + usize::try_from(*count).unwrap(), 0)
            }
        }
    }
    all
}

#[test]
fn device_data_is_aligned_in_memory_as_on_the_disk() {
    let piece = VolumePiece::Data(sample(PIECE_BYTES).into());
    let pieces = [(piece.clone(), true), (piece, false)];
    let mut decoder = new_decoder(
        Codec::Zstd,
        self::pieces(&encode(NETWORK, &pieces), &[5000]),
        &DecodeLimits::default(),
    );
    let mut offset = 0;
    while let Some(chunk) = decoder.next_chunk().unwrap() {
        assert_eq!(chunk.as_ptr().addr() % 4096, offset % 4096);
        offset += chunk.len();
    }
    assert_eq!(offset, 2 * PIECE_BYTES);
}

fn any_piece() -> impl Strategy<Value = (VolumePiece, bool)> {
    let bytes = prop_oneof![
        (1..=PIECE_BYTES).prop_map(sample),
        (1..=PIECE_BYTES).prop_map(|length| vec![0; length]),
        proptest::collection::vec(any::<u8>(), 1..2000),
        (1..60_000_usize, 1..100_000_usize).prop_map(|(data, zeros)| [
            sample(data),
            vec![0; zeros],
            sample(data)
        ]
        .concat())
    ];
    let piece = prop_oneof![
        4 => bytes.prop_map(|bytes| VolumePiece::Data(bytes.into())),
        1 => (1..4_000_000_u64).prop_map(VolumePiece::Zeros),
    ];
    (piece, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_volume_is_the_same_whichever_pieces_are_compressed_and_however_its_stream_is_split(
        pieces in proptest::collection::vec(any_piece(), 0..8),
        sizes in prop_oneof![
            Just(vec![1 << 20]),
            Just(vec![4096]),
            proptest::collection::vec(1..70_000_usize, 1..5),
        ],
    ) {
        let expected = expanded(&pieces);
        for (encoding, codec) in ENCODINGS {
            let packed = encode(encoding, &pieces);
            // Without pieces the encoder writes no frame, and an empty file is not valid zstd.
            // Upload servers refuse empty volumes in any encoding.
            if packed.is_empty() {
                continue;
            }
            let unpacked = unpack_with(codec, &packed, &sizes, &DecodeLimits::default()).unwrap();
            prop_assert!(unpacked == expected, "{codec}");
        }
    }
}
