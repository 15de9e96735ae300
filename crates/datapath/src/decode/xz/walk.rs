//! Finds the blocks of an .xz file in the stream of its bytes, and verifies everything around them.
//!
//! The end of a block is learnt from the headers of its LZMA2 chunks, one for every 64 KiB or less. So it does not
//! matter whether a block header tells the block's sizes: `xz -T1` leaves them out, and a hostile one lies.

use crate::cursor::ChunkCursor;
use bytes::Bytes;

use super::super::decoder::{DecoderEngine, EngineError, find_member, truncated_error};
use super::block::{CHUNK_HEADER_BYTES, Lzma2Chunk, block_header, block_header_bytes, parse_chunk_header};
use super::engine::XzEngine;
use super::framing::{INDEX_INDICATOR, STREAM_HEADER_BYTES, StreamFlags, stream_footer, stream_header};
use super::index::{BlockListDigest, IndexProgress, RECORD_BYTES, XzIndexReader};
use crate::chunks::ChunkStream;
use crate::error::Error;

/// A part of the file, in order.
pub(super) enum XzFilePart {
    /// A block begins.
    Begin(XzBlock),
    /// The next bytes of the block; header, padding and check are among them.
    Bytes(Bytes),
    /// The block is complete, and decodes to this number of bytes.
    End(u64),
}

/// Facts about a block that are known when it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct XzBlock {
    /// The header of its stream, without which a decoder does not know its integrity check.
    pub(super) stream_header: [u8; STREAM_HEADER_BYTES],
    /// Bytes of dictionary that decoding it can touch.
    pub(super) dictionary: u64,
    /// Its offset in the file.
    pub(super) start: u64,
    /// The offset in the decoded file of what it decodes to.
    pub(super) offset: u64,
}

/// The place of the cursor.
enum WalkPosition {
    /// Before the first stream.
    Start,
    /// Behind a stream.
    Between,
    /// In a stream, where a block header or the index begins.
    Header,
    /// In a block, where an LZMA2 chunk begins.
    Chunk,
    /// In a block, within bytes that are passed on unseen: their number, and the place behind them.
    Inside(u64, NextPosition),
    /// In the index.
    Index(Box<XzIndexReader>),
    /// At the footer of a stream, whose index has this number of bytes.
    Footer(u64),
    /// At the verified end of the file.
    End,
}

/// The place behind bytes of a block.
#[derive(Clone, Copy)]
enum NextPosition {
    /// The next LZMA2 chunk.
    Chunk,
    /// The end of the block.
    End,
}

/// Walks over a file.
pub(super) struct XzFileWalk {
    input: ChunkCursor,
    place: WalkPosition,
    stream_header: [u8; STREAM_HEADER_BYTES],
    flags: StreamFlags,
    /// The complete blocks of the stream.
    blocks: BlockListDigest,
    /// The offsets in the file of the current block, and of its compressed data.
    block_start: u64,
    data_start: u64,
    /// Bytes that the current block decodes to, by the headers of its LZMA2 chunks so far.
    decoded: u64,
    /// Bytes that all the blocks before it decode to.
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

    /// The next part, or `None` at the verified end.
    pub(super) fn next_part(&mut self) -> Result<Option<XzFilePart>, Error> {
        loop {
            // An error leaves the walk at its end: it must not be continued.
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

    fn find_stream(&mut self, first: bool) -> Result<WalkPosition, Error> {
        if !find_member::<XzEngine>(&mut self.input, first)? {
            return Ok(WalkPosition::End);
        }
        self.stream_header = self.peek_header()?;
        self.flags = stream_header(&self.stream_header).map_err(|fault| self.decode_error(fault))?;
        self.input.consume(STREAM_HEADER_BYTES);
        self.blocks = BlockListDigest::default();
        Ok(WalkPosition::Header)
    }

    /// The header of a stream or its footer, not consumed.
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
            // A header that the file cuts short goes to the decoder, which may find it invalid before it finds it short.
            None if left > 0 => Ok(WalkPosition::Inside(left, NextPosition::Chunk)),
            None => Err(self.truncated_error()),
        }
    }

    /// Counts the block at whose end marker the cursor is. Returns the bytes that are left of it: the marker, padding
    /// to a multiple of four (§3.3), the check (§3.4).
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
                "its footer says that the index has {backward} bytes, it has {index_bytes}"
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
