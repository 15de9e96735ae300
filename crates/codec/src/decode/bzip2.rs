//! Decodes bzip2. The only specification is the program itself. Every block and every stream has a
//! CRC-32.

use bzip2::{Decompress, Status};
use stream::buffer::ChunkBuffer;
use stream::codec::Codec;
use stream::memory::MemoryGrant;
use stream::options::DecodeLimits;

use super::decoder::{DecoderEngine, EngineError, MemberPadding, advance_input};

/// The six bytes after the level if a block follows: the digits of π.
const BLOCK: [u8; 6] = [0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
/// The six bytes after the level if the stream is empty and ends here: the digits of √π.
const STREAM_END: [u8; 6] = [0x17, 0x72, 0x45, 0x38, 0x50, 0x90];

/// Memory for each level, in bytes. A level stands for 100,000 bytes of a block, each of which
/// takes four bytes of memory (`man bzip2`, "Memory management").
const LEVEL_BYTES: u64 = 400_000;

/// Memory that every stream takes in addition: "100 kbytes + ( 4 x block size )" (ibid.).
const STATE_BYTES: u64 = 100_000;

/// The decoder of libbzip2.
pub(super) struct Bzip2Engine {
    decoder: Decompress,
    grant: MemoryGrant,
}

impl DecoderEngine for Bzip2Engine {
    const CODEC: Codec = Codec::Bzip2;
    const HEAD_BYTES: usize = 10;
    const PADDING: MemberPadding = MemberPadding::AtEnd;

    /// Returns true for `BZh`, the level, and as many of the next six bytes as `head` contains.
    fn is_member_start(head: &[u8]) -> bool {
        let [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..] = head else {
            return false;
        };
        let rest = &rest[..rest.len().min(BLOCK.len())];
        BLOCK.starts_with(rest) || STREAM_END.starts_with(rest)
    }

    fn begin_member(
        used: Option<Self>,
        head: &[u8],
        limits: &DecodeLimits,
    ) -> Result<Self, EngineError> {
        let level = head.get(3).map_or(0, |digit| digit.saturating_sub(b'0'));
        let mut grant = used.map_or_else(|| limits.memory.empty_grant(), |used| used.grant);
        grant.grow_to(u64::from(level) * LEVEL_BYTES + STATE_BYTES)?;
        // libbzip2 cannot reset a decoder, so create a new one. `false` turns off its `small` mode,
        // which needs 2.5 instead of 4 bytes of memory for each byte of a block, but takes twice
        // the time (`man bzip2`).
        Ok(Self { decoder: Decompress::new(false), grant })
    }

    fn decode_step(
        &mut self,
        input: &mut &[u8],
        output: &mut ChunkBuffer,
    ) -> Result<bool, EngineError> {
        let before = (self.decoder.total_in(), self.decoder.total_out());
        let outcome = self.decoder.decompress(input, output.spare_capacity());
        advance_input(input, self.decoder.total_in() - before.0);
        output.mark_filled(self.decoder.total_out() - before.1);
        match outcome {
            Ok(Status::StreamEnd) => Ok(true),
            Ok(Status::MemNeeded) => Err(EngineError::Corrupt("out of memory".to_owned())),
            Ok(_) => Ok(false),
            Err(error) => Err(EngineError::Corrupt(error.to_string())),
        }
    }
}
