//! Tests of xz streams with many blocks, decoded by one thread and by several (see `unpack_with`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use liblzma::stream::{Action, Check, Filters, LzmaOptions, Status, Stream};
use proptest::prelude::*;

use super::tools::run;
use super::*;

/// Returns a stream with one block for each of `parts`, without sizes in the block headers.
fn blocks(check: Check, parts: &[&[u8]]) -> Vec<u8> {
    encode(Stream::new_easy_encoder(0, check).unwrap(), parts)
}

fn encode(mut encoder: Stream, parts: &[&[u8]]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut finish = |input: &[u8], action| {
        let mut used = 0;
        loop {
            packed.reserve(1 << 16);
            let before = encoder.total_in();
            let status = encoder.process_vec(&input[used..], &mut packed, action).unwrap();
            used += usize::try_from(encoder.total_in() - before).unwrap();
            if status == Status::StreamEnd {
                break;
            }
        }
    };
    for part in parts {
        finish(part, Action::FullFlush);
    }
    finish(&[], Action::Finish);
    packed
}

/// Returns a stream with the sizes in its block headers, as the multi-threaded encoder writes it.
fn sized_blocks(data: &[u8], block_size: usize) -> Vec<u8> {
    run(&format!("xz -0 -T2 --block-size={block_size} -c"), data)
}

/// Returns streams of three small blocks, one without and one with sizes in the headers, for the
/// tests that damage them.
fn small() -> [(Vec<u8>, Vec<u8>); 2] {
    let data = sample(300);
    let parts: Vec<&[u8]> = data.chunks(130).collect();
    [blocks(Check::Crc32, &parts), sized_blocks(&data, 130)].map(|packed| (packed, data.clone()))
}

#[test]
#[ignore = "slow: 7 s of CPU time"]
fn blocks_of_all_sizes_are_read() {
    let data = sample(3_000_000);
    for size in [1000, 4096, 99_991, CHUNK_BYTES, 1 << 20] {
        assert!(unpack(Codec::Xz, &sized_blocks(&data, size)).unwrap() == data, "{size}");
        let parts: Vec<&[u8]> = data.chunks(size).collect();
        for check in [Check::None, Check::Crc32, Check::Crc64, Check::Sha256] {
            assert!(unpack(Codec::Xz, &blocks(check, &parts)).unwrap() == data, "{size}");
        }
    }
}

#[test]
fn thousands_of_blocks_are_read() {
    let data = sample(5_000 << 10);
    let parts: Vec<&[u8]> = data.chunks(1 << 10).collect();
    assert!(unpack(Codec::Xz, &blocks(Check::Crc32, &parts)).unwrap() == data);
}

#[test]
#[ignore = "tools: xz"]
fn streams_of_different_kinds_follow_each_other() {
    let (one, two) = (sample(400_000), sample(70_000));
    let empty = blocks(Check::Sha256, &[]);
    let packed = [
        blocks(Check::Crc64, &[&one, &two]),
        vec![0; 4],
        empty,
        sized_blocks(&two, 10_000),
        blocks(Check::None, &[b"", &one[..1]]),
        vec![0; 12],
        pack(Codec::Xz, &one),
        vec![0; 8],
    ]
    .concat();
    let data = [&one[..], &two, &two, &one[..1], &one].concat();
    assert!(unpack(Codec::Xz, &packed).unwrap() == data);
}

#[test]
fn filters_and_dictionaries_of_all_kinds_are_read() {
    let data = sample(500_000);
    let mut options = LzmaOptions::new_preset(0).unwrap();
    for dictionary in [4096, 1 << 20, 16 << 20, 48 << 20] {
        options.dict_size(dictionary);
        let mut plain = Filters::new();
        plain.lzma2(&options);
        let mut chain = Filters::new();
        chain.x86().delta_properties(&[3]).unwrap().lzma2(&options);
        for filters in [plain, chain] {
            let encoder = Stream::new_stream_encoder(&filters, Check::None).unwrap();
            let packed = encode(encoder, &[&data, &data[..7], &data]);
            let unpacked = unpack(Codec::Xz, &packed).unwrap();
            assert!(unpacked == [&data[..], &data[..7], &data].concat(), "{dictionary}");
        }
    }
}

#[test]
#[ignore = "slow: waits 5 s"]
fn a_changed_byte_in_any_block_is_detected() {
    for (packed, data) in small() {
        for place in 0..packed.len() {
            for change in [0x01, 0x80, 0xFF] {
                let mut damaged = packed.clone();
                damaged[place] ^= change;
                if let Ok(unpacked) = unpack(Codec::Xz, &damaged) {
                    panic!("byte {place} ^ {change:#x} is accepted: {}", unpacked == data);
                }
            }
        }
    }
}

#[test]
#[ignore = "tools: xz"]
fn a_truncation_in_any_block_is_detected() {
    for (packed, _) in small() {
        for end in 0..packed.len() {
            match unpack(Codec::Xz, &packed[..end]) {
                Err(DecodeError::Truncated { offset, .. }) => assert_eq!(offset, end as u64),
                other => panic!("cut at {end}: {other:?}"),
            }
        }
    }
}

