//! Decodes the snappy framing format (`framing_format.txt` of google/snappy, 2013), which CDI's
//! cloner sends.
//!
//! A stream is a sequence of chunks: one byte of type, three bytes of length, and a body. The
//! format has no end mark, so a stream may end after any chunk. For the shared decoder loop, every
//! chunk is a member. Snappy is never detected from the content and is used only where it is
//! expected: a clone contains the data of a guest, which may look like anything.

use snap::raw::{Decoder as Raw, decompress_len};
use stream::buffer::ChunkBuffer;
use stream::codec::Codec;
use stream::options::DecodeLimits;
use stream::zeros::is_zero;

use super::decoder::{DecoderEngine, EngineError, MemberPadding, advance_input};

/// Size of a chunk header: type and length (§3).
pub(crate) const HEADER_BYTES: usize = 4;
/// Size of the masked CRC-32C before the data of a chunk (§3, §4.2).
pub(crate) const CHECKSUM_BYTES: usize = 4;
/// Limit on the uncompressed data of a chunk in bytes (§4.2).
pub(crate) const MAX_DATA_BYTES: usize = 65536;
/// Compressed size of [`MAX_DATA_BYTES`] bytes in the worst case: `32 + n + n/6`
/// (`MaxCompressedLength`).
const MAX_COMPRESSED_BYTES: usize = 32 + MAX_DATA_BYTES + MAX_DATA_BYTES / 6;
/// The body of a stream identifier (§4.1).
pub(crate) const IDENTIFIER: &[u8] = b"sNaPpY";

/// The kind of a chunk, according to its type byte (§4).
#[derive(Clone, Copy, PartialEq, Eq)]
enum SnappyChunkKind {
    Compressed,
    Uncompressed,
    Skippable,
    Identifier,
}

impl SnappyChunkKind {
    fn from_byte(byte: u8) -> Result<Self, EngineError> {
        match byte {
            0x00 => Ok(Self::Compressed),
            0x01 => Ok(Self::Uncompressed),
            0x02..=0x7f => Err(corrupt_error(format!("a chunk of the reserved type {byte:#04x}"))),
            0x80..=0xfe => Ok(Self::Skippable),
            0xff => Ok(Self::Identifier),
        }
    }

    /// Returns the allowed sizes of the body in bytes.
    fn body_size_range(self) -> std::ops::RangeInclusive<usize> {
        match self {
            Self::Compressed => CHECKSUM_BYTES..=CHECKSUM_BYTES + MAX_COMPRESSED_BYTES,
            Self::Uncompressed => CHECKSUM_BYTES..=CHECKSUM_BYTES + MAX_DATA_BYTES,
            // The largest length that fits into three bytes.
            Self::Skippable => 0..=0xff_ffff,
            Self::Identifier => IDENTIFIER.len()..=IDENTIFIER.len(),
        }
    }
}

/// The header of the current chunk. Of a skippable chunk, `body_bytes` are still to be skipped.
#[derive(Clone, Copy)]
struct SnappyChunkHeader {
    kind: SnappyChunkKind,
    body_bytes: usize,
}

impl SnappyChunkHeader {
    fn parse(
        [kind, low, middle, high]: [u8; HEADER_BYTES],
        is_first: bool,
    ) -> Result<Self, EngineError> {
        let kind = SnappyChunkKind::from_byte(kind)?;
        if is_first && kind != SnappyChunkKind::Identifier {
            return Err(corrupt_error("it does not begin with a stream identifier"));
        }
        let body_bytes = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
        let allowed = kind.body_size_range();
        if allowed.contains(&body_bytes) {
            Ok(Self { kind, body_bytes })
        } else {
            Err(corrupt_error(format!(
                "a chunk of {body_bytes} bytes, expected {} to {}",
                allowed.start(),
                allowed.end()
            )))
        }
    }
}

/// Decodes chunks. Header and body of a chunk may be split across any number of inputs.
#[derive(Default)]
pub(super) struct SnappyEngine {
    raw: Raw,
    identified: bool,
    header: Option<SnappyChunkHeader>,
    /// The part of the current header or body that came with earlier inputs. The content of
    /// skippable chunks is not kept.
    pending: Vec<u8>,
    /// The body of an earlier chunk that decoded to zeros. Large parts of a disk are zeros, and an
    /// identical body need not be decoded again.
    zeros: Vec<u8>,
}

impl DecoderEngine for SnappyEngine {
    const CODEC: Codec = Codec::Snappy;
    const HEAD_BYTES: usize = 1;
    const PADDING: MemberPadding = MemberPadding::Nowhere;
    const STEP_BYTES: usize = MAX_DATA_BYTES;

    /// Accepts anything. [`SnappyChunkHeader::parse`] rejects invalid chunks, with a more precise
    /// reason.
    fn is_member_start(_head: &[u8]) -> bool {
        true
    }

