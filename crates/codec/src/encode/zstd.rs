//! Encodes zstd frames (RFC 8878).
//!
//! Data is stored uncompressed while the network is faster than a compressor, and zeros become
//! blocks of one repeated byte. Every zstd decoder can read such a stream, and the stream costs
//! little more than the bytes that it carries.

use bytes::{BufMut, Bytes, BytesMut};
use stream::zeros::is_zero;
use zstd::bulk::Compressor;

use super::CompressionRule;
use super::piece::VolumePiece;
use crate::decode::zstd::{BLOCK_BYTES, FRAME_HEADER, RAW, RLE, ZERO_BLOCKS};

/// Limit on the zeros in one frame.
pub(super) const ZEROS_AT_ONCE: u64 = (ZERO_BLOCKS * BLOCK_BYTES) as u64;

/// Granularity at which zeros are separated from data: small compared to a frame, large compared
/// to its header.
const RUN_BYTES: usize = 16 << 10;

/// The fastest of the regular zstd levels. Pod networks transfer a gigabit per second or more.
const NETWORK_LEVEL: i32 = 1;

/// The default level of the `zstd` program, to which the default of KubeVirt's export corresponds.
const FILE_LEVEL: i32 = 3;

/// Data in a file is stored uncompressed if compression saves less than this fraction, one in so
/// many: reading a cluster of 64 KiB would take more time than its 1 KiB is worth.
pub(super) const FILE_LEAST_SAVING: usize = 64;

/// Encodes pieces as frames.
pub struct Encoder {
    level: i32,
    /// Data is stored uncompressed if compression saves less than this fraction, one in so many.
    least_saving: usize,
    /// True if data is compressed without being asked to.
    pub(super) always_compresses: bool,
    /// The compressor, created when it is first needed. If the library cannot create it, this
    /// stays `None` and all data is stored.
    zstd: Option<Compressor<'static>>,
    scratch: Vec<u8>,
}

impl Encoder {
    /// For a network, whose ends decompress as well: a small saving would cost more time there than
    /// it gains.
    pub(super) fn for_network(rule: CompressionRule) -> Self {
        Self {
            level: NETWORK_LEVEL,
            least_saving: 8,
            always_compresses: rule == CompressionRule::Always,
            zstd: None,
            scratch: Vec::new(),
        }
    }

    /// For a file, which is stored and sent many times.
    pub(super) fn for_file() -> Self {
        let network = Self::for_network(CompressionRule::Always);
        Self { level: FILE_LEVEL, least_saving: FILE_LEAST_SAVING, ..network }
    }

    pub(super) fn encode_piece(&mut self, piece: VolumePiece, squeeze: bool) -> Vec<Bytes> {
        match piece {
            VolumePiece::Zeros(0) => Vec::new(),
            VolumePiece::Zeros(count) => vec![zero_frame(count)],
            VolumePiece::Data(bytes) => self.encode_data(&bytes, squeeze || self.always_compresses),
        }
    }

    /// Encodes data as frames. Runs of zeros become frames of their own.
    fn encode_data(&mut self, bytes: &Bytes, squeeze: bool) -> Vec<Bytes> {
        let mut parts = Vec::new();
        let mut start = 0;
        while let Some(rest) = bytes.get(start..)
            && !rest.is_empty()
        {
            let is_hole = starts_with_zeros(rest);
            let run: usize = rest
                .chunks(RUN_BYTES)
                .take_while(|part| starts_with_zeros(part) == is_hole)
                .map(<[u8]>::len)
                .sum();
            if is_hole {
                parts.push(zero_frame(run as u64));
            } else {
                self.encode_payload(&bytes.slice(start..start + run), squeeze, &mut parts);
            }
            start += run;
        }
        parts
    }

    fn encode_payload(&mut self, bytes: &Bytes, squeeze: bool, parts: &mut Vec<Bytes>) {
        let compressed = if squeeze { self.try_compress(bytes) } else { None };
        match compressed.map(Bytes::copy_from_slice) {
            Some(frame) => parts.push(frame),
            None => append_raw_frame(bytes, parts),
        }
    }

    /// Compresses `bytes`. `None` if that saves too little.
    pub(super) fn try_compress(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        if self.zstd.is_none() {
            self.zstd = Compressor::new(self.level).ok();
        }
        self.scratch.resize(bytes.len() - bytes.len() / self.least_saving, 0);
        // The call fails if the compressed data does not fit into this buffer.
        let length = self.zstd.as_mut()?.compress_to_buffer(bytes, &mut self.scratch[..]);
        self.scratch.get(..length.ok()?)
    }
}

/// Returns true if `bytes` begin with a run of zeros. The last run of a piece may be shorter than
/// `RUN_BYTES`.
fn starts_with_zeros(bytes: &[u8]) -> bool {
    is_zero(&bytes[..bytes.len().min(RUN_BYTES)])
}

