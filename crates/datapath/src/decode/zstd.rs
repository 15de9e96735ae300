//! Zstandard, RFC 8878.

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::decoder::{DecoderEngine, EngineError, MemberPadding, advance_input};
use crate::buffer::ChunkBuffer;
use crate::codec::Codec;
use crate::cursor::ChunkCursor;
use crate::error::Error;
use crate::memory::MemoryGrant;
use crate::options::DecodeLimits;

/// 0xFD2FB528, little-endian (RFC 8878 §3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Magic number, descriptor, window descriptor, dictionary id and content size at their longest
/// (RFC 8878 §3.1.1.1).
const MAX_HEADER: usize = 4 + 1 + 1 + 4 + 8;

/// The header of the frames that our encoder makes without compressing: a descriptor that announces neither a length nor a checksum nor a
/// dictionary (RFC 8878 §3.1.1.1.1), and a window of 128 KiB: exponent 7, mantissa 0, above 1 KiB (§3.1.1.1.2).
pub(crate) const FRAME_HEADER: [u8; 6] = [0x28, 0xB5, 0x2F, 0xFD, 0, 7 << 3];

/// Bytes of a block at most (RFC 8878 §3.1.1.2.4), and of that window.
pub(crate) const BLOCK_BYTES: usize = 128 << 10;

/// Types of blocks (RFC 8878 §3.1.1.2.2): as it is, and one byte that is repeated.
pub(crate) const RAW: u32 = 0;
pub(crate) const RLE: u32 = 1;

/// Most blocks in a frame of zeros of our encoder. Each has four bytes.
pub(crate) const ZERO_BLOCKS: usize = 512;

/// The library's own limit of windows, set to the largest that it knows (`ZSTD_WINDOWLOG_MAX_64`): ours is the memory.
const WINDOW_LOG_MAX: u32 = 31;

/// Memory that the library takes beside the window: its state, a block of input, and room for two of output (`ZSTD_sizeof_DCtx`,
/// `ZSTD_decodingBufferSize_min`; 550 KiB were measured).
const STATE_BYTES: u64 = 1 << 20;

/// True if a zstd frame with content begins with `head`. The reserved bit of its descriptor must be zero
/// (RFC 8878 §3.1.1.1.1.4).
fn begins_frame(head: &[u8]) -> bool {
    head.starts_with(&MAGIC) && head.get(4).is_none_or(|descriptor| descriptor & 0x08 == 0)
}

/// The whole length of the skippable frame that begins with `head`, if one does (RFC 8878 §3.1.2).
fn skippable_frame(head: &[u8]) -> Option<u64> {
    match *head {
        [0x50..=0x5F, 0x2A, 0x4D, 0x18, a, b, c, d, ..] => {
            Some(8 + u64::from(u32::from_le_bytes([a, b, c, d])))
        }
        _ => None,
    }
}

/// True if a zstd stream begins with `head`. Skippable frames may come first (pzstd writes one), but as
/// they are not zstd's own and hold anything, the frame after them has to be in sight.
pub(super) fn begins_frames(head: &[u8]) -> bool {
    let mut rest = head;
    while let Some(length) = skippable_frame(rest) {
        advance_input(&mut rest, length);
    }
    begins_frame(rest)
}

/// The window that the frame beginning with `head` asks for, in bytes (RFC 8878 §3.1.1.1.2), or all of its content if that
/// is less. A header that is cut short asks for nothing; the decoder will find it truncated.
fn window_bytes(head: &[u8]) -> u64 {
    let &[_, _, _, _, descriptor, ref fields @ ..] = head else {
        return 0;
    };
    let single_segment = descriptor & 0x20 != 0;
    let (window, fields) = match fields.split_first() {
        // The whole content is the window.
        _ if single_segment => (u64::MAX, fields),
        Some((&window, rest)) => {
            let base = 1_u64 << (10 + (window >> 3));
            (base + base / 8 * u64::from(window & 7), rest)
        }
        None => return 0,
    };
    // The size of the content follows the dictionary id (§3.1.1.1.3-4). A size of one byte is only there for a single segment.
    let id_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let (size_bytes, base) = match descriptor >> 6 {
        0 if !single_segment => return window,
        0 => (1, 0),
        1 => (2, 256),
        2 => (4, 0),
        _ => (8, 0),
    };
    let Some(field) = fields.get(id_bytes..id_bytes + size_bytes) else {
        return 0;
    };
    let mut size = [0; 8];
    size[..size_bytes].copy_from_slice(field);
    window.min(u64::from_le_bytes(size).saturating_add(base))
}