#[test]
fn the_first_of_several_errors_is_reported() {
    let parts = [sample(2_000_000), sample(1000), sample(1000)];
    let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    let mut packed = blocks(Check::Crc32, &parts);
    // Behind the first block are an index of 16 bytes and a footer of 12.
    let first_block = blocks(Check::Crc32, &parts[..1]).len() - 28;
    // One error at the end of the slow first block, and three behind it, which other threads reach
    // much earlier.
    for place in [first_block - 9, first_block + 400, first_block + 900, packed.len() - 5] {
        packed[place] ^= 0x10;
    }
    for threads in [1, 4] {
        match decode_error(read_all(new_decoder(
            Codec::Xz,
            pieces(&packed, &[4096]),
            &limits(threads),
        ))) {
            Err(DecodeError::Corrupt { offset, .. }) => {
                assert!(offset <= first_block as u64, "{offset}")
            }
            other => panic!("{:?}", other.map(|unpacked| unpacked.len())),
        }
    }
}

#[test]
fn an_index_that_lists_other_blocks_is_refused() {
    let data = sample(300);
    let (one, two) = (&data[..100], &data[100..]);
    let right = blocks(Check::Crc32, &[one, two]);
    let swapped = blocks(Check::Crc32, &[two, one]);
    assert_eq!(right.len(), swapped.len());
    // An index with two such records has 12 bytes, like the footer.
    let split = right.len() - 24;
    assert!(right[split] == 0 && right[split..] != swapped[split..]);
    let spliced = [&right[..split], &swapped[split..]].concat();
    let outcome = unpack(Codec::Xz, &spliced);
    assert!(matches!(outcome, Err(DecodeError::Corrupt { .. })), "{outcome:?}");
}

#[test]
fn a_decoder_can_be_dropped_at_any_time() {
    let data = sample(1 << 20);
    let stream = Bytes::from(blocks(Check::Crc32, &[&data]));
    for chunks in [0, 1, 2, 5, 50] {
        for any_order in [false, true] {
            let pulled = Arc::new(AtomicUsize::new(0));
            let (block, counted) = (stream.clone(), Arc::clone(&pulled));
            // An endless source that counts the bytes pulled from it.
            let source = Scripted(move || {
                counted.fetch_add(block.len(), Ordering::Relaxed);
                Ok(Some(block.clone()))
            });
            let mut decoder = new_decoder(Codec::Xz, Box::new(source), &limits(3));
            let mut received = 0;
            for _ in 0..chunks {
                let chunk = match any_order {
                    true => decoder.next_placed(received).unwrap().unwrap().1,
                    false => decoder.next_chunk().unwrap().unwrap(),
                };
                received += chunk.len() as u64;
            }
            drop(decoder);
            let pulled = pulled.load(Ordering::Relaxed) as u64;
            assert!(pulled < received + (12 << 20), "{pulled} bytes were pulled");
        }
    }
}

#[test]
#[ignore = "tools: xz"]
fn an_invalid_chunk_header_is_corrupt_even_where_the_stream_is_cut() {
    let [(packed, _), _] = small();
    // Another chunk header with properties that LZMA2 does not allow (the fifth byte); the stream
    // ends right after it.
    let cut = [&packed[..101], &[10, 3, 49, 0, 0, 0, 0, 0, 0, 234]].concat();
    let outcome = unpack_with(Codec::Xz, &cut, &[64], &DecodeLimits::default());
    assert!(matches!(outcome, Err(DecodeError::Corrupt { .. })), "{outcome:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_blocks_are_read_whatever_the_sizes_of_the_input_chunks(
        lengths in prop::collection::vec(0_usize..400_000, 0..6),
        sizes in prop::collection::vec(1_usize..200_000, 1..10),
    ) {
        let data = sample(lengths.iter().sum());
        let mut rest = &data[..];
        let parts: Vec<&[u8]> = lengths
            .iter()
            .map(|length| {
                let (part, left) = rest.split_at(*length);
                rest = left;
                part
            })
            .collect();
        let packed = blocks(Check::Crc64, &parts);
        prop_assert!(unpack_with(Codec::Xz, &packed, &sizes, &DecodeLimits::default()).unwrap() == data);
    }

    #[test]
    #[ignore = "tools: xz"]
    fn arbitrary_bytes_between_blocks_do_not_hang_the_decoder(
        start in 0_usize..600,
        noise in prop::collection::vec(any::<u8>(), 0..500),
        skip in 0_usize..600,
    ) {
        let [(packed, data), _] = small();
        let kept = &packed[skip.min(packed.len())..];
        let damaged = [&packed[..start.min(packed.len())], &noise, kept].concat();
        if let Ok(unpacked) = unpack_with(Codec::Xz, &damaged, &[64], &DecodeLimits::default()) {
            prop_assert!(unpacked == data || unpacked == data.repeat(2));
        }
    }
}
