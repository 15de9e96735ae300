//! Finds the blocks of an .xz file in the stream of its bytes, and verifies everything around them.
//!
//! The end of a block is learnt from the headers of its LZMA2 chunks, one for every 64 KiB or less. So it does not
//! matter whether a block header tells the block's sizes: `xz -T1` leaves them out, and a hostile one lies.

use crate::cursor::Cursor;
use bytes::Bytes;

use super::super::decoder::{Engine, Fault, find_member, truncated};
use super::block::{CHUNK_HEADER_BYTES, Chunk, block_header, block_header_bytes, chunk};
use super::engine::Xz;
use super::framing::{INDEX_INDICATOR, STREAM_HEADER_BYTES, StreamFlags, stream_footer, stream_header};
use super::index::{Blocks, Index, Progress, RECORD_BYTES};
use crate::chunks::Chunks;
use crate::error::Error;

/// A part of the file, in order.
pub(super) enum Part {
    /// A block begins.
    Begin(Block),
    /// The next bytes of the block; header, padding and check are among them.
    Bytes(Bytes),
    /// The block is complete, and decodes to this number of bytes.
    End(u64),
}

/// Facts about a block that are known when it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
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
enum Place {
    /// Before the first stream.
    Start,
    /// Behind a stream.
    Between,
    /// In a stream, where a block header or the index begins.
    Header,
    /// In a block, where an LZMA2 chunk begins.
    Chunk,
    /// In a block, within bytes that are passed on unseen: their number, and the place behind them.
    Inside(u64, Then),
    /// In the index.
    Index(Box<Index>),
    /// At the footer of a stream, whose index has this number of bytes.
    Footer(u64),
    /// At the verified end of the file.
    End,
}

/// The place behind bytes of a block.
#[derive(Clone, Copy)]
enum Then {
    /// The next LZMA2 chunk.
    Chunk,
    /// The end of the block.
    End,
}

/// Walks over a file.
pub(super) struct Walk {
    input: Cursor,
    place: Place,
    stream_header: [u8; STREAM_HEADER_BYTES],
    flags: StreamFlags,
    /// The complete blocks of the stream.
    blocks: Blocks,
    /// The offsets in the file of the current block, and of its compressed data.
    block_start: u64,
    data_start: u64,
    /// Bytes that the current block decodes to, by the headers of its LZMA2 chunks so far.
    decoded: u64,
    /// Bytes that all the blocks before it decode to.
    decoded_before: u64,
}

impl Walk {
    pub(super) fn new(inner: Box<dyn Chunks>) -> Self {
        Self {
            input: Cursor::new(inner),
            place: Place::Start,
            stream_header: [0; STREAM_HEADER_BYTES],
            flags: StreamFlags::default(),
            blocks: Blocks::default(),
            block_start: 0,
            data_start: 0,
            decoded: 0,
            decoded_before: 0,
        }
    }

    /// The next part, or `None` at the verified end.
    pub(super) fn next_part(&mut self) -> Result<Option<Part>, Error> {
        loop {
            // An error leaves the walk at its end: it must not be continued.
            self.place = match std::mem::replace(&mut self.place, Place::End) {
                Place::Start => self.find_stream(true)?,
                Place::Between => self.find_stream(false)?,
                Place::Header => match self.input.head(1)?.first() {
                    None => return Err(self.truncated()),
                    Some(&INDEX_INDICATOR) => self.begin_index(),
                    Some(&size) => {
                        let block = self.begin_block(block_header_bytes(size))?;
                        return Ok(Some(Part::Begin(block)));
                    }
                },
                Place::Chunk => self.begin_chunk()?,
                Place::Inside(0, Then::Chunk) => Place::Chunk,
                Place::Inside(0, Then::End) => {
                    self.place = Place::Header;
                    return Ok(Some(Part::End(self.decoded)));
                }
                Place::Inside(left, then) => {
                    let bytes = self.input.take(left)?;
                    if bytes.is_empty() {
                        return Err(self.truncated());
                    }
                    self.place = Place::Inside(left - bytes.len() as u64, then);
                    return Ok(Some(Part::Bytes(bytes)));
                }
                Place::Index(index) => self.step_index(index)?,
                Place::Footer(index_bytes) => self.footer(index_bytes)?,
                Place::End => return Ok(None),
            };
        }
    }

