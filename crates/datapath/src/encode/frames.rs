//! Frames of our own and of zstd: data that is stored or compressed, and counted zeros.

use bytes::Bytes;
use zstd::bulk::Compressor;

use super::piece::{Block, Piece};
use super::zstd_frames;
use crate::frames::{Header, Kind};
use crate::zeros::is_zero;

/// Granularity in which zeros are taken out of data: small against a frame, large against its header.
const RUN_BYTES: usize = 16 << 10;

/// The fastest of zstd's ordinary levels: what is between two pods is a network of a gigabit and more.
const LEVEL: i32 = 1;

/// The form of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// [`crate::frames`].
    Own,
    /// RFC 8878.
    Zstd,
}

/// Makes frames.
pub struct Encoder {
    form: Form,
    /// Made when it is first needed; `None` also when the library cannot make one, and then all is stored.
    zstd: Option<Compressor<'static>>,
    scratch: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(form: Form) -> Self {
        Self {
            form,
            zstd: None,
            scratch: Vec::new(),
        }
    }

    pub(super) fn encode(&mut self, piece: Piece, squeeze: bool) -> Vec<Block> {
        match piece {
            Piece::Zeros(0) => Vec::new(),
            Piece::Zeros(count) => vec![self.zeros(count)],
            Piece::Data(bytes) => self.data(&bytes, squeeze),
        }
    }

    fn data(&mut self, bytes: &Bytes, squeeze: bool) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut start = 0;
        while let Some(rest) = bytes.get(start..)
            && !rest.is_empty()
        {
            let is_hole = starts_with_zeros(rest);
            let run: usize = rest
                .chunks(RUN_BYTES)
                .take_while(|part| starts_with_zeros(part) == is_hole)
                .map(<[u8]>::len)
                .sum();
            if is_hole {
                blocks.push(self.zeros(run as u64));
            } else {
                self.payload(bytes.slice(start..start + run), squeeze, &mut blocks);
            }
            start += run;
        }
        blocks
    }

    fn zeros(&self, count: u64) -> Block {
        match self.form {
            Form::Own => block(Kind::Zeros, count, Bytes::new()),
            Form::Zstd => zstd_frames::zeros(count),
        }
    }

    fn payload(&mut self, bytes: Bytes, squeeze: bool, blocks: &mut Vec<Block>) {
        let length = bytes.len() as u64;
        let compressed = if squeeze { self.compress(&bytes) } else { None };
        let compressed = compressed.map(Bytes::copy_from_slice);
        match (self.form, compressed) {
            (Form::Own, Some(body)) => blocks.push(block(Kind::Zstd, length, body)),
            (Form::Own, None) => blocks.push(block(Kind::Stored, length, bytes)),
            (Form::Zstd, Some(body)) => blocks.push(Block {
                head: Bytes::new(),
                body,
            }),
            (Form::Zstd, None) => zstd_frames::store(&bytes, blocks),
        }
    }

    /// `None` if less than an eighth is saved: then decompressing it costs more than it is worth.
    fn compress(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        if self.zstd.is_none() {
            self.zstd = Compressor::new(LEVEL).ok();
        }
        self.scratch.resize(bytes.len() - bytes.len() / 8, 0);
        // What does not fit in there is an error.
        let length = self
            .zstd
            .as_mut()?
            .compress_to_buffer(bytes, &mut self.scratch[..]);
        self.scratch.get(..length.ok()?)
    }
}

/// True if a run of zeros begins here. The rest of a piece may be short.
fn starts_with_zeros(bytes: &[u8]) -> bool {
    is_zero(&bytes[..bytes.len().min(RUN_BYTES)])
}

fn block(kind: Kind, length: u64, body: Bytes) -> Block {
    Block {
        head: Bytes::copy_from_slice(&Header::seal(kind, length, &body)),
        body,
    }
}

/// Sums of the frames that have passed.
#[derive(Default)]
pub(super) struct Ledger {
    length: u64,
    /// CRC-32C of all headers.
    headers: u32,
}

impl Ledger {
    pub(super) fn pass(&mut self, blocks: &[Block], length: u64) {
        self.length += length;
        for block in blocks {
            self.headers = crc32c::crc32c_append(self.headers, &block.head);
        }
    }

    pub(super) fn end(&self) -> Bytes {
        let payload = self.headers.to_le_bytes();
        let header = Header::seal(Kind::End, self.length, &payload);
        [&header[..], &payload].concat().into()
    }
}
