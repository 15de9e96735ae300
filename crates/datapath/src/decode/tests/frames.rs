//! Frames, and what both encoders make of random volumes.

use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::encode::{Encoding, PIECE_BYTES, Piece};
use crate::frames::{HEADER_BYTES, Header, Kind, MAGIC};

/// A stream of pieces, some of which are squeezed.
fn encode(encoding: Encoding, pieces: &[(Piece, bool)]) -> Vec<u8> {
    // Two encoders, as two threads have them.
    let mut encoders = [encoding.encoder(), encoding.encoder()];
    let mut seal = encoding.seal();
    let mut stream = encoding.start().to_vec();
    for (index, (piece, squeeze)) in pieces.iter().enumerate() {
        let blocks = encoders[index % 2].encode(piece.clone(), *squeeze);
        seal.pass(&blocks, piece.length());
        for block in blocks {
            stream.extend_from_slice(&block.head);
            stream.extend_from_slice(&block.body);
        }
    }
    stream.extend_from_slice(&seal.end());
    stream
}

fn expanded(pieces: &[(Piece, bool)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (piece, _) in pieces {
        match piece {
            Piece::Data(bytes) => all.extend_from_slice(bytes),
            Piece::Zeros(count) => all.resize(all.len() + usize::try_from(*count).unwrap(), 0),
        }
    }
    all
}

fn data(bytes: Vec<u8>, squeeze: bool) -> (Piece, bool) {
    (Piece::Data(bytes.into()), squeeze)
}

/// A volume with everything in it.
fn volume() -> Vec<(Piece, bool)> {
    let holed = [&sample(40_000)[..], &[0; 70_000], &sample(5)].concat();
    vec![
        data(sample(PIECE_BYTES), true),
        (Piece::Zeros(1_000_000), false),
        data(sample(512), false),
        data(holed.clone(), true),
        data(holed, false),
        data(sample(100_000), false),
        data(vec![0; PIECE_BYTES], true),
        data(vec![7; 1], true),
    ]
}

fn frame(kind: Kind, length: u64, payload: &[u8]) -> Vec<u8> {
    [&Header::seal(kind, length, payload)[..], payload].concat()
}

/// The frames with an end that belongs to them.
fn stream(frames: &[Vec<u8>], length: u64) -> Vec<u8> {
    let headers: Vec<u8> = frames
        .iter()
        .flat_map(|frame| &frame[..HEADER_BYTES])
        .copied()
        .collect();
    let end = frame(Kind::End, length, &crc32c::crc32c(&headers).to_le_bytes());
    [&MAGIC[..], &frames.concat(), &end].concat()
}

fn reason(packed: &[u8]) -> String {
    unpack(Codec::Frames, packed).unwrap_err().to_string()
}

#[test]
fn a_volume_survives_however_its_stream_is_cut() {
    let pieces = volume();
    for encoding in [Encoding::Frames, Encoding::Snappy] {
        let codec = if encoding == Encoding::Frames {
            Codec::Frames
        } else {
            Codec::Snappy
        };
        let packed = encode(encoding, &pieces);
        for sizes in [&[1 << 20][..], &[4096], &[1, 7, 70_000]] {
            let unpacked = unpack_with(codec, &packed, sizes, &Limits::default()).unwrap();
            assert!(unpacked == expanded(&pieces), "{codec}, {sizes:?}");
        }
    }
}

#[test]
fn data_of_a_device_is_aligned_as_on_the_disk() {
    let pieces = [data(sample(PIECE_BYTES), true), data(sample(PIECE_BYTES), false)];
    let mut decoder = Codec::Frames.decoder(
        self::pieces(&encode(Encoding::Frames, &pieces), &[5000]),
        &Limits::default(),
    );
    let mut offset = 0;
    while let Some(chunk) = decoder.next_chunk().unwrap() {
        assert_eq!(chunk.as_ptr().addr() % 4096, offset % 4096);
        offset += chunk.len();
    }
    assert_eq!(offset, 2 * PIECE_BYTES);
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let pieces = [
        data(sample(600), true),
        data(sample(50), false),
        (Piece::Zeros(10_000), false),
    ];
    let packed = encode(Encoding::Frames, &pieces);
    for length in 0..packed.len() {
        let error = unpack(Codec::Frames, &packed[..length]).unwrap_err();
        assert!(
            matches!(error, DecodeError::Truncated { .. }),
            "{length}: {error}"
        );
    }
    for bit in 0..packed.len() * 8 {
        let mut damaged = packed.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        unpack(Codec::Frames, &damaged).unwrap_err();
    }
}

#[test]
fn frames_that_are_missing_doubled_or_in_another_order_are_noticed() {
    let frames = [frame(Kind::Stored, 3, b"abc"), frame(Kind::Stored, 3, b"def")];
    let [one, two] = &frames;
    let good = stream(&frames, 6);
    assert_eq!(unpack(Codec::Frames, &good).unwrap(), b"abcdef");
    let end = &good[good.len() - HEADER_BYTES - 4..];
    for frames in [&[one][..], &[one, one], &[two, one], &[one, two, two]] {
        let frames: Vec<u8> = frames.iter().flat_map(|frame| frame.iter()).copied().collect();
        let text = reason(&[&MAGIC[..], &frames, end].concat());
        assert!(text.contains("its end speaks of"), "{text}");
    }
    let text = reason(&[&good[..], b"x"].concat());
    assert!(text.contains("followed by bytes that do not belong"), "{text}");
}

#[test]
fn what_does_not_belong_is_refused_by_name() {
    let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    let packed = zstd(&[b'a'; 1000]);
    for (stream, part) in [
        (b"\xff\x06\0\0sNaPpY".to_vec(), "the mark of a stream of frames"),
        (
            stream(&[frame(Kind::Zstd, 1001, &packed)], 1001),
            "1000 bytes that should have 1001",
        ),
        (stream(&[frame(Kind::Zstd, 999, &packed)], 999), "no zstd"),
        (stream(&[frame(Kind::Zstd, 999, b"not zstd")], 999), "no zstd"),
        (
            stream(&[frame(Kind::Stored, 3, b"abc")], 4),
            "its end speaks of 4 bytes, 3 came",
        ),
    ] {
        let error = reason(&stream);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_large_frame_of_another_writer_fits() {
    let large = sample(1 << 20);
    let frames = [
        frame(Kind::Stored, 1 << 20, &large),
        frame(Kind::Zstd, 1 << 20, &zstd::bulk::compress(&large, 1).unwrap()),
    ];
    let packed = stream(&frames, 2 << 20);
    for sizes in [&[1 << 22][..], &[1000]] {
        let unpacked = unpack_with(Codec::Frames, &packed, sizes, &Limits::default()).unwrap();
        assert!(unpacked == [&large[..], &large].concat());
    }
}

#[test]
fn a_terabyte_of_zeros_is_counted() {
    let packed = stream(&[frame(Kind::Zeros, 1 << 40, b"")], 1 << 40);
    let mut decoder = Codec::Frames.decoder(pieces(&packed, &[4096]), &Limits::default());
    let (started, mut bytes) = (Instant::now(), 0);
    while let Some(chunk) = decoder.next_chunk().unwrap() {
        assert!(crate::zeros::is_known_zero(&chunk));
        bytes += chunk.len() as u64;
    }
    assert_eq!(bytes, 1 << 40);
    assert!(started.elapsed().as_secs() < 60);
}

fn any_piece() -> impl Strategy<Value = (Piece, bool)> {
    let bytes = prop_oneof![
        (1..PIECE_BYTES).prop_map(sample),
        (1..PIECE_BYTES).prop_map(|length| vec![0; length]),
        proptest::collection::vec(any::<u8>(), 1..2000),
        (1..60_000_usize, 1..100_000_usize).prop_map(|(data, zeros)| [
            sample(data),
            vec![0; zeros],
            sample(data)
        ]
        .concat())
    ];
    let piece = prop_oneof![
        4 => bytes.prop_map(|bytes| Piece::Data(bytes.into())),
        1 => (1..4_000_000_u64).prop_map(Piece::Zeros),
    ];
    (piece, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_squeezed_the_volume_is_the_same(pieces in proptest::collection::vec(any_piece(), 0..6)) {
        let expected = expanded(&pieces);
        for (encoding, codec) in [(Encoding::Frames, Codec::Frames), (Encoding::Snappy, Codec::Snappy)] {
            let unpacked = unpack(codec, &encode(encoding, &pieces)).unwrap();
            prop_assert!(unpacked == expected, "{codec}");
        }
    }
}
