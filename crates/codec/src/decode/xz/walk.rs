//! Finds the blocks of an .xz file while it is read, and verifies everything around them.
//!
//! The end of a block is found by parsing the headers of its LZMA2 chunks, of which there is one
//! for every 64 KiB or less. The sizes in a block header are therefore not needed: `xz -T1` omits
//! them, and a hostile file may have wrong ones.

use bytes::Bytes;
use stream::chunks::ChunkStream;
use stream::cursor::ChunkCursor;
use stream::error::Error;

use super::super::decoder::{EngineError, decode_error, find_member, truncated_error};
use super::block::{
    CHUNK_HEADER_BYTES, Lzma2Chunk, block_header, block_header_bytes, parse_chunk_header,
};
use super::engine::XzEngine;
use super::framing::{
    INDEX_INDICATOR, STREAM_HEADER_BYTES, StreamFlags, stream_footer, stream_header,
};
use super::index::{BlockListDigest, verify_index};

/// A part of the file. The parts are returned in file order.
pub(super) enum XzFilePart {
    /// A block begins.
    Begin(XzBlock),
    /// The next part of that block.
    Block(BlockPart),
}

/// A part of a block.
pub(super) enum BlockPart {
    /// The next bytes of the block, including its header, padding and check.
    Bytes(Bytes),
    /// The block is complete and decodes to this number of bytes.
    End(u64),
    /// Nothing follows, because the block is cut off or not needed any more.
    Cut,
}

/// Properties of a block that are known when it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct XzBlock {
    /// The header of the stream that contains the block. The decoder needs it to know the
    /// integrity check.
    pub(super) stream_header: [u8; STREAM_HEADER_BYTES],
    /// Number of dictionary bytes that decoding the block can touch.
    pub(super) dictionary: u64,
    /// Offset of the block in the file.
    pub(super) start: u64,
    /// Offset of the block's content in the decoded file.
    pub(super) offset: u64,
}

/// The position of the cursor within the structure of the file.
enum WalkPosition {
    /// At the beginning of a stream, or at the end of the file after a stream.
    Stream { is_first: bool },
    /// In a stream, at the beginning of a block header or of the index.
    Header,
    /// In a block, at the beginning of an LZMA2 chunk.
    Chunk,
    /// In a block, within `left` bytes that are passed on without parsing. After them, the block
    /// ends or an LZMA2 chunk begins.
    Inside { left: u64, is_last: bool },
    /// At the verified end of the file.
    End,
}

/// Walks through the structure of a file.
pub(super) struct XzFileWalk {
    input: ChunkCursor,
    place: WalkPosition,
    stream_header: [u8; STREAM_HEADER_BYTES],
    flags: StreamFlags,
    /// The complete blocks of the current stream.
    blocks: BlockListDigest,
    /// Offset of the current block in the file, and offset of its compressed data.
    block_start: u64,
    data_start: u64,
    /// Decoded size of the current block, according to the headers of its LZMA2 chunks so far.
    decoded: u64,
    /// Decoded size of all earlier blocks.
    decoded_before: u64,
}

impl XzFileWalk {
    pub(super) fn new(inner: Box<dyn ChunkStream>) -> Self {
        Self {
            input: ChunkCursor::new(inner),
            place: WalkPosition::Stream { is_first: true },
            stream_header: [0; STREAM_HEADER_BYTES],
            flags: StreamFlags::default(),
            blocks: BlockListDigest::default(),
            block_start: 0,
            data_start: 0,
            decoded: 0,
            decoded_before: 0,
        }
    }

    /// Returns the next part, or `None` at the verified end of the file.
    pub(super) fn next_part(&mut self) -> Result<Option<XzFilePart>, Error> {
        loop {
            // After an error the position stays `End`, because the walk must not be continued.
            self.place = match std::mem::replace(&mut self.place, WalkPosition::End) {
                WalkPosition::Stream { is_first } => self.find_stream(is_first)?,
                WalkPosition::Header => match self.input.peek_bytes(1)?.first() {
                    None => return Err(truncated_error::<XzEngine>(&self.input)),
                    Some(&INDEX_INDICATOR) => self.end_stream()?,
                    Some(&size) => {
                        let block = self.begin_block(block_header_bytes(size))?;
                        return Ok(Some(XzFilePart::Begin(block)));
                    }
                },
                WalkPosition::Chunk => self.begin_chunk()?,
                WalkPosition::Inside { left: 0, is_last: false } => WalkPosition::Chunk,
                WalkPosition::Inside { left: 0, is_last: true } => {
                    self.place = WalkPosition::Header;
                    return Ok(Some(XzFilePart::Block(BlockPart::End(self.decoded))));
                }
                WalkPosition::Inside { left, is_last } => {
                    let bytes = self.input.take_bytes(left)?;
                    if bytes.is_empty() {
                        return Err(truncated_error::<XzEngine>(&self.input));
                    }
                    let left = left - bytes.len() as u64;
                    self.place = WalkPosition::Inside { left, is_last };
                    return Ok(Some(XzFilePart::Block(BlockPart::Bytes(bytes))));
                }
                WalkPosition::End => return Ok(None),
            };
        }
    }