    fn find_stream(&mut self, first: bool) -> Result<Place, Error> {
        if !find_member::<Xz>(&mut self.input, first)? {
            return Ok(Place::End);
        }
        self.stream_header = self.fixed()?;
        self.flags = stream_header(&self.stream_header).map_err(|fault| self.fail(fault))?;
        self.input.consume(STREAM_HEADER_BYTES);
        self.blocks = Blocks::default();
        Ok(Place::Header)
    }

    /// The header of a stream or its footer, not consumed.
    fn fixed(&mut self) -> Result<[u8; STREAM_HEADER_BYTES], Error> {
        let bytes = self.input.head(STREAM_HEADER_BYTES)?.first_chunk().copied();
        bytes.ok_or_else(|| self.truncated())
    }

    fn begin_block(&mut self, header_bytes: usize) -> Result<Block, Error> {
        let Some(header) = self.input.head(header_bytes)?.get(..header_bytes) else {
            return Err(self.truncated());
        };
        let parsed = block_header(header);
        let dictionary = parsed.map_err(|fault| self.fail(fault))?;
        self.decoded_before = self.decoded_before.saturating_add(self.decoded);
        self.decoded = 0;
        self.block_start = self.input.offset();
        self.data_start = self.block_start + header_bytes as u64;
        self.place = Place::Inside(header_bytes as u64, Then::Chunk);
        Ok(Block {
            stream_header: self.stream_header,
            dictionary,
            start: self.block_start,
            offset: self.decoded_before,
        })
    }

    fn begin_chunk(&mut self) -> Result<Place, Error> {
        let head = self.input.head(CHUNK_HEADER_BYTES)?;
        let left = head.len() as u64;
        let next = chunk(head);
        match next.map_err(|fault| self.fail(fault))? {
            Some(Chunk::Data { bytes, decoded }) => {
                self.decoded = self.decoded.saturating_add(decoded);
                Ok(Place::Inside(bytes, Then::Chunk))
            }
            Some(Chunk::End) => Ok(Place::Inside(self.end_block(), Then::End)),
            // A header that the file cuts short goes to the decoder, which may find it invalid before it finds it short.
            None if left > 0 => Ok(Place::Inside(left, Then::Chunk)),
            None => Err(self.truncated()),
        }
    }

    /// Counts the block at whose end marker the cursor is. Returns the bytes that are left of it: the marker, padding
    /// to a multiple of four (§3.3), the check (§3.4).
    fn end_block(&mut self) -> u64 {
        let data_end = self.input.offset() + 1;
        let check = self.flags.check_bytes();
        self.blocks.add(data_end - self.block_start + check, self.decoded);
        let data = data_end - self.data_start;
        1 + data.next_multiple_of(4) - data + check
    }

    fn begin_index(&mut self) -> Place {
        let mut index = Index::new(std::mem::take(&mut self.blocks));
        index.indicator(INDEX_INDICATOR);
        self.input.consume(1);
        Place::Index(Box::new(index))
    }

    fn step_index(&mut self, mut index: Box<Index>) -> Result<Place, Error> {
        let head = self.input.head(RECORD_BYTES)?;
        let mut rest = head;
        let progress = index.step(&mut rest);
        let used = head.len() - rest.len();
        match progress.map_err(|fault| self.fail(fault))? {
            Progress::Short => Err(self.truncated()),
            Progress::More => {
                self.input.consume(used);
                Ok(Place::Index(index))
            }
            Progress::Complete => {
                self.input.consume(used);
                Ok(Place::Footer(index.bytes()))
            }
        }
    }

    fn footer(&mut self, index_bytes: u64) -> Result<Place, Error> {
        let bytes = self.fixed()?;
        let (flags, backward) = stream_footer(&bytes).map_err(|fault| self.fail(fault))?;
        if flags != self.flags {
            return Err(self.corrupt("its header and its footer have different flags"));
        }
        if backward != index_bytes {
            return Err(self.corrupt(&format!(
                "its footer says that the index has {backward} bytes, it has {index_bytes}"
            )));
        }
        self.input.consume(STREAM_HEADER_BYTES);
        Ok(Place::Between)
    }

    fn truncated(&self) -> Error {
        truncated::<Xz>(&self.input)
    }

    fn corrupt(&self, reason: &str) -> Error {
        self.fail(Fault::Corrupt(reason.to_owned()))
    }

    fn fail(&self, fault: Fault) -> Error {
        fault.at(Xz::CODEC, self.input.offset()).into()
    }
}
