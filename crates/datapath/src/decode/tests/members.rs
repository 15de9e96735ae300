//! Tests of a single layer: members, what may follow them, damage, and limits.

use proptest::prelude::*;

use super::*;
use crate::memory::{MemoryBudget, MemoryLimitError};

#[test]
fn every_codec_restores_what_was_packed() {
    for codec in CODECS {
        for length in [0, 1, 511, CHUNK_BYTES, CHUNK_BYTES + 1, 3_000_001] {
            let data = sample(length);
            let packed = pack(codec, &data);
            for size in [usize::MAX, 4096] {
                let unpacked = unpack_with(codec, &packed, &[size], &DecodeLimits::default());
                assert!(unpacked.unwrap() == data, "{codec}, {length} bytes in chunks of {size}");
            }
        }
    }
}

#[test]
fn consecutive_members_are_one_stream() {
    let (first, second) = (sample(70_000), b"second".to_vec());
    for codec in CODECS {
        let packed = [&first[..], b"", &second].map(|data| pack(codec, data)).concat();
        for size in [1, 2, 7, 4096] {
            let unpacked = unpack_with(codec, &packed, &[size], &DecodeLimits::default());
            assert!(
                unpacked.unwrap() == [&first[..], &second].concat(),
                "{codec} in chunks of {size}"
            );
        }
    }
}

#[test]
fn a_truncation_anywhere_is_detected() {
    let (first, second) = (sample(700), sample(90));
    for codec in CODECS {
        let boundary = pack(codec, &first).len();
        let packed = [&first, &second].map(|data| pack(codec, data)).concat();
        for end in 0..packed.len() {
            match unpack(codec, &packed[..end]) {
                Ok(unpacked) => {
                    assert!(end == boundary && unpacked == first, "{codec} cut at {end}")
                }
                Err(DecodeError::Truncated { offset, .. }) => {
                    assert_eq!(offset, end as u64, "{codec}")
                }
                // Too few bytes of the second magic number are left to recognise it.
                Err(DecodeError::TrailingGarbage { offset, .. }) => {
                    assert!(
                        offset == boundary as u64 && end < boundary + 7,
                        "{codec} cut at {end}"
                    );
                }
                Err(other) => panic!("{codec} cut at {end}: {other}"),
            }
        }
    }
}

#[test]
fn a_changed_byte_never_changes_the_result() {
    let data = sample(500);
    for codec in CODECS {
        let packed = pack(codec, &data);
        let mut noticed = 0;
        for place in 0..packed.len() {
            for change in [0x01, 0x80, 0xFF] {
                let mut damaged = packed.clone();
                damaged[place] ^= change;
                match unpack(codec, &damaged) {
                    // Some bits do not matter, such as gzip's modification time and the unused
                    // bits in bzip2's last byte.
                    Ok(unpacked) => {
                        assert_eq!(unpacked, data, "{codec}, byte {place} ^ {change:#x}")
                    }
                    Err(_) => noticed += 1,
                }
            }
        }
        assert!(noticed > packed.len() * 2, "{codec}: {noticed} of {}", packed.len() * 3);
    }
}

#[test]
fn checksums_and_lengths_are_verified() {
    let data = sample(500);
    for (codec, from_end, what) in [
        (Codec::Gzip, 8, "CRC-32"),
        (Codec::Gzip, 4, "length"),
        (Codec::Zstd, 1, "content checksum"),
        (Codec::Bzip2, 3, "stream CRC"),
        // Counted from the end: the footer (12 bytes), an index with one record, and the CRC-64
        // before it.
        (Codec::Xz, 12 + 8 + 8, "block check"),
    ] {
        let mut packed = pack(codec, &data);
        let place = packed.len() - from_end;
        packed[place] ^= 0x10;
        match unpack(codec, &packed) {
            Err(DecodeError::Corrupt { offset, reason, .. }) => {
                assert!(offset <= packed.len() as u64 && !reason.is_empty(), "{codec} {what}");
            }
            other => panic!("{codec} {what}: {:?}", other.map(|unpacked| unpacked.len())),
        }
    }
}

#[test]
fn only_padding_that_the_format_allows_may_follow() {
    let data = sample(300);
    for (codec, tail, allowed) in [
        (Codec::Gzip, &[0x55][..], false),
        (Codec::Gzip, &[0], true),
        (Codec::Gzip, &[0; 10_000], true),
        (Codec::Gzip, &[0, 0, 1], false),
        (Codec::Gzip, &[0x1F, 0x8B], false),
        (Codec::Xz, &[0x55], false),
        (Codec::Xz, &[0], false),
        (Codec::Xz, &[0; 4], true),
        (Codec::Xz, &[0; 8192], true),
        (Codec::Xz, &[0; 8191], false),
        (Codec::Zstd, &[0x55], false),
        (Codec::Zstd, &[0], false),
        (Codec::Zstd, &[0; 4], false),
        (Codec::Bzip2, &[0x55], false),
        (Codec::Bzip2, &[0], false),
        (Codec::Bzip2, b"BZh9 and more text", false),
    ] {
        let packed = pack(codec, &data);
        let mut with_tail = packed.clone();
        with_tail.extend_from_slice(tail);
        match unpack(codec, &with_tail) {
            Ok(unpacked) => assert!(allowed && unpacked == data, "{codec} + {} bytes", tail.len()),
            Err(DecodeError::TrailingGarbage { offset, .. }) => {
                assert!(
                    !allowed && offset == packed.len() as u64,
                    "{codec} + {} bytes",
                    tail.len()
                );
            }
            Err(other) => panic!("{codec} + {} bytes: {other}", tail.len()),
        }
    }
}

