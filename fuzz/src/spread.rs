//! A compact form of images that are mostly zero. With blocks of 1 and 2 MiB and tables at
//! multiples of 64 KiB, the fuzzer would otherwise mutate little but zeros.

/// Size of a record's offset and length.
const RECORD_BYTES: usize = 6;

/// Builds an image from its length (three bytes, little-endian) and records of an offset (four
/// bytes), a length (two bytes) and that many bytes. Bytes beyond the length or beyond `limit` are
/// dropped.
pub fn read(input: &[u8], limit: usize) -> Option<Vec<u8>> {
    let (length, mut records) = input.split_first_chunk::<3>()?;
    let [low, middle, high] = *length;
    let length = usize::try_from(u32::from_le_bytes([low, middle, high, 0])).ok()?;
    let mut image = vec![0; length.min(limit)];
    while let Some((record, rest)) = records.split_first_chunk::<RECORD_BYTES>() {
        let [a, b, c, d, e, f] = *record;
        let offset = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
        let (bytes, rest) = rest.split_at(usize::from(u16::from_le_bytes([e, f])).min(rest.len()));
        if let Some(place) = image.get_mut(offset..) {
            let fits = bytes.len().min(place.len());
            place[..fits].copy_from_slice(&bytes[..fits]);
        }
        records = rest;
    }
    Some(image)
}
