//! Compares the index of a stream with the blocks that were read.

use flate2::Crc;
use sha2::{Digest, Sha256};

use super::super::decoder::{EngineError, advance_input};
use super::framing::{MAX_VLI_BYTES, fail_corrupt, read_vli};

/// Number of bytes that [`XzIndexReader::read_field`] needs, unless the stream ends earlier. A
/// record consists of two integers.
pub(super) const RECORD_BYTES: usize = 2 * MAX_VLI_BYTES;

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

/// Reads an index (.xz §4) after its indicator byte.
pub(super) struct XzIndexReader {
    seen: BlockListDigest,
    listed: BlockListDigest,
    crc: Crc,
    bytes: u64,
    place: IndexPosition,
}

enum IndexPosition {
    Count,
    Records,
    Padding,
    Checksum,
}

/// Progress in reading an index.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IndexProgress {
    /// The index has more fields.
    More,
    /// The index is complete and matches the blocks.
    Complete,
    /// The input ends within the index.
    Short,
}

impl XzIndexReader {
    /// Creates a reader for an index that must list the blocks `seen`.
    pub(super) fn new(seen: BlockListDigest) -> Self {
        Self {
            seen,
            listed: BlockListDigest::default(),
            crc: Crc::new(),
            bytes: 0,
            place: IndexPosition::Count,
        }
    }

    /// Returns the number of bytes that were read, including the indicator and the CRC32.
    pub(super) fn consumed_bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the indicator byte, which the caller has already checked.
    pub(super) fn add_indicator(&mut self, byte: u8) {
        self.count_bytes(&[byte]);
    }

    /// Reads one field from the front of `head` and removes the consumed bytes from it.
    pub(super) fn read_field(&mut self, head: &mut &[u8]) -> Result<IndexProgress, EngineError> {
        let before = *head;
        let progress = match self.place {
            IndexPosition::Count => self.record_count(head),
            IndexPosition::Records if self.listed.count < self.seen.count => self.read_record(head),
            IndexPosition::Records => self.end_of_records(),
            IndexPosition::Padding => self.read_padding(head),
            IndexPosition::Checksum => return self.read_checksum(head),
        }?;
        self.count_bytes(&before[..before.len() - head.len()]);
        Ok(progress)
    }

    fn count_bytes(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Reads the number of records (§4.2).
    fn record_count(&mut self, head: &mut &[u8]) -> Result<IndexProgress, EngineError> {
        let Some(count) = read_vli(head)? else {
            return Ok(IndexProgress::Short);
        };
        if count != self.seen.count {
            let seen = self.seen.count;
            return fail_corrupt(&format!("its index lists {count} blocks, the stream has {seen}"));
        }
        self.place = IndexPosition::Records;
        Ok(IndexProgress::More)
    }

    /// Reads a record (§4.3).
    fn read_record(&mut self, head: &mut &[u8]) -> Result<IndexProgress, EngineError> {
        let mut rest = *head;
        let (Some(unpadded), Some(decoded)) = (read_vli(&mut rest)?, read_vli(&mut rest)?) else {
            return Ok(IndexProgress::Short);
        };
        *head = rest;
        self.listed.add_block(unpadded, decoded);
        Ok(IndexProgress::More)
    }

    fn end_of_records(&mut self) -> Result<IndexProgress, EngineError> {
        if self.listed.digest.clone().finalize() != self.seen.digest.clone().finalize() {
            return fail_corrupt("the sizes in its index do not match its blocks");
        }
        self.place = IndexPosition::Padding;
        Ok(IndexProgress::More)
    }

    /// Reads the padding (§4.4).
    fn read_padding(&mut self, head: &mut &[u8]) -> Result<IndexProgress, EngineError> {
        let zeros = self.bytes.next_multiple_of(4) - self.bytes;
        let Some(padding) = usize::try_from(zeros).ok().and_then(|zeros| head.get(..zeros)) else {
            return Ok(IndexProgress::Short);
        };
        if padding.iter().any(|byte| *byte != 0) {
            return fail_corrupt("the padding of its index is not zero");
        }
        advance_input(head, zeros);
        self.place = IndexPosition::Checksum;
        Ok(IndexProgress::More)
    }

    /// Reads the CRC32 (§4.5).
    fn read_checksum(&mut self, head: &mut &[u8]) -> Result<IndexProgress, EngineError> {
        let Some((crc, rest)) = head.split_first_chunk() else {
            return Ok(IndexProgress::Short);
        };
        if self.crc.sum() != u32::from_le_bytes(*crc) {
            return fail_corrupt("the CRC32 of its index does not match");
        }
        self.bytes += crc.len() as u64;
        *head = rest;
        Ok(IndexProgress::Complete)
    }
}

#[cfg(test)]
mod tests {
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

    fn read(bytes: &[u8]) -> Result<(IndexProgress, u64), EngineError> {
        let mut seen = BlockListDigest::default();
        seen.add_block(1000, 300);
        seen.add_block(60, 7);
        let mut index = XzIndexReader::new(seen);
        let (indicator, mut rest) = bytes.split_first().unwrap();
        index.add_indicator(*indicator);
        loop {
            match index.read_field(&mut rest)? {
                IndexProgress::More => {}
                progress => return Ok((progress, index.consumed_bytes())),
            }
        }
    }

    #[test]
    fn an_index_of_the_right_blocks_is_complete() {
        let bytes = sealed(&TWO);
        let (progress, length) = read(&bytes).unwrap();
        assert_eq!((progress, length), (IndexProgress::Complete, bytes.len() as u64));
        for end in 1..bytes.len() {
            assert_eq!(read(&bytes[..end]).unwrap().0, IndexProgress::Short, "{end}");
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
            let Err(EngineError::Corrupt(found)) = read(&sealed(fields)) else {
                panic!("{fields:?} is accepted");
            };
            assert!(found.starts_with(reason), "{found}");
        }
    }

    #[test]
    fn any_changed_bit_in_an_index_is_detected() {
        let bytes = sealed(&TWO);
        for bit in 8..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(read(&damaged), Ok((IndexProgress::Complete, _))), "bit {bit}");
        }
    }
}