#[test]
fn only_xz_allows_padding_between_members() {
    let data = sample(300);
    for (codec, zeros, allowed) in [
        (Codec::Xz, 8, true),
        (Codec::Xz, 6, false),
        (Codec::Gzip, 8, false),
        (Codec::Zstd, 8, false),
    ] {
        let packed = pack(codec, &data);
        let outcome = unpack(codec, &[&packed[..], &vec![0; zeros], &packed].concat());
        if allowed {
            assert_eq!(outcome.unwrap(), data.repeat(2));
        } else {
            assert!(
                matches!(outcome, Err(DecodeError::TrailingGarbage { .. })),
                "{codec}, {zeros} zeros"
            );
        }
    }
}

#[test]
fn skippable_frames_are_ignored() {
    let (data, frame) = (sample(300), pack(Codec::Zstd, &sample(300)));
    let skippable = |magic: u8, length: u8| {
        let mut frame = vec![magic, 0x2A, 0x4D, 0x18, length, 0, 0, 0];
        frame.resize(8 + usize::from(length), 0xFD);
        frame
    };
    let packed = [
        skippable(0x50, 4),
        skippable(0x5A, 0),
        frame.clone(),
        skippable(0x5F, 200),
        frame,
        skippable(0x5E, 9),
    ]
    .concat();
    assert_eq!(super::super::sniff_codec(&packed), Some(Codec::Zstd));
    for size in [1, 4096] {
        let unpacked = unpack_with(Codec::Zstd, &packed, &[size], &DecodeLimits::default());
        assert_eq!(unpacked.unwrap(), data.repeat(2));
    }
    let cut = unpack(Codec::Zstd, &packed[..packed.len() - 1]);
    assert!(matches!(cut, Err(DecodeError::Truncated { .. })));
}

#[test]
fn a_first_block_shorter_than_a_sector_is_decoded() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(b"QFI\xFB").unwrap();
    encoder.flush().unwrap();
    let data = sample(5000);
    encoder.write_all(&data).unwrap();
    let packed = encoder.finish().unwrap();
    assert_eq!(unpack(Codec::Zstd, &packed).unwrap(), [b"QFI\xFB", &data[..]].concat());
}

#[test]
fn windows_above_the_limit_are_refused_with_both_numbers() {
    const WINDOW: u64 = 8 << 20;
    // The decoders also need memory for their own state.
    const STATE: u64 = 1 << 20;
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(23).unwrap();
    encoder.write_all(b"small").unwrap();
    let with_zstd = encoder.finish().unwrap();
    // Preset 6 has a dictionary of 8 MiB.
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 6);
    encoder.write_all(b"small").unwrap();
    let with_xz = encoder.finish().unwrap();

    for (codec, packed) in [(Codec::Zstd, with_zstd), (Codec::Xz, with_xz)] {
        let unpack_in = |bytes| {
            let limits =
                DecodeLimits { memory: MemoryBudget::new(bytes), ..DecodeLimits::default() };
            unpack_with(codec, &packed, &[1], &limits)
        };
        assert_eq!(unpack_in(WINDOW + STATE).unwrap(), b"small");
        match unpack_in(WINDOW / 2) {
            Err(DecodeError::Memory { exceeded, .. }) => {
                let MemoryLimitError { needed, available, limit } = exceeded;
                assert!((WINDOW..=WINDOW + STATE).contains(&needed), "{codec} needs {needed}");
                assert_eq!((available, limit), (WINDOW / 2, WINDOW / 2), "{codec}");
            }
            other => panic!("{codec}: {other:?}"),
        }
    }
}

#[test]
fn the_stream_of_another_codec_is_corrupt() {
    for codec in CODECS {
        for other in CODECS.into_iter().filter(|other| *other != codec) {
            let outcome = unpack(codec, &pack(other, &sample(100)));
            assert!(
                matches!(outcome, Err(DecodeError::Corrupt { offset: 0, .. })),
                "{other} as {codec}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_split_of_the_input_decodes_to_the_same_bytes(
        lengths in prop::collection::vec(0_usize..20_000, 1..4),
        sizes in prop::collection::vec(1_usize..6000, 1..20),
        codec in prop::sample::select(CODECS.to_vec()),
    ) {
        let members: Vec<Vec<u8>> = lengths.iter().map(|length| sample(*length)).collect();
        let packed: Vec<u8> = members.iter().flat_map(|data| pack(codec, data)).collect();
        let unpacked = unpack_with(codec, &packed, &sizes, &DecodeLimits::default()).unwrap();
        prop_assert!(unpacked == members.concat());
    }

    #[test]
    fn arbitrary_bytes_after_a_valid_start_do_not_hang_the_decoder(
        start in 0_usize..600,
        noise in prop::collection::vec(any::<u8>(), 0..2000),
        codec in prop::sample::select(CODECS.to_vec()),
    ) {
        let mut packed = pack(codec, &sample(600));
        packed.truncate(start);
        packed.extend_from_slice(&noise);
        if let Ok(unpacked) = unpack_with(codec, &packed, &[64], &DecodeLimits::default()) {
            prop_assert_eq!(unpacked, sample(600));
        }
    }
}
