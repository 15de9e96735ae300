//! A decoder that goes from block to block.

use super::super::decoder::{DecoderEngine, EngineError};
use super::engine::XzEngine;
use super::framing::STREAM_HEADER_BYTES;
use super::walk::XzBlock;
use crate::buffer::ChunkBuffer;
use crate::memory::MemoryGrant;
use crate::options::DecodeLimits;

/// A decoder that is ready for a block of streams with this header. liblzma's stream decoder cannot tell that the blocks
/// which it is given are not all of their stream, as long as it does not see an index.
pub(super) struct BlockDecoder {
    stream_header: [u8; STREAM_HEADER_BYTES],
    pub(super) engine: XzEngine,
    /// Bytes of its dictionary: that of the last block.
    pub(super) dictionary: u64,
    grant: MemoryGrant,
}

impl BlockDecoder {
    /// A decoder for `block`: `used`, if that was made for a stream with the same header, else a new one.
    pub(super) fn for_block(
        used: Option<Self>,
        block: &XzBlock,
        limits: &DecodeLimits,
    ) -> Result<Self, EngineError> {
        let mut decoder = match used.filter(|used| used.stream_header == block.stream_header) {
            Some(used) => used,
            // What was used is dropped before: its memory is given back before more is taken.
            None => {
                let mut engine = XzEngine::without_memory_limit()?;
                engine.decode_step(&mut &block.stream_header[..], &mut ChunkBuffer::new(0))?;
                Self {
                    stream_header: block.stream_header,
                    engine,
                    dictionary: 0,
                    grant: limits.memory.empty_grant(),
                }
            }
        };
        // What the block can touch of its dictionary. liblzma reserves all of it, which costs nothing.
        decoder.grant.resize(block.dictionary)?;
        decoder.dictionary = block.dictionary;
        Ok(decoder)
    }
}
