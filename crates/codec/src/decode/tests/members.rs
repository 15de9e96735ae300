//! Tests of a single layer: members, what may follow them, damage, and limits.

use proptest::prelude::*;
use stream::memory::{MemoryBudget, MemoryLimitError};

use super::*;

#[test]
fn members_of_any_length_are_one_stream() {
    for codec in Codec::SNIFFED {
        for lengths in [
            &[0][..],
            &[1],
            &[511],
            &[CHUNK_BYTES],
            &[CHUNK_BYTES + 1],
            &[3_000_001],
            &[70_000, 0, 6],
        ] {
            let members = lengths.iter().map(|length| sample(*length));
            let (packed, data): (Vec<_>, Vec<_>) =
                members.map(|data| (pack(codec, &data), data)).unzip();
            let small: &[usize] = if lengths[0] <= 70_000 { &[1, 2, 7] } else { &[] };
            for size in [&[usize::MAX, 4096], small].concat() {
                let limits = DecodeLimits::default();
                let unpacked = unpack_with(codec, &packed.concat(), &[size], &limits);
                assert!(unpacked.unwrap() == data.concat(), "{codec}, {lengths:?} by {size}");
            }
        }
    }
}

#[test]
fn a_truncation_anywhere_is_detected() {
    let (first, second) = (sample(700), sample(90));
    for codec in Codec::SNIFFED {
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
    for codec in Codec::SNIFFED {
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
    // What follows a member, and whether that is allowed: at the end, and before another member.
    for (codec, tail, at_end, between) in [
        (Codec::Gzip, &[0x55][..], false, false),
        (Codec::Gzip, &[0], true, false),
        (Codec::Gzip, &[0; 8], true, false),
        (Codec::Gzip, &[0; 10_000], true, false),
        (Codec::Gzip, &[0, 0, 1], false, false),
        (Codec::Gzip, &[0x1F, 0x8B], false, false),
        (Codec::Xz, &[0x55], false, false),
        (Codec::Xz, &[0], false, false),
        (Codec::Xz, &[0; 4], true, true),
        (Codec::Xz, &[0; 6], false, false),
        (Codec::Xz, &[0; 8192], true, true),
        (Codec::Xz, &[0; 8191], false, false),
        (Codec::Zstd, &[0x55], false, false),
        (Codec::Zstd, &[0], false, false),
        (Codec::Zstd, &[0; 8], false, false),
        (Codec::Bzip2, &[0x55], false, false),
        (Codec::Bzip2, &[0], true, false),
        (Codec::Bzip2, &[0; 10_000], true, false),
        (Codec::Bzip2, b"BZh9 and more text", false, false),
    ] {
        let packed = pack(codec, &data);
        for (next, allowed) in [(&[][..], at_end), (&packed, between)] {
            let what = format!("{codec}, {} bytes, {}", tail.len(), next.len());
            match unpack(codec, &[&packed, tail, next].concat()) {
                Ok(unpacked) => {
                    let members = if next.is_empty() { 1 } else { 2 };
                    assert!(allowed && unpacked == data.repeat(members), "{what}");
                }
                Err(DecodeError::TrailingGarbage { offset, .. }) => {
                    assert!(!allowed && offset == packed.len() as u64, "{what}");
                }
                Err(other) => panic!("{what}: {other}"),
            }
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
    for codec in Codec::SNIFFED {
        for other in Codec::SNIFFED.into_iter().filter(|other| *other != codec) {
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
        codec in prop::sample::select(Codec::SNIFFED.to_vec()),
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
        codec in prop::sample::select(Codec::SNIFFED.to_vec()),
    ) {
        let mut packed = pack(codec, &sample(600));
        packed.truncate(start);
        packed.extend_from_slice(&noise);
        if let Ok(unpacked) = unpack_with(codec, &packed, &[64], &DecodeLimits::default()) {
            prop_assert_eq!(unpacked, sample(600));
        }
    }
}
