//! Images of which little is not zero, said in few bytes: blocks of 1 and 2 MiB, and tables at multiples of 64 KiB, would leave
//! the fuzzer nothing but zeros to play with.

/// Bytes of a record's offset and length.
const RECORD_BYTES: usize = 6;

/// An image from its length (three bytes, little-endian), and records of an offset (four bytes), a length (two) and as many
/// bytes. What lies behind the length, or behind `limit`, is left out.
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
