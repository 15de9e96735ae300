//! Encodes the snappy framing format as CDI's cloner does. [`crate::decode`] reads it.

use std::sync::LazyLock;

use bytes::{BufMut, Bytes};
use snap::raw::{Encoder as Raw, max_compress_len};
use stream::zeros::{ZEROS, is_zero};

use super::piece::VolumePiece;
use crate::decode::snappy::{CHECKSUM_BYTES, HEADER_BYTES, IDENTIFIER, MAX_DATA_BYTES, mask_crc};

/// Chunk types (framing format §4.1-4.3).
const IDENTIFIER_CHUNK: u8 = 0xff;
const COMPRESSED_CHUNK: u8 = 0x00;
const UNCOMPRESSED_CHUNK: u8 = 0x01;

/// The number of zero chunks that are kept ready, and the number of zeros in them: 200 kB of
/// stream.
const ZERO_CHUNKS: usize = 64;
pub(super) const ZEROS_AT_ONCE: u64 = (ZERO_CHUNKS * MAX_DATA_BYTES) as u64;

/// [`ZERO_CHUNKS`] encoded chunks of zeros. They are always the same, so they are encoded only
/// once.
static ZERO_RUN: LazyLock<Bytes> = LazyLock::new(|| {
    let mut run = Vec::new();
    let mut encoder = SnappyEncoder::default();
    for _ in 0..ZERO_CHUNKS {
        encoder.append_chunk(&ZEROS[..MAX_DATA_BYTES], &mut run);
    }
    run.into()
});

/// Returns the stream identifier.
pub(super) fn stream_identifier() -> Bytes {
    let mut bytes = Vec::new();
    put_header(IDENTIFIER_CHUNK, IDENTIFIER.len(), &mut bytes);
    bytes.extend_from_slice(IDENTIFIER);
    bytes.into()
}

/// Encodes pieces as chunks.
pub struct SnappyEncoder {
    raw: Raw,
    scratch: Vec<u8>,
}

impl Default for SnappyEncoder {
    fn default() -> Self {
        Self { raw: Raw::new(), scratch: Vec::new() }
    }
}

impl SnappyEncoder {
    pub(super) fn encode_piece(&mut self, piece: &VolumePiece) -> Bytes {
        match piece {
            VolumePiece::Data(bytes) => self.encode_data(bytes),
            VolumePiece::Zeros(count) => self.encode_zeros(*count),
        }
    }

    fn encode_data(&mut self, bytes: &[u8]) -> Bytes {
        let mut stream = Vec::with_capacity(bytes.len() / 2);
        for part in bytes.chunks(MAX_DATA_BYTES) {
            if part.len() == MAX_DATA_BYTES && is_zero(part) {
                stream.extend_from_slice(&ZERO_RUN[..ZERO_RUN.len() / ZERO_CHUNKS]);
            } else {
                self.append_chunk(part, &mut stream);
            }
        }
        stream.into()
    }

    fn encode_zeros(&mut self, count: u64) -> Bytes {
        let count = usize::try_from(count.min(ZEROS_AT_ONCE)).unwrap_or(usize::MAX);
        let whole = ZERO_RUN.slice(..ZERO_RUN.len() / ZERO_CHUNKS * (count / MAX_DATA_BYTES));
        match count % MAX_DATA_BYTES {
            0 => whole,
            rest => {
                let mut stream = whole.to_vec();
                self.append_chunk(&ZEROS[..rest], &mut stream);
                stream.into()
            }
        }
    }

    /// Appends a chunk with `data`, at most [`MAX_DATA_BYTES`]. It is compressed if that saves an
    /// eighth, as in CDI.
    fn append_chunk(&mut self, data: &[u8], stream: &mut Vec<u8>) {
        self.scratch.resize(max_compress_len(data.len()), 0);
        let compressed = self.raw.compress(data, &mut self.scratch).unwrap_or(data.len());
        let (kind, body) = if compressed < data.len() - data.len() / 8 {
            (COMPRESSED_CHUNK, &self.scratch[..compressed])
        } else {
            (UNCOMPRESSED_CHUNK, data)
        };
        put_header(kind, CHECKSUM_BYTES + body.len(), stream);
        stream.put_u32_le(mask_crc(crc32c::crc32c(data)));
        stream.extend_from_slice(body);
    }
}

fn put_header(kind: u8, length: usize, stream: &mut Vec<u8>) {
    stream.put_u8(kind);
    // The length field has three bytes, which is enough because no chunk reaches 16 MiB.
    stream.put_uint_le(length as u64, HEADER_BYTES - 1);
}
