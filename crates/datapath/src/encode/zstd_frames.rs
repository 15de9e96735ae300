//! Frames of zstd (RFC 8878) that are made without compressing: a stream of them can be read by whoever knows zstd, and costs no more
//! than its bytes where the network is faster than a compressor.

use bytes::{BufMut, Bytes, BytesMut};

use super::piece::Block;

/// First bytes of a frame (RFC 8878 §3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A frame of unknown length, without a checksum and a dictionary (§3.1.1.1.1).
const DESCRIPTOR: u8 = 0;

/// A window of 128 KiB: exponent 7, mantissa 0, above 1 KiB (§3.1.1.1.2). Blocks are no larger than it.
const WINDOW: u8 = 7 << 3;

/// Bytes of a block at most (§3.1.1.2.4).
const BLOCK_BYTES: usize = 128 << 10;

/// Types of blocks (§3.1.1.2.2).
const RAW: u32 = 0;
const RLE: u32 = 1;

/// Most zeros of a frame: 512 blocks of four bytes.
pub(super) const ZEROS_AT_ONCE: u64 = 512 * BLOCK_BYTES as u64;

/// The header of a block (§3.1.1.2).
fn block_header(head: &mut BytesMut, kind: u32, length: usize, is_last: bool) {
    let length = u32::try_from(length).unwrap_or(0);
    let [low, middle, high, _] = (u32::from(is_last) | kind << 1 | length << 3).to_le_bytes();
    head.put_slice(&[low, middle, high]);
}

fn frame() -> BytesMut {
    let mut head = BytesMut::from(&MAGIC[..]);
    head.put_slice(&[DESCRIPTOR, WINDOW]);
    head
}

/// A frame of at most [`ZEROS_AT_ONCE`] zeros.
pub(super) fn zeros(count: u64) -> Block {
    let mut head = frame();
    let mut left = usize::try_from(count).unwrap_or(usize::MAX);
    while left > 0 {
        let length = left.min(BLOCK_BYTES);
        left -= length;
        block_header(&mut head, RLE, length, left == 0);
        head.put_u8(0);
    }
    Block {
        head: head.freeze(),
        body: Bytes::new(),
    }
}

/// A frame of `bytes`, of which there are some, as they are.
pub(super) fn store(bytes: &Bytes, blocks: &mut Vec<Block>) {
    let mut head = frame();
    for start in (0..bytes.len()).step_by(BLOCK_BYTES) {
        let body = bytes.slice(start..bytes.len().min(start + BLOCK_BYTES));
        let is_last = start + BLOCK_BYTES >= bytes.len();
        block_header(&mut head, RAW, body.len(), is_last);
        let head = std::mem::take(&mut head).freeze();
        blocks.push(Block { head, body });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;
    use crate::encode::{Encoding, PIECE_BYTES, Piece};

    fn data(seed: u8, length: usize, zeros_from: usize) -> Bytes {
        let mut bytes: Vec<u8> = (0..length)
            .map(|at| u8::try_from((at * 31 + usize::from(seed) * 7 + at / 300) % 251).unwrap())
            .collect();
        bytes[zeros_from.min(length)..].fill(0);
        bytes.into()
    }

    fn piece() -> impl Strategy<Value = Piece> {
        prop_oneof![
            (1..=super::ZEROS_AT_ONCE).prop_map(|count| Piece::Zeros(count.min(3 << 20))),
            (any::<u8>(), 1..=PIECE_BYTES, 0..=2 * PIECE_BYTES)
                .prop_map(|(seed, length, zeros_from)| Piece::Data(data(seed, length, zeros_from))),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_pieces_are_undone_by_zstd_from_any_of_them_on(
            pieces in prop::collection::vec((piece(), any::<bool>()), 1..8),
            from in any::<prop::sample::Index>(),
        ) {
            let mut used = Encoding::Zstd.encoder();
            let from = from.index(pieces.len());
            let (mut stream, mut expected) = (Vec::new(), Vec::new());
            for (number, (piece, squeeze)) in pieces.into_iter().enumerate() {
                let blocks = used.encode(piece.clone(), squeeze);
                // Whoever continues an upload encodes a piece once more.
                prop_assert_eq!(&Encoding::Zstd.encoder().encode(piece.clone(), squeeze), &blocks);
                if number < from {
                    continue;
                }
                for block in blocks {
                    stream.extend_from_slice(&block.head);
                    stream.extend_from_slice(&block.body);
                }
                match piece {
                    Piece::Zeros(count) => expected.resize(expected.len() + usize::try_from(count).unwrap(), 0),
                    Piece::Data(bytes) => expected.extend_from_slice(&bytes),
                }
            }
            let mut decoded = Vec::new();
            zstd::stream::read::Decoder::new(&stream[..]).unwrap().read_to_end(&mut decoded).unwrap();
            prop_assert!(decoded == expected);
        }
    }

    #[test]
    fn zeros_take_next_to_nothing() {
        let block = zeros(ZEROS_AT_ONCE);
        assert!(block.length() < 2100, "{}", block.length());
    }
}
