//! Compares the index of a stream with the blocks that were read.

use flate2::Crc;
use sha2::{Digest, Sha256};
use stream::cursor::ChunkCursor;
use stream::error::Error;

use super::super::decoder::{EngineError, decode_error, truncated_error};
use super::engine::XzEngine;
use super::framing::{MAX_VLI_BYTES, read_vli};

/// A digest of the sizes of all blocks of a stream. It takes constant memory, because a hostile
/// file can have millions of blocks. Two lists of blocks are equal if their lengths and digests
/// are equal.
#[derive(Default)]
pub(super) struct BlockListDigest {
    count: u64,
    // A cryptographic hash is used, since a hostile file could match a CRC. liblzma compares
    // indexes in the same way (`index_hash.c`).
    digest: Sha256,
}

impl BlockListDigest {
    /// Adds a block: its size without padding (.xz §4.3), and its decoded size.
    pub(super) fn add_block(&mut self, unpadded: u64, decoded: u64) {
        self.count += 1;
        self.digest.update(unpadded.to_le_bytes());
        self.digest.update(decoded.to_le_bytes());
    }
}

/// Reads the index at the cursor (.xz §4), which must list the blocks `seen`. Returns its size in
/// bytes.
pub(super) fn verify_index(input: &mut ChunkCursor, seen: BlockListDigest) -> Result<u64, Error> {
    let mut index = XzIndexReader { input, crc: Crc::new(), bytes: 0 };
    let _indicator = index.take_bytes::<1>()?;
    let count = index.take_integer()?;
    if count != seen.count {
        let seen = seen.count;
        return index.fail(&format!("its index lists {count} blocks, the stream has {seen}"));
    }
    let mut listed = BlockListDigest::default();
    for _ in 0..count {
        listed.add_block(index.take_integer()?, index.take_integer()?);
    }
    if listed.digest.finalize() != seen.digest.finalize() {
        return index.fail("the sizes in its index do not match its blocks");
    }
    while !index.bytes.is_multiple_of(4) {
        if index.take_bytes()? != [0] {
            return index.fail("the padding of its index is not zero");
        }
    }
    // The CRC32 (§4.5) covers everything before it.
    let calculated = index.crc.sum();
    if index.take_bytes()? != calculated.to_le_bytes() {
        return index.fail("the CRC32 of its index does not match");
    }
    Ok(index.bytes)
}

/// Reads the fields of an index.
struct XzIndexReader<'i> {
    input: &'i mut ChunkCursor,
    /// CRC32 and number of the bytes so far.
    crc: Crc,
    bytes: u64,
}

impl XzIndexReader<'_> {
    fn take_bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let Some(bytes) = self.input.peek_bytes(N)?.first_chunk().copied() else {
            return Err(truncated_error::<XzEngine>(self.input));
        };
        self.crc.update(&bytes);
        self.bytes += N as u64;
        self.input.consume(N);
        Ok(bytes)
    }

    fn take_integer(&mut self) -> Result<u64, Error> {
        let head = self.input.peek_bytes(MAX_VLI_BYTES)?;
        let mut rest = head;
        let value = read_vli(&mut rest);
        let used = head.len() - rest.len();
        self.crc.update(&head[..used]);
        self.bytes += used as u64;
        self.input.consume(used);
        match value.map_err(|fault| decode_error::<XzEngine>(self.input, fault))? {
            Some(value) => Ok(value),
            None => Err(truncated_error::<XzEngine>(self.input)),
        }
    }

    fn fail<T>(&self, reason: &str) -> Result<T, Error> {
        Err(decode_error::<XzEngine>(self.input, EngineError::Corrupt(reason.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use stream::error::DecodeError;

    use super::super::super::tests::pieces;
    use super::*;

    /// Returns an index with these fields, padded and with its CRC32.
    fn sealed(fields: &[u8]) -> Vec<u8> {
        let mut bytes = [&[0][..], fields].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let mut crc = Crc::new();
        crc.update(&bytes);
        bytes.extend(crc.sum().to_le_bytes());
        bytes
    }

    /// The fields of an index of two blocks, of 1000 and 60 bytes that decode to 300 and 7.
    const TWO: [u8; 7] = [2, 0xE8, 7, 0xAC, 2, 60, 7];

    /// Reads an index that must list the two blocks.
    fn read(bytes: &[u8]) -> Result<u64, Error> {
        let mut seen = BlockListDigest::default();
        seen.add_block(1000, 300);
        seen.add_block(60, 7);
        verify_index(&mut ChunkCursor::new(pieces(bytes, &[usize::MAX])), seen)
    }

    #[test]
    fn an_index_of_the_right_blocks_is_complete() {
        let bytes = sealed(&TWO);
        assert_eq!(read(&bytes).unwrap(), bytes.len() as u64);
        for end in 0..bytes.len() {
            let outcome = read(&bytes[..end]);
            assert!(matches!(outcome, Err(Error::Decode(DecodeError::Truncated { .. }))), "{end}");
        }
    }

    #[test]
    fn an_index_of_other_blocks_is_refused() {
        for (fields, reason) in [
            (&[1, 0xE8, 7, 0xAC, 2][..], "its index lists 1 blocks, the stream has 2"),
            (&[3, 0xE8, 7, 0xAC, 2, 60, 7, 60, 7], "its index lists 3 blocks, the stream has 2"),
            (&[2, 60, 7, 0xE8, 7, 0xAC, 2], "the sizes in its index"),
            (&[2, 0xE8, 7, 0xAC, 2, 60, 8], "the sizes in its index"),
            (&[2, 0xE9, 7, 0xAC, 2, 60, 7], "the sizes in its index"),
        ] {
            let error = read(&sealed(fields)).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn any_changed_bit_in_an_index_is_detected() {
        let bytes = sealed(&TWO);
        for bit in 8..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit}");
        }
    }
}
