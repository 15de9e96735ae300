//! Finds the blocks of an .xz file while it is read, and verifies everything around them.
//!
//! The end of a block is found by parsing the headers of its LZMA2 chunks, of which there is one
//! for every 64 KiB or less. The sizes in a block header are therefore not needed: `xz -T1` omits
//! them, and a hostile file may have wrong ones.

use bytes::Bytes;
use stream::chunks::ChunkStream;
use stream::cursor::ChunkCursor;
use stream::error::Error;

use super::super::decoder::{DecoderEngine, EngineError, find_member, truncated_error};
use super::block::{
    CHUNK_HEADER_BYTES, Lzma2Chunk, block_header, block_header_bytes, parse_chunk_header,
};
use super::engine::XzEngine;
use super::framing::{
    INDEX_INDICATOR, STREAM_HEADER_BYTES, StreamFlags, stream_footer, stream_header,
};
use super::index::{BlockListDigest, IndexProgress, RECORD_BYTES, XzIndexReader};

/// A part of the file. The parts are returned in file order.
pub(super) enum XzFilePart {
    /// A block begins.
    Begin(XzBlock),
    /// The next bytes of the block, including its header, padding and check.
    Bytes(Bytes),
    /// The block is complete and decodes to this number of bytes.
    End(u64),
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
    /// Before the first stream.
    Start,
    /// After a stream.
    Between,
    /// In a stream, at the beginning of a block header or of the index.
    Header,
    /// In a block, at the beginning of an LZMA2 chunk.
    Chunk,
    /// In a block, within bytes that are passed on without parsing: their number, and the position
    /// after them.
    Inside(u64, NextPosition),
    /// In the index.
    Index(Box<XzIndexReader>),
    /// At the footer of a stream whose index has this number of bytes.
    Footer(u64),
    /// At the verified end of the file.
    End,
}

/// The position after bytes of a block that are not parsed.
#[derive(Clone, Copy)]
enum NextPosition {
    /// The next LZMA2 chunk.
    Chunk,
    /// The end of the block.
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
            place: WalkPosition::Start,
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
                WalkPosition::Start => self.find_stream(true)?,
                WalkPosition::Between => self.find_stream(false)?,
                WalkPosition::Header => match self.input.peek_bytes(1)?.first() {
                    None => return Err(self.truncated_error()),
                    Some(&INDEX_INDICATOR) => self.begin_index(),
                    Some(&size) => {
                        let block = self.begin_block(block_header_bytes(size))?;
                        return Ok(Some(XzFilePart::Begin(block)));
                    }
                },
                WalkPosition::Chunk => self.begin_chunk()?,
                WalkPosition::Inside(0, NextPosition::Chunk) => WalkPosition::Chunk,
                WalkPosition::Inside(0, NextPosition::End) => {
                    self.place = WalkPosition::Header;
                    return Ok(Some(XzFilePart::End(self.decoded)));
                }
                WalkPosition::Inside(left, then) => {
                    let bytes = self.input.take_bytes(left)?;
                    if bytes.is_empty() {
                        return Err(self.truncated_error());
                    }
                    self.place = WalkPosition::Inside(left - bytes.len() as u64, then);
                    return Ok(Some(XzFilePart::Bytes(bytes)));
                }
                WalkPosition::Index(index) => self.step_index(index)?,
                WalkPosition::Footer(index_bytes) => self.read_footer(index_bytes)?,
                WalkPosition::End => return Ok(None),
            };
        }
    }

    /// Moves to the next stream and reads its header. At the end of the file the position becomes
    /// `End`.
    fn find_stream(&mut self, first: bool) -> Result<WalkPosition, Error> {
        if !find_member::<XzEngine>(&mut self.input, first)? {
            return Ok(WalkPosition::End);
        }
        self.stream_header = self.peek_header()?;
        self.flags =
            stream_header(&self.stream_header).map_err(|fault| self.decode_error(fault))?;
        self.input.consume(STREAM_HEADER_BYTES);
        self.blocks = BlockListDigest::default();
        Ok(WalkPosition::Header)
    }

    /// Peeks at a stream header or footer without consuming it.
    fn peek_header(&mut self) -> Result<[u8; STREAM_HEADER_BYTES], Error> {
        let bytes = self.input.peek_bytes(STREAM_HEADER_BYTES)?.first_chunk().copied();
        bytes.ok_or_else(|| self.truncated_error())
    }

    fn begin_block(&mut self, header_bytes: usize) -> Result<XzBlock, Error> {
        let Some(header) = self.input.peek_bytes(header_bytes)?.get(..header_bytes) else {
            return Err(self.truncated_error());
        };
        let parsed = block_header(header);
        let dictionary = parsed.map_err(|fault| self.decode_error(fault))?;
        self.decoded_before = self.decoded_before.saturating_add(self.decoded);
        self.decoded = 0;
        self.block_start = self.input.offset();
        self.data_start = self.block_start + header_bytes as u64;
        self.place = WalkPosition::Inside(header_bytes as u64, NextPosition::Chunk);
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
                Ok(WalkPosition::Inside(bytes, NextPosition::Chunk))
            }
            Some(Lzma2Chunk::End) => Ok(WalkPosition::Inside(self.end_block(), NextPosition::End)),
            // A truncated header is passed to the decoder, which may find that it is invalid
            // before it finds that it is truncated.
            None if left > 0 => Ok(WalkPosition::Inside(left, NextPosition::Chunk)),
            None => Err(self.truncated_error()),
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

    fn begin_index(&mut self) -> WalkPosition {
        let mut index = XzIndexReader::new(std::mem::take(&mut self.blocks));
        index.add_indicator(INDEX_INDICATOR);
        self.input.consume(1);
        WalkPosition::Index(Box::new(index))
    }

    fn step_index(&mut self, mut index: Box<XzIndexReader>) -> Result<WalkPosition, Error> {
        let head = self.input.peek_bytes(RECORD_BYTES)?;
        let mut rest = head;
        let progress = index.read_field(&mut rest);
        let used = head.len() - rest.len();
        match progress.map_err(|fault| self.decode_error(fault))? {
            IndexProgress::Short => Err(self.truncated_error()),
            IndexProgress::More => {
                self.input.consume(used);
                Ok(WalkPosition::Index(index))
            }
            IndexProgress::Complete => {
                self.input.consume(used);
                Ok(WalkPosition::Footer(index.consumed_bytes()))
            }
        }
    }

    fn read_footer(&mut self, index_bytes: u64) -> Result<WalkPosition, Error> {
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
        Ok(WalkPosition::Between)
    }

    fn truncated_error(&self) -> Error {
        truncated_error::<XzEngine>(&self.input)
    }

    fn corrupt_error(&self, reason: &str) -> Error {
        self.decode_error(EngineError::Corrupt(reason.to_owned()))
    }

    fn decode_error(&self, fault: EngineError) -> Error {
        fault.into_decode_error(XzEngine::CODEC, self.input.offset()).into()
    }
}