    /// Moves to the next stream and reads its header. At the end of the file the position becomes
    /// `End`.
    fn find_stream(&mut self, is_first: bool) -> Result<WalkPosition, Error> {
        if !find_member::<XzEngine>(&mut self.input, is_first)? {
            return Ok(WalkPosition::End);
        }
        self.stream_header = self.peek_header()?;
        self.flags =
            stream_header(&self.stream_header).map_err(|fault| self.decode_error(fault))?;
        self.input.consume(STREAM_HEADER_BYTES);
        Ok(WalkPosition::Header)
    }

    /// Peeks at a stream header or footer without consuming it.
    fn peek_header(&mut self) -> Result<[u8; STREAM_HEADER_BYTES], Error> {
        let bytes = self.input.peek_bytes(STREAM_HEADER_BYTES)?.first_chunk().copied();
        bytes.ok_or_else(|| truncated_error::<XzEngine>(&self.input))
    }

    fn begin_block(&mut self, header_bytes: usize) -> Result<XzBlock, Error> {
        let Some(header) = self.input.peek_bytes(header_bytes)?.get(..header_bytes) else {
            return Err(truncated_error::<XzEngine>(&self.input));
        };
        let parsed = block_header(header);
        let dictionary = parsed.map_err(|fault| self.decode_error(fault))?;
        self.decoded_before = self.decoded_before.saturating_add(self.decoded);
        self.decoded = 0;
        self.block_start = self.input.offset();
        self.data_start = self.block_start + header_bytes as u64;
        self.place = WalkPosition::Inside { left: header_bytes as u64, is_last: false };
        Ok(XzBlock {
            stream_header: self.stream_header,
            dictionary,
            start: self.block_start,
            offset: self.decoded_before,
        })
    }

    /// Parses the header of an LZMA2 chunk and returns the position for its bytes.
    fn begin_chunk(&mut self) -> Result<WalkPosition, Error> {
        let head = self.input.peek_bytes(CHUNK_HEADER_BYTES)?;
        let left = head.len() as u64;
        let next = parse_chunk_header(head);
        match next.map_err(|fault| self.decode_error(fault))? {
            Some(Lzma2Chunk::Data { bytes, decoded }) => {
                self.decoded = self.decoded.saturating_add(decoded);
                Ok(WalkPosition::Inside { left: bytes, is_last: false })
            }
            Some(Lzma2Chunk::End) => {
                Ok(WalkPosition::Inside { left: self.end_block(), is_last: true })
            }
            // A truncated header is passed to the decoder, which may find that it is invalid
            // before it finds that it is truncated.
            None if left > 0 => Ok(WalkPosition::Inside { left, is_last: false }),
            None => Err(truncated_error::<XzEngine>(&self.input)),
        }
    }

    /// Counts the current block, whose end marker is at the cursor. Returns the number of bytes of
    /// the block that remain: the marker, padding to a multiple of four (§3.3), and the check
    /// (§3.4).
    fn end_block(&mut self) -> u64 {
        let data_end = self.input.offset() + 1;
        let check = self.flags.check_bytes();
        self.blocks.add_block(data_end - self.block_start + check, self.decoded);
        let data = data_end - self.data_start;
        1 + data.next_multiple_of(4) - data + check
    }

    /// Verifies the index and the footer of the current stream.
    fn end_stream(&mut self) -> Result<WalkPosition, Error> {
        let index_bytes = verify_index(&mut self.input, std::mem::take(&mut self.blocks))?;
        let bytes = self.peek_header()?;
        let (flags, backward) = stream_footer(&bytes).map_err(|fault| self.decode_error(fault))?;
        if flags != self.flags {
            return Err(self.corrupt_error("its header and its footer have different flags"));
        }
        if backward != index_bytes {
            return Err(self.corrupt_error(&format!(
                "its footer states an index size of {backward} bytes, the index has {index_bytes}"
            )));
        }
        self.input.consume(STREAM_HEADER_BYTES);
        Ok(WalkPosition::Stream { is_first: false })
    }

    fn corrupt_error(&self, reason: &str) -> Error {
        self.decode_error(EngineError::Corrupt(reason.to_owned()))
    }

    fn decode_error(&self, fault: EngineError) -> Error {
        decode_error::<XzEngine>(&self.input, fault)
    }
}
