//! Tests of nested layers, and of what passes through them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stream::error::{SourceError, SourceErrorKind};

use super::super::{DecodedStream, MAX_LAYERS, open_layers};
use super::*;

fn open_all(packed: &[u8], size: usize) -> Result<(Vec<Codec>, Vec<u8>), Error> {
    let open_with = |threads| open_layers(pieces(packed, &[size]), &limits(threads));
    let DecodedStream { layers, stream } = open_with(1)?;
    let data = read_all(stream)?;
    assert!(read_all(open_with(2)?.stream)? == data);
    assert!(read_placed(open_with(3)?.stream)? == data);
    Ok((layers, data))
}

fn wrap(layers: &[Codec], data: &[u8]) -> Vec<u8> {
    layers.iter().rev().fold(data.to_vec(), |packed, codec| pack(*codec, &packed))
}

#[test]
fn any_two_layers_are_recognised_by_content() {
    let image = [b"QFI\xFB\0\0\0\x03", &sample(5000)[..]].concat();
    for outer in Codec::SNIFFED {
        for inner in Codec::SNIFFED {
            let packed = wrap(&[outer, inner], &image);
            for size in [1, 4096] {
                let (layers, data) = open_all(&packed, size).unwrap();
                assert_eq!(layers, [outer, inner]);
                assert!(data == image, "{outer} around {inner} in chunks of {size}");
            }
        }
    }
}

#[test]
fn uncompressed_data_passes_unchanged() {
    for data in [&b""[..], b"B", b"\x1F\x8B", &sample(5000)] {
        for size in [1, 4096] {
            let (layers, read) = open_all(data, size).unwrap();
            assert!(layers.is_empty() && read == data);
        }
    }
}

#[test]
fn an_empty_payload_ends_the_stream() {
    for codec in Codec::SNIFFED {
        assert_eq!(open_all(&pack(codec, b""), 1).unwrap(), (vec![codec], vec![]));
    }
}

#[test]
fn more_layers_than_the_limit_are_refused() {
    let allowed = [Codec::Gzip, Codec::Zstd, Codec::Gzip, Codec::Xz];
    assert_eq!(allowed.len(), MAX_LAYERS);
    let (layers, data) = open_all(&wrap(&allowed, b"disk"), 4096).unwrap();
    assert_eq!((&layers[..], &data[..]), (&allowed[..], &b"disk"[..]));

    let one_more = pack(Codec::Gzip, &wrap(&allowed, b"disk"));
    match open_all(&one_more, 4096) {
        Err(Error::Decode(DecodeError::TooDeep { limit })) => assert_eq!(limit, MAX_LAYERS),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unsupported_codec_inside_a_layer_is_refused() {
    let packed = pack(Codec::Gzip, b"7z\xBC\xAF\x27\x1C\0\x04 and so on");
    let outcome = open_all(&packed, 4096);
    assert!(matches!(outcome, Err(Error::Decode(DecodeError::Unsupported("7z")))));
}

#[test]
fn an_error_names_the_layer_that_is_damaged() {
    let mut inner = pack(Codec::Bzip2, &sample(5000));
    inner.truncate(1000);
    match open_all(&pack(Codec::Gzip, &inner), 4096) {
        Err(Error::Decode(DecodeError::Truncated { codec, offset })) => {
            assert_eq!((codec, offset), ("bzip2", 1000));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_of_the_source_are_passed_on_unchanged() {
    for (outer, inner) in [(Codec::Gzip, Codec::Xz), (Codec::Zstd, Codec::Bzip2)] {
        let packed = wrap(&[outer, inner], &sample(200_000));
        let head = Bytes::copy_from_slice(&packed[..packed.len() / 2]);
        for (stopped, threads) in [(true, 1), (false, 1), (true, 3), (false, 3)] {
            let mut head = Some(head.clone());
            let source = Scripted(move || match head.take() {
                Some(head) => Ok(Some(head)),
                None if stopped => Err(Error::Stopped),
                None => Err(SourceError::new(SourceErrorKind::Stalled, "no byte").into()),
            });
            let outcome = open_layers(Box::new(source), &limits(threads))
                .and_then(|found| read_all(found.stream));
            match outcome {
                Err(Error::Stopped) => assert!(stopped),
                Err(Error::Source(error)) => {
                    assert!(!stopped && error.kind() == SourceErrorKind::Stalled);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_decompression_bomb_is_read_no_further_than_needed() {
    const PART: usize = 16 << 20;
    const WANTED: usize = 10 << 20;
    // 4 GiB of zeros in 256 members, compressed once more.
    let packed = pack(Codec::Gzip, &pack(Codec::Gzip, &vec![0; PART]).repeat(256));
    assert!(packed.len() < 200_000, "{} bytes", packed.len());

    let pulled = Arc::new(AtomicUsize::new(0));
    let (mut inner, counted) = (pieces(&packed, &[512]), Arc::clone(&pulled));
    let source = Scripted(move || {
        let chunk = inner.next_chunk()?;
        counted.fetch_add(chunk.as_ref().map_or(0, Bytes::len), Ordering::Relaxed);
        Ok(chunk)
    });
    let DecodedStream { layers, mut stream } =
        open_layers(Box::new(source), &DecodeLimits::default()).unwrap();
    assert_eq!(layers, [Codec::Gzip; 2]);
    let (mut read, mut buffers) = (0, BTreeSet::new());
    while read < WANTED {
        let chunk = stream.next_chunk().unwrap().unwrap();
        assert!(chunk.iter().all(|&byte| byte == 0));
        buffers.insert(chunk.as_ptr());
        read += chunk.len();
    }
    drop(stream);
    assert!(buffers.len() <= 2, "{} buffers instead of the same one again", buffers.len());
    let pulled = pulled.load(Ordering::Relaxed);
    assert!(pulled < packed.len(), "all {pulled} bytes were pulled");
}