    fn begin_member(
        used: Option<Self>,
        _head: &[u8],
        _limits: &DecodeLimits,
    ) -> Result<Self, EngineError> {
        Ok(Self { header: None, ..used.unwrap_or_default() })
    }

    fn decode_step(
        &mut self,
        input: &mut &[u8],
        output: &mut ChunkBuffer,
    ) -> Result<bool, EngineError> {
        let Some(header) = &mut self.header else {
            return self.read_header(input);
        };
        if header.kind == SnappyChunkKind::Skippable {
            let skip = input.len().min(header.body_bytes);
            advance_input(input, skip as u64);
            header.body_bytes -= skip;
            return Ok(header.body_bytes == 0);
        }
        let header = *header;
        // The body is decoded in place. Only a chunk that is split across two inputs is copied
        // first.
        if self.pending.is_empty()
            && let Some((body, rest)) = input.split_at_checked(header.body_bytes)
        {
            *input = rest;
            return self.finish_chunk(header.kind, body, output).map(|()| true);
        }
        if !self.collect_pending(header.body_bytes, input) {
            return Ok(false);
        }
        let body = std::mem::take(&mut self.pending);
        let finished = self.finish_chunk(header.kind, &body, output);
        // Put the vector back, so that its allocation is reused.
        self.pending = body;
        self.pending.clear();
        finished.map(|()| true)
    }
}

impl SnappyEngine {
    /// Reads the header of a chunk. Returns true if the chunk is complete, because it has no body.
    fn read_header(&mut self, input: &mut &[u8]) -> Result<bool, EngineError> {
        self.collect_pending(HEADER_BYTES, input);
        let Some(&bytes) = self.pending.first_chunk() else {
            return Ok(false);
        };
        self.pending.clear();
        let header = SnappyChunkHeader::parse(bytes, !self.identified)?;
        self.header = Some(header);
        Ok(header.body_bytes == 0)
    }

    /// Fills `pending` up to `want` bytes, a number that was checked to be small. Returns true if
    /// `pending` contains all of them.
    fn collect_pending(&mut self, want: usize, input: &mut &[u8]) -> bool {
        let missing = want.saturating_sub(self.pending.len()).min(input.len());
        let (now, rest) = input.split_at(missing);
        self.pending.extend_from_slice(now);
        *input = rest;
        self.pending.len() >= want
    }

    /// Decodes the complete body of a chunk.
    fn finish_chunk(
        &mut self,
        kind: SnappyChunkKind,
        body: &[u8],
        output: &mut ChunkBuffer,
    ) -> Result<(), EngineError> {
        if kind == SnappyChunkKind::Identifier {
            self.identified = true;
            let is_valid = body == IDENTIFIER;
            let refused = || corrupt_error("its stream identifier is not `sNaPpY`");
            return is_valid.then_some(()).ok_or_else(refused);
        }
        let (stored, data) = body
            .split_first_chunk::<CHECKSUM_BYTES>()
            .ok_or_else(|| corrupt_error("a chunk without a checksum"))?;
        let is_compressed = kind == SnappyChunkKind::Compressed;
        let length = if is_compressed {
            decompress_len(data).map_err(|error| corrupt_error(error.to_string()))?
        } else {
            data.len()
        };
        if length > MAX_DATA_BYTES {
            return Err(corrupt_error(format!(
                "a chunk with {length} bytes of data, the limit is {MAX_DATA_BYTES}"
            )));
        }
        let room = &mut output.spare_capacity()[..length];
        // Clones contain many zeros. A chunk of zeros is decoded once and then recognised by its
        // compressed form, at 26 GiB/s instead of 1.3 GiB/s.
        if is_compressed && body == self.zeros {
            room.fill(0);
        } else {
            if is_compressed {
                self.raw
                    .decompress(data, room)
                    .map_err(|error| corrupt_error(error.to_string()))?;
            } else {
                room.copy_from_slice(data);
            }
            let (stored, calculated) =
                (u32::from_le_bytes(*stored), mask_crc(crc32c::crc32c(room)));
            if stored != calculated {
                return Err(corrupt_error(format!(
                    "the checksum of a chunk is {stored:#010x}, its data has {calculated:#010x}"
                )));
            }
            if is_compressed && is_zero(room) {
                self.zeros.clear();
                self.zeros.extend_from_slice(body);
            }
        }
        output.mark_filled(length as u64);
        Ok(())
    }
}

/// Masks a checksum. Checksums are stored masked, since the CRC of data that contains its own CRC
/// has little value (§3).
pub(crate) fn mask_crc(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn corrupt_error(reason: impl Into<String>) -> EngineError {
    EngineError::Corrupt(reason.into())
}
