//! Tests of the snappy framing format, with streams from another encoder and handmade ones.

use proptest::prelude::*;

use super::*;

const IDENTIFIER: &[u8] = b"\xff\x06\0\0sNaPpY";

fn chunk(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&[kind][..], &length[..3], body].concat()
}

fn checksum(data: &[u8]) -> [u8; 4] {
    let crc = crc32c::crc32c(data);
    (crc.rotate_right(15).wrapping_add(0xa282_ead8)).to_le_bytes()
}

fn stored(data: &[u8]) -> Vec<u8> {
    chunk(1, &[&checksum(data)[..], data].concat())
}

fn compressed(data: &[u8]) -> Vec<u8> {
    let packed = snap::raw::Encoder::new().compress_vec(data).unwrap();
    chunk(0, &[&checksum(data)[..], &packed].concat())
}

fn unpack_chunks(chunks: &[&[u8]]) -> Result<Vec<u8>, DecodeError> {
    let stream = [&[IDENTIFIER], chunks].concat().concat();
    let whole = unpack(Codec::Snappy, &stream);
    // The result must not depend on how the stream is split, or on whether the data of a chunk
    // fits into the rest of an output buffer.
    for sizes in [&[1][..], &[7, 70_000]] {
        assert_same(&whole, &unpack_with(Codec::Snappy, &stream, sizes, &DecodeLimits::default()));
    }
    whole
}

fn corrupt(chunks: &[&[u8]]) -> String {
    match unpack_chunks(chunks) {
        Err(DecodeError::Corrupt { codec: "snappy", reason, .. }) => reason,
        other => panic!("{:?}", other.map(|data| data.len())),
    }
}

#[test]
fn all_kinds_of_chunks_are_read() {
    let data = sample(65536);
    let odd = sample(1001);
    let all = unpack_chunks(&[
        &compressed(&data),
        &chunk(0xfe, &[0; 1000]),
        &stored(&odd),
        &chunk(0x80, b"skip me"),
        IDENTIFIER,
        &chunk(0xfd, b""),
        &compressed(&data),
        &stored(&data),
        &compressed(b""),
        &stored(b""),
        &compressed(&data),
        &compressed(&data),
    ]);
    assert!(
        all.unwrap() == [&data, &odd, &data, &data, &data, &data].map(|part| &part[..]).concat()
    );
}

#[test]
fn runs_of_zeros_of_any_length_are_decoded() {
    let zeros = [65536, 65536, 4096, 65536, 1, 1, 0, 65536, 65536].map(|length| vec![0; length]);
    let chunks = zeros.each_ref().map(|data| compressed(data));
    let mut parts: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    let data = stored(b"data");
    parts.insert(4, &data);
    let all = unpack_chunks(&parts).unwrap();
    let place = zeros[..4].concat().len();
    assert_eq!(&all[place..place + 4], b"data");
    assert_eq!(all.len(), zeros.concat().len() + 4);
    assert_eq!(all.iter().filter(|byte| **byte != 0).count(), 4);
}

#[test]
fn a_skipped_chunk_may_have_any_size() {
    let stream = [IDENTIFIER, &chunk(0x99, &vec![0xaa; 0xff_ffff]), &stored(b"x")].concat();
    assert_eq!(unpack(Codec::Snappy, &stream).unwrap(), b"x");
}

#[test]
fn malformed_chunks_are_corrupt() {
    for kind in [0x02, 0x40, 0x7f] {
        assert!(corrupt(&[&chunk(kind, b"")]).contains("reserved type"), "{kind:#x}");
    }
    assert!(corrupt(&[&chunk(0xff, b"sNaPpZ")]).contains("sNaPpY"));
    assert!(corrupt(&[&chunk(0xff, b"sNaPpYY")]).contains("7 bytes"));
    assert!(corrupt(&[&chunk(1, b"abc")]).contains("3 bytes"));
    assert!(corrupt(&[&stored(&sample(65537))]).contains("65541 bytes"));
    assert!(corrupt(&[&compressed(&vec![0; 65537])]).contains("65537 bytes"));
    let mut wrong = stored(b"data");
    wrong[5] ^= 1;
    assert!(corrupt(&[&wrong]).contains("checksum"));
    let mut wrong = compressed(&sample(1000));
    wrong[5] ^= 1;
    assert!(corrupt(&[&wrong]).contains("checksum"));
    // Compressed data whose length field, an element or the whole body is wrong.
    corrupt(&[&chunk(0, &[&checksum(b"")[..], b"\xff\xff\xff\xff\x0f"].concat())]);
    corrupt(&[&chunk(0, &[&checksum(b"")[..], b"\x0a\x00x"].concat())]);
    corrupt(&[&chunk(0, &checksum(b""))]);
}

#[test]
fn a_stream_without_its_identifier_is_refused() {
    for stream in [&stored(b"x")[..], b"\x1f\x8b\x08\0", &[0; 100], b"disk"] {
        assert!(matches!(unpack(Codec::Snappy, stream), Err(DecodeError::Corrupt { .. })));
    }
    assert_eq!(unpack(Codec::Snappy, IDENTIFIER).unwrap(), b"");
    assert_eq!(crate::decode::sniff_codec(IDENTIFIER), None);
}

#[test]
fn a_stream_cut_inside_a_chunk_is_truncated() {
    let data = sample(3000);
    let parts =
        [IDENTIFIER.to_vec(), compressed(&data), chunk(0xfe, &[0; 50]), stored(&data[..200])];
    let stream = parts.concat();
    let ends: Vec<usize> = parts
        .iter()
        .scan(0, |end, part| {
            *end += part.len();
            Some(*end)
        })
        .collect();
    for cut in 0..stream.len() {
        let outcome = unpack(Codec::Snappy, &stream[..cut]);
        if ends.contains(&cut) {
            outcome.unwrap();
        } else {
            let truncated = matches!(outcome, Err(DecodeError::Truncated { codec: "snappy", .. }));
            assert!(truncated, "after {cut} bytes");
        }
    }
}

proptest! {
    #[test]
    fn the_output_of_another_encoder_is_read(
        runs in prop::collection::vec((any::<u8>(), 0usize..100_000), 0..8),
        sizes in prop::collection::vec(1usize..100_000, 1..5),
    ) {
        let noise = sample(100_000);
        let data: Vec<u8> = runs
            .iter()
            .flat_map(|(byte, length)| match byte % 3 {
                0 => noise[..*length].to_vec(),
                _ => vec![byte % 3 - 1; *length],
            })
            .collect();
        let packed = pack(Codec::Snappy, &data);
        let packed = if packed.is_empty() { IDENTIFIER.to_vec() } else { packed };
        let read = unpack_with(Codec::Snappy, &packed, &sizes, &DecodeLimits::default()).unwrap();
        prop_assert!(read == data);
    }
}