/// The length of the frame that begins with `head`, and the number of zeros in it, if it is like those that our encoder makes of zeros:
/// blocks of one repeated byte. libzstd would write all of them to memory, which takes it half a minute of CPU for 1 TiB.
fn zero_frame(head: &[u8]) -> Option<(usize, u64)> {
    let mut zeros = 0;
    let (blocks, _) = head.strip_prefix(&FRAME_HEADER)?.as_chunks();
    for (index, block) in blocks.iter().enumerate() {
        // Three bytes of the block's header and the byte, which adds to the length if it is not zero.
        let header = u32::from_le_bytes(*block);
        let length = u64::from(header >> 3);
        if header >> 1 & 3 != RLE || length > BLOCK_BYTES as u64 {
            return None;
        }
        zeros += length;
        if header & 1 == 1 {
            return Some((FRAME_HEADER.len() + (index + 1) * block.len(), zeros));
        }
    }
    None
}

/// libzstd's streaming decoder, which verifies content checksums and passes over skippable frames.
pub(super) struct ZstdEngine {
    decoder: Decoder<'static>,
    grant: MemoryGrant,
}

impl DecoderEngine for ZstdEngine {
    const CODEC: Codec = Codec::Zstd;
    const HEAD_BYTES: usize = MAX_HEADER;
    const PADDING: MemberPadding = MemberPadding::Nowhere;

    fn is_member_start(head: &[u8]) -> bool {
        begins_frame(head) || skippable_frame(head).is_some()
    }

    fn new(limits: &DecodeLimits) -> Result<Self, EngineError> {
        let mut grant = limits.memory.empty_grant();
        grant.resize(STATE_BYTES)?;
        let mut decoder = Decoder::new().map_err(|error| EngineError::Corrupt(error.to_string()))?;
        decoder
            .set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))
            .map_err(|error| EngineError::Corrupt(error.to_string()))?;
        Ok(Self { decoder, grant })
    }

    /// The library keeps the largest window so far, also when a frame comes that needs none: what was granted stays so.
    fn begin_member(&mut self, head: &[u8]) -> Result<(), EngineError> {
        if begins_frame(head) {
            self.grant.grow_to(window_bytes(head).saturating_add(STATE_BYTES))?;
        }
        Ok(())
    }

    fn decode_step(&mut self, input: &mut &[u8], output: &mut ChunkBuffer) -> Result<bool, EngineError> {
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(output.spare_capacity());
        let outcome = self.decoder.run(&mut from, &mut to);
        let (used, written) = (from.pos() as u64, to.pos() as u64);
        advance_input(input, used);
        output.mark_filled(written);
        match outcome {
            // The hint is zero only where a frame is complete and all of it was delivered.
            Ok(hint) => Ok(hint == 0),
            Err(error) => Err(EngineError::Corrupt(error.to_string())),
        }
    }

    fn take_zeros(input: &mut ChunkCursor) -> Result<Option<u64>, Error> {
        // Only what begins with a repeated byte is looked at further: that may have to be waited for.
        let begin = input.peek_bytes(MAX_HEADER)?.strip_prefix(&FRAME_HEADER);
        if !matches!(begin, Some([first, ..]) if u32::from(first >> 1 & 3) == RLE) {
            return Ok(None);
        }
        let frame = zero_frame(input.peek_bytes(FRAME_HEADER.len() + 4 * ZERO_BLOCKS)?);
        Ok(frame.map(|(length, zeros)| {
            input.consume(length);
            zeros
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::window_bytes;

    #[test]
    fn window_is_read_as_the_rfc_says() {
        for (head, bytes) in [
            (&[0x28, 0xB5, 0x2F, 0xFD, 0x04, 0x58][..], 2 << 20),
            (&[0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x8F], (1 << 27) + 7 * (1 << 24)),
            (&[0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xFF], (1 << 41) + 7 * (1 << 38)),
            (&[0x28, 0xB5, 0x2F, 0xFD, 0x20, 0x05], 5),
            (&[0x28, 0xB5, 0x2F, 0xFD, 0x61, 0xAA, 0x01, 0x02], 0x201 + 256),
            (&[0x28, 0xB5, 0x2F, 0xFD, 0xA3, 1, 2, 3, 4, 0, 0, 0, 0x80], 1 << 31),
            (&[0x28, 0xB5, 0x2F, 0xFD, 0xE0, 255, 255, 255, 255, 255, 255, 255, 255], u64::MAX),
            (&[0x28, 0xB5, 0x2F, 0xFD, 0xE0, 255], 0),
            (&[0x28, 0xB5, 0x2F, 0xFD, 0x04], 0),
        ] {
            assert_eq!(window_bytes(head), bytes, "{head:x?}");
        }
    }
}
