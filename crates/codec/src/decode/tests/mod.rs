//! Tests of all codecs against the encoders of their own crates and against command-line tools.

mod blocks;
mod encoders;
mod limits;
mod members;
mod snappy;
mod stack;
mod tools;
mod zeros;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::num::NonZeroUsize;

use bytes::Bytes;
use stream::buffer::CHUNK_BYTES;
use stream::chunks::ChunkStream;
use stream::error::{DecodeError, Error};

use super::{Codec, DecodeLimits, new_decoder};
use crate::encode::{CompressionRule, Encoding};

/// The encoding of zstd that programs use by default.
const NETWORK: Encoding = Encoding::Zstd(CompressionRule::IfSlow);

/// A source whose chunks a function returns.
struct Scripted<F>(F);

impl<F: FnMut() -> Result<Option<Bytes>, Error> + Send> ChunkStream for Scripted<F> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        (self.0)()
    }
}

/// Returns `bytes` in chunks of the given sizes, which are repeated in turn.
pub(super) fn pieces(bytes: &[u8], sizes: &[usize]) -> Box<dyn ChunkStream> {
    let (mut bytes, mut sizes) =
        (Bytes::copy_from_slice(bytes), Vec::from(sizes).into_iter().cycle());
    Box::new(Scripted(move || {
        let size = sizes.next().unwrap().min(bytes.len());
        Ok((size > 0).then(|| bytes.split_to(size)))
    }))
}

/// Returns the default limits with `threads` threads.
fn limits(threads: usize) -> DecodeLimits {
    DecodeLimits { threads: NonZeroUsize::new(threads).unwrap(), ..DecodeLimits::default() }
}

fn read_all(mut stream: impl ChunkStream) -> Result<Vec<u8>, Error> {
    let mut all = Vec::new();
    while let Some(chunk) = stream.next_chunk()? {
        assert!(!chunk.is_empty() && chunk.len() <= CHUNK_BYTES);
        all.extend_from_slice(&chunk);
    }
    assert!(matches!(stream.next_chunk(), Ok(None)), "a stream that ended stays at its end");
    Ok(all)
}

/// Reads a stream whose chunks may come in any order, and returns its bytes in order.
fn read_placed(mut stream: impl ChunkStream) -> Result<Vec<u8>, Error> {
    let mut placed = BTreeMap::new();
    let mut received = 0;
    while let Some((offset, chunk)) = stream.next_placed(received)? {
        assert!(!chunk.is_empty() && chunk.len() <= CHUNK_BYTES);
        received += chunk.len() as u64;
        assert!(placed.insert(offset, chunk).is_none(), "two chunks at {offset}");
    }
    assert!(
        matches!(stream.next_placed(received), Ok(None)),
        "a stream that ended stays at its end"
    );
    let mut all = Vec::new();
    for (offset, chunk) in placed {
        assert_eq!(offset, all.len() as u64);
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

/// Decodes `packed` in every way that `codec` supports, and checks that the results agree.
fn unpack_with(
    codec: Codec,
    packed: &[u8],
    sizes: &[usize],
    given: &DecodeLimits,
) -> Result<Vec<u8>, DecodeError> {
    let decoder = |threads| {
        let DecodeLimits { threads, .. } = limits(threads);
        let limits = DecodeLimits { threads, ..given.clone() };
        new_decoder(codec, pieces(packed, sizes), &limits)
    };
    let alone = decode_error(read_all(decoder(1)));
    if codec == Codec::Xz {
        assert_same(&alone, &decode_error(read_all(decoder(2))));
        assert_same(&alone, &decode_error(read_placed(decoder(3))));
    }
    alone
}

fn decode_error(outcome: Result<Vec<u8>, Error>) -> Result<Vec<u8>, DecodeError> {
    outcome.map_err(|error| match error {
        Error::Decode(error) => error,
        other => panic!("not a decode error: {other}"),
    })
}

/// Checks that two decoders agree. They may differ only in where and why exactly a stream is
/// corrupt, and in how much memory is missing.
fn assert_same(one: &Result<Vec<u8>, DecodeError>, other: &Result<Vec<u8>, DecodeError>) {
    match (one, other) {
        (Err(DecodeError::Corrupt { .. }), Err(DecodeError::Corrupt { .. }))
        | (Err(DecodeError::Memory { .. }), Err(DecodeError::Memory { .. })) => {}
        (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
        (Ok(one), Ok(other)) => assert!(one == other, "{} bytes, {} bytes", one.len(), other.len()),
        (Ok(one), Err(other)) => panic!("{} bytes, {other}", one.len()),
        (Err(one), Ok(other)) => panic!("{one}, {} bytes", other.len()),
    }
}

fn unpack(codec: Codec, packed: &[u8]) -> Result<Vec<u8>, DecodeError> {
    unpack_with(codec, packed, &[4096], &DecodeLimits::default())
}

/// Returns `data` as one member of `codec`, with all the checksums that the format offers.
fn pack(codec: Codec, data: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let read = match codec {
        Codec::Gzip => flate2::read::GzEncoder::new(data, flate2::Compression::default())
            .read_to_end(&mut packed),
        Codec::Xz => liblzma::read::XzEncoder::new(data, 1).read_to_end(&mut packed),
        Codec::Zstd => {
            let mut encoder = zstd::stream::read::Encoder::new(data, 1).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.read_to_end(&mut packed)
        }
        Codec::Bzip2 => {
            bzip2::read::BzEncoder::new(data, bzip2::Compression::fast()).read_to_end(&mut packed)
        }
        Codec::Snappy => snap::read::FrameEncoder::new(data).read_to_end(&mut packed),
    };
    read.unwrap();
    packed
}

/// Returns the same pseudo-random bytes every time, about half of them predictable (an LCG with
/// Knuth's constants).
fn sample(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    (0..length)
        .map(|index| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if index / 64 % 2 == 0 { state.to_be_bytes()[0] } else { b'.' }
        })
        .collect()
}
