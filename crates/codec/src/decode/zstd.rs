//! Decodes Zstandard (RFC 8878).

use stream::buffer::ChunkBuffer;
use stream::codec::Codec;
use stream::cursor::ChunkCursor;
use stream::error::Error;
use stream::memory::MemoryGrant;
use stream::options::DecodeLimits;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::decoder::{DecoderEngine, EngineError, MemberPadding, advance_input};

/// The magic number 0xFD2FB528 in little-endian order (RFC 8878 §3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The longest frame header in bytes: magic number, descriptor, window descriptor, dictionary id
/// and content size (RFC 8878 §3.1.1.1).
const MAX_HEADER: usize = 4 + 1 + 1 + 4 + 8;

/// The header of the uncompressed frames that our encoder writes. The descriptor announces neither
/// a length nor a checksum nor a dictionary (RFC 8878 §3.1.1.1.1). The window is 128 KiB: exponent
/// 7, mantissa 0, above 1 KiB (§3.1.1.1.2).
pub(crate) const FRAME_HEADER: [u8; 6] = [0x28, 0xB5, 0x2F, 0xFD, 0, 7 << 3];

/// Largest block in bytes (RFC 8878 §3.1.1.2.4). The window of `FRAME_HEADER` has the same size.
pub(crate) const BLOCK_BYTES: usize = 128 << 10;

/// Block types (RFC 8878 §3.1.1.2.2): stored data, and one byte that is repeated.
pub(crate) const RAW: u32 = 0;
pub(crate) const RLE: u32 = 1;

/// Largest number of blocks in a frame of zeros that our encoder writes. Each takes four bytes.
pub(crate) const ZERO_BLOCKS: usize = 512;

/// The library's limit on the window size, set to the largest value that it accepts
/// (`ZSTD_WINDOWLOG_MAX_64`). Our own limit is the memory budget.
const WINDOW_LOG_MAX: u32 = 31;

/// Memory that the library needs in addition to the window: its state, one block of input, and two
/// blocks of output (`ZSTD_sizeof_DCtx`, `ZSTD_decodingBufferSize_min`; 550 KiB were measured).
const STATE_BYTES: u64 = 1 << 20;

/// Returns true if `head` is the beginning of a zstd frame with content. The reserved bit of its
/// descriptor must be zero (RFC 8878 §3.1.1.1.1.4).
fn begins_frame(head: &[u8]) -> bool {
    head.starts_with(&MAGIC) && head.get(4).is_none_or(|descriptor| descriptor & 0x08 == 0)
}

/// Returns the total length of the skippable frame that begins with `head`, if there is one (RFC
/// 8878 §3.1.2).
fn skippable_frame(head: &[u8]) -> Option<u64> {
    match *head {
        [0x50..=0x5F, 0x2A, 0x4D, 0x18, a, b, c, d, ..] => {
            Some(8 + u64::from(u32::from_le_bytes([a, b, c, d])))
        }
        _ => None,
    }
}

/// Returns true if `head` is the beginning of a zstd stream. Skippable frames may come first
/// (pzstd writes one). They are not specific to zstd and may contain anything, so `head` must also
/// reach the frame after them.
pub(super) fn begins_frames(head: &[u8]) -> bool {
    let mut rest = head;
    while let Some(length) = skippable_frame(rest) {
        advance_input(&mut rest, length);
    }
    begins_frame(rest)
}

/// Returns the window size in bytes that the frame at the beginning of `head` requests (RFC 8878
/// §3.1.1.1.2), or the size of its content if that is smaller. Returns 0 for a truncated header,
/// which the decoder will reject.
fn window_bytes(head: &[u8]) -> u64 {
    let &[_, _, _, _, descriptor, ref fields @ ..] = head else {
        return 0;
    };
    let single_segment = descriptor & 0x20 != 0;
    let (window, fields) = match fields.split_first() {
        // With a single segment, the window is the whole content.
        _ if single_segment => (u64::MAX, fields),
        Some((&window, rest)) => {
            let base = 1_u64 << (10 + (window >> 3));
            (base + base / 8 * u64::from(window & 7), rest)
        }
        None => return 0,
    };
    // The content size follows the dictionary id (§3.1.1.1.3-4). A content size of one byte exists
    // only in frames with a single segment.
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

/// Parses a frame of zeros as our encoder writes it: blocks of one repeated byte. Returns the
/// length of the frame and the number of its zeros; `None` for other frames. libzstd would write
/// all zeros to memory, which takes half a minute of CPU time for 1 TiB.
fn zero_frame(head: &[u8]) -> Option<(usize, u64)> {
    let mut zeros = 0;
    let (blocks, _) = head.strip_prefix(&FRAME_HEADER)?.as_chunks();
    for (index, block) in blocks.iter().enumerate() {
        // A block of three bytes of header and the repeated byte. If that byte is not zero, it
        // makes the length too large for a block.
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

/// The streaming decoder of libzstd, which verifies content checksums and skips skippable frames.
pub(super) struct ZstdEngine {
    decoder: Decoder<'static>,
    grant: MemoryGrant,
}

impl ZstdEngine {
    fn new(limits: &DecodeLimits) -> Result<Self, EngineError> {
        let mut grant = limits.memory.empty_grant();
        grant.resize(STATE_BYTES)?;
        let mut decoder =
            Decoder::new().map_err(|error| EngineError::Corrupt(error.to_string()))?;
        decoder
            .set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))
            .map_err(|error| EngineError::Corrupt(error.to_string()))?;
        Ok(Self { decoder, grant })
    }
}

impl DecoderEngine for ZstdEngine {
    const CODEC: Codec = Codec::Zstd;
    const HEAD_BYTES: usize = MAX_HEADER;
    const PADDING: MemberPadding = MemberPadding::Nowhere;

    fn is_member_start(head: &[u8]) -> bool {
        begins_frame(head) || skippable_frame(head).is_some()
    }

    /// The library keeps the largest window so far, even if a later frame needs less. The grant
    /// therefore never shrinks.
    fn begin_member(
        used: Option<Self>,
        head: &[u8],
        limits: &DecodeLimits,
    ) -> Result<Self, EngineError> {
        let mut engine = match used {
            Some(engine) => engine,
            None => Self::new(limits)?,
        };
        if begins_frame(head) {
            engine.grant.grow_to(window_bytes(head).saturating_add(STATE_BYTES))?;
        }
        Ok(engine)
    }

    fn decode_step(
        &mut self,
        input: &mut &[u8],
        output: &mut ChunkBuffer,
    ) -> Result<bool, EngineError> {
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(output.spare_capacity());
        let outcome = self.decoder.run(&mut from, &mut to);
        let (used, written) = (from.pos() as u64, to.pos() as u64);
        advance_input(input, used);
        output.mark_filled(written);
        match outcome {
            // The hint is zero only if a frame is complete and all of its output was delivered.
            Ok(hint) => Ok(hint == 0),
            Err(error) => Err(EngineError::Corrupt(error.to_string())),
        }
    }

    fn take_zeros(input: &mut ChunkCursor) -> Result<Option<u64>, Error> {
        // The rest of the frame is examined only if its first block repeats a byte, since peeking
        // may have to wait for more input.
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
    fn the_window_size_is_read_as_rfc_8878_says() {
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