/// Appends a block header (§3.1.1.2).
fn block_header(head: &mut BytesMut, kind: u32, length: usize, is_last: bool) {
    let length = u32::try_from(length).unwrap_or(0);
    let [low, middle, high, _] = (u32::from(is_last) | kind << 1 | length << 3).to_le_bytes();
    head.put_slice(&[low, middle, high]);
}

/// Returns a frame of `count` zeros, at most [`ZEROS_AT_ONCE`].
fn zero_frame(count: u64) -> Bytes {
    let mut frame = BytesMut::from(&FRAME_HEADER[..]);
    let mut left = usize::try_from(count).unwrap_or(usize::MAX);
    while left > 0 {
        let length = left.min(BLOCK_BYTES);
        left -= length;
        block_header(&mut frame, RLE, length, left == 0);
        frame.put_u8(0);
    }
    frame.freeze()
}

/// Appends a frame that stores `bytes` uncompressed. `bytes` must not be empty.
fn append_raw_frame(bytes: &Bytes, parts: &mut Vec<Bytes>) {
    let mut head = BytesMut::from(&FRAME_HEADER[..]);
    for start in (0..bytes.len()).step_by(BLOCK_BYTES) {
        let body = bytes.slice(start..bytes.len().min(start + BLOCK_BYTES));
        let is_last = start + BLOCK_BYTES >= bytes.len();
        block_header(&mut head, RAW, body.len(), is_last);
        parts.extend([std::mem::take(&mut head).freeze(), body]);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;
    use crate::encode::{Encoding, PIECE_BYTES, VolumePiece};

    const NETWORK: Encoding = Encoding::Zstd(CompressionRule::IfSlow);

    fn data(seed: u8, length: usize, zeros_from: usize) -> Bytes {
        let mut bytes: Vec<u8> = (0..length)
            .map(|at| u8::try_from((at * 31 + usize::from(seed) * 7 + at / 300) % 251).unwrap())
            .collect();
        bytes[zeros_from.min(length)..].fill(0);
        bytes.into()
    }

    fn piece() -> impl Strategy<Value = VolumePiece> {
        prop_oneof![
            (1..=super::ZEROS_AT_ONCE).prop_map(|count| VolumePiece::Zeros(count.min(3 << 20))),
            (any::<u8>(), 1..=PIECE_BYTES, 0..=2 * PIECE_BYTES).prop_map(
                |(seed, length, zeros_from)| VolumePiece::Data(data(seed, length, zeros_from))
            ),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn zstd_decodes_the_stream_from_any_piece_on(
            pieces in prop::collection::vec((piece(), any::<bool>()), 1..8),
            from in any::<prop::sample::Index>(),
            encoding in prop::sample::select(vec![NETWORK, Encoding::ZstdFile]),
        ) {
            let mut used = encoding.new_encoder();
            let from = from.index(pieces.len());
            let (mut stream, mut expected) = (Vec::new(), Vec::new());
            for (number, (piece, squeeze)) in pieces.into_iter().enumerate() {
                let parts = used.encode_piece(piece.clone(), squeeze);
                // A resumed upload encodes a piece again and must get the same bytes.
                prop_assert_eq!(&encoding.new_encoder().encode_piece(piece.clone(), squeeze), &parts);
                if number < from {
                    continue;
                }
                for part in parts {
                    stream.extend_from_slice(&part);
                }
                match piece {
                    VolumePiece::Zeros(count) => expected.resize(expected.len() + usize::try_from(count).unwrap(), 0),
                    VolumePiece::Data(bytes) => expected.extend_from_slice(&bytes),
                }
            }
            let mut decoded = Vec::new();
            zstd::stream::read::Decoder::new(&stream[..]).unwrap().read_to_end(&mut decoded).unwrap();
            prop_assert!(decoded == expected);
        }
    }

    #[test]
    fn data_for_a_network_is_compressed_only_when_asked_unless_the_rule_is_always() {
        let encode = |encoding: Encoding, squeeze| {
            let piece = VolumePiece::Data(data(1, PIECE_BYTES, PIECE_BYTES));
            encoding.new_encoder().encode_piece(piece, squeeze)
        };
        let always = Encoding::Zstd(CompressionRule::Always);
        assert_eq!(encode(Encoding::ZstdFile, false), encode(Encoding::ZstdFile, true));
        assert_ne!(encode(NETWORK, false), encode(NETWORK, true));
        assert_eq!(encode(always, false), encode(NETWORK, true));
    }

    #[test]
    fn a_frame_of_zeros_is_small() {
        let frame = zero_frame(ZEROS_AT_ONCE);
        assert!(frame.len() < 2100, "{}", frame.len());
    }
}
