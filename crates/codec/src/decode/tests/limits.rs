//! Tests of the limits on a stack of layers: memory, and input that decodes to nothing.

use stream::memory::{MemoryBudget, MemoryLimitError};

use super::super::open_layers;
use super::super::stack::open_clone;
use super::*;

/// Returns a source of `first` followed by `then` for ever, many copies in each chunk.
fn endless(first: &[u8], then: &[u8]) -> Box<dyn ChunkStream> {
    let mut first = Some(Bytes::copy_from_slice(first)).filter(|first| !first.is_empty());
    let then = Bytes::from(then.repeat(10_000 / then.len()));
    Box::new(Scripted(move || Ok(Some(first.take().unwrap_or_else(|| then.clone())))))
}

/// Decodes all layers.
fn unpack_all(source: Box<dyn ChunkStream>, limits: &DecodeLimits) -> Result<Vec<u8>, Error> {
    open_layers(source, limits).and_then(|decoded| read_all(decoded.stream))
}

const SPARE: u64 = 1 << 20;

fn impatient() -> DecodeLimits {
    DecodeLimits { spare_bytes: SPARE, ..limits(2) }
}

fn assert_barren(what: &str, outcome: Result<Vec<u8>, Error>, most: u64) {
    match decode_error(outcome) {
        Err(DecodeError::Barren { consumed, decoded, .. }) => {
            assert!(consumed <= most + 4 * decoded, "{what}: {consumed}");
        }
        Ok(bytes) => panic!("{what}: {} bytes", bytes.len()),
        Err(other) => panic!("{what}: {other}"),
    }
}

/// A gzip header whose file name does not end.
const NAMED: &[u8] = b"\x1F\x8B\x08\x08\0\0\0\0\0\x03";
/// A gzip header, to be followed by empty stored blocks, none of which is the last (RFC 1951
/// §3.2.4).
const STORED: &[u8] = b"\x1F\x8B\x08\0\0\0\0\0\0\x03";
const EMPTY_BLOCK: &[u8] = b"\0\0\0\xFF\xFF";
/// A zstd frame (RFC 8878 §3.1.1) with one block that repeats a zero byte zero times.
const NO_ZEROS: &[u8] = b"\x28\xB5\x2F\xFD\0\x38\x03\0\0\0";
/// A skippable zstd frame (RFC 8878 §3.1.2).
const SKIPPABLE: &[u8] = b"\x50\x2A\x4D\x18\x04\0\0\0void";

#[test]
fn streams_that_decode_to_nothing_are_refused() {
    let nothing = |codec| pack(codec, b"");
    for (what, first, then) in [
        ("empty gzip members", Vec::new(), nothing(Codec::Gzip)),
        ("empty bzip2 streams", Vec::new(), nothing(Codec::Bzip2)),
        ("empty xz streams", Vec::new(), nothing(Codec::Xz)),
        ("empty zstd frames", Vec::new(), nothing(Codec::Zstd)),
        ("zstd frames of no zeros", Vec::new(), NO_ZEROS.to_vec()),
        ("skippable frames", pack(Codec::Zstd, b"x"), SKIPPABLE.to_vec()),
        ("padding of xz", pack(Codec::Xz, b"x"), vec![0; 4]),
        ("padding of gzip", pack(Codec::Gzip, b"x"), vec![0]),
        ("a name without end", NAMED.to_vec(), b"name".to_vec()),
        ("empty blocks", STORED.to_vec(), EMPTY_BLOCK.to_vec()),
    ] {
        let outcome = unpack_all(endless(&first, &then), &impatient());
        assert_barren(what, outcome, SPARE + 20_000);
    }
    // Padding chunks (framing_format.txt §4.6).
    let snappy = pack(Codec::Snappy, b"x");
    let padding = endless(&snappy, b"\xFE\x04\0\0void");
    let outcome = read_all(open_clone(Codec::Snappy, padding, &impatient()));
    assert_barren("padding of snappy", outcome, SPARE + 20_000);
}

#[test]
fn an_outer_layer_cannot_produce_endless_padding_for_an_inner_one() {
    let empty = pack(Codec::Gzip, b"");
    let inner = empty.repeat(64 << 20 >> 5);
    let packed = pack(Codec::Zstd, &inner);
    assert!((packed.len() as u64) < SPARE, "the outer layer alone must stay within the limit");
    let outcome = unpack_all(pieces(&packed, &[4096]), &impatient());
    // The chunks between two layers are large, so more is read before the limit is noticed.
    assert_barren("gzip in zstd", outcome, SPARE + (256 << 10));
}

#[test]
fn too_little_content_for_much_input_is_refused() {
    // One byte of content in about a thousand bytes of input.
    let member = [pack(Codec::Gzip, b"x"), pack(Codec::Gzip, b"").repeat(50)].concat();
    let outcome = unpack_all(endless(&[], &member), &impatient());
    assert_barren("one byte in a thousand", outcome, SPARE + 20_000);
}

#[test]
fn indexes_and_padding_of_real_streams_are_accepted() {
    let data = sample(3 << 20);
    for codec in Codec::SNIFFED {
        let stream = pack(codec, &data);
        let trailing: &[u8] = match codec {
            Codec::Gzip | Codec::Xz => &[0; 1 << 20],
            // A skippable frame behind the data, like the index of the seekable format.
            Codec::Zstd => &[&b"\x5E\x2A\x4D\x18\0\0\x10\0"[..], &[7; 1 << 20]].concat(),
            _ => &[],
        };
        let packed = [&stream[..], trailing].concat();
        // The threads that decode xz read ahead, so this limit is larger.
        let limits = DecodeLimits { spare_bytes: 8 << 20, ..limits(2) };
        assert!(unpack_all(pieces(&packed, &[100_000]), &limits).unwrap() == data, "{codec}");
    }
}

fn with_window(log: u32, data: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(log).unwrap();
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn the_windows_of_all_layers_share_one_budget() {
    const MIB: u64 = 1 << 20;
    // Each layer needs a window of 4 MiB and the state of its decoder.
    let each = 5 * MIB;
    let mut packed = b"content".to_vec();
    for _ in 0..3 {
        // The window frame and the rest are separate frames, with frames between them that need no
        // window. The decoder keeps its window for all of them.
        let (first, rest) = packed.split_at(packed.len() / 2);
        packed = [with_window(22, first), SKIPPABLE.repeat(100), pack(Codec::Zstd, rest)].concat();
    }
    let unpack_in = |bytes| {
        let limits = DecodeLimits { memory: MemoryBudget::new(bytes), ..limits(1) };
        decode_error(unpack_all(pieces(&packed, &[7]), &limits))
    };
    assert_eq!(unpack_in(3 * each).unwrap(), b"content");
    match unpack_in(3 * each - 1) {
        Err(DecodeError::Memory { codec, exceeded }) => {
            let expected =
                MemoryLimitError { needed: each, available: each - 1, limit: 3 * each - 1 };
            assert_eq!((codec, exceeded), ("zstd", expected));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_layer_releases_its_memory() {
    let data = sample(100_000);
    for codec in Codec::SNIFFED {
        let packed = pack(codec, &data);
        let memory = MemoryBudget::new(64 << 20);
        for threads in [1, 3] {
            let limits = DecodeLimits { memory: memory.clone(), ..limits(threads) };
            assert!(unpack_all(pieces(&packed, &[4096]), &limits).unwrap() == data, "{codec}");
            assert_eq!(
                memory.empty_grant().available_bytes(),
                64 << 20,
                "{codec} with {threads} threads"
            );
        }
    }
}
