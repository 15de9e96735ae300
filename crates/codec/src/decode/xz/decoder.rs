//! A decoder for single blocks, which can be reused for further blocks.

use stream::buffer::ChunkBuffer;
use stream::memory::MemoryGrant;
use stream::options::DecodeLimits;

use super::super::decoder::{DecoderEngine, EngineError};
use super::engine::XzEngine;
use super::framing::STREAM_HEADER_BYTES;
use super::walk::XzBlock;

/// A decoder that is ready for a block of a stream with this header. liblzma's stream decoder does
/// not notice that some blocks of the stream are missing, as long as it does not read an index.
pub(super) struct BlockDecoder {
    stream_header: [u8; STREAM_HEADER_BYTES],
    pub(super) engine: XzEngine,
    /// Dictionary size of the last block, in bytes.
    pub(super) dictionary: u64,
    grant: MemoryGrant,
}

impl BlockDecoder {
    /// Returns a decoder for `block`: `used` if it was created for the same stream header,
    /// otherwise a new decoder.
    pub(super) fn for_block(
        used: Option<Self>,
        block: &XzBlock,
        limits: &DecodeLimits,
    ) -> Result<Self, EngineError> {
        let mut decoder = match used.filter(|used| used.stream_header == block.stream_header) {
            Some(used) => used,
            // The used decoder was dropped by `filter`, so its memory is returned before new
            // memory is granted.
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
        // The grant covers the part of the dictionary that the block can touch. liblzma reserves
        // the whole dictionary, but memory that is not touched costs nothing.
        decoder.grant.resize(block.dictionary)?;
        decoder.dictionary = block.dictionary;
        Ok(decoder)
    }
}
