//! The other direction of [`crate::decode`]: the bytes of a volume become the stream that an upload server takes for a clone.
//!
//! A stream is made of pieces, which can be encoded by several threads at once: each thread has a [`Encoder`], and what they make is
//! put in order and passes a [`Seal`], which knows the end.

mod flow;
mod frames;
pub mod outgoing;
pub mod outlet;
mod piece;
mod snappy;
mod zstd_frames;

use bytes::Bytes;

pub use self::piece::{Block, PIECE_BYTES, Piece};
use crate::zeros::ZEROS;

/// The wrapping of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Nothing.
    Plain,
    /// The snappy framing format: CDI's.
    Snappy,
    /// [`crate::frames`].
    Frames,
    /// Frames of zstd: for whoever undoes compression, and may know nothing of us.
    Zstd,
}

impl Encoding {
    /// Most zeros of one [`Piece`], so that what becomes of it is small.
    pub const fn zeros_at_once(self) -> u64 {
        match self {
            Self::Plain => ZEROS.len() as u64,
            Self::Snappy => snappy::ZEROS_AT_ONCE,
            Self::Frames => crate::frames::MAX_ZEROS,
            Self::Zstd => zstd_frames::ZEROS_AT_ONCE,
        }
    }

    /// The first bytes of the stream.
    pub fn start(self) -> Bytes {
        match self {
            Self::Plain | Self::Zstd => Bytes::new(),
            Self::Snappy => snappy::start(),
            Self::Frames => Bytes::from_static(crate::frames::MAGIC),
        }
    }

    /// The encoder of a thread.
    pub fn encoder(self) -> Encoder {
        match self {
            Self::Plain => Encoder::Plain,
            Self::Snappy => Encoder::Snappy(Box::default()),
            Self::Frames => Encoder::Frames(Box::new(frames::Encoder::new(frames::Form::Own))),
            Self::Zstd => Encoder::Frames(Box::new(frames::Encoder::new(frames::Form::Zstd))),
        }
    }

    /// The seal, which the encoded pieces pass in their order.
    pub fn seal(self) -> Seal {
        match self {
            Self::Plain | Self::Snappy | Self::Zstd => Seal(None),
            Self::Frames => Seal(Some(frames::Ledger::default())),
        }
    }
}

/// Encodes pieces.
pub enum Encoder {
    /// Leaves pieces as they are.
    Plain,
    /// Makes chunks of framed snappy.
    Snappy(Box<snappy::Encoder>),
    /// Makes frames, of `frames-1` or of zstd.
    Frames(Box<frames::Encoder>),
}

impl Encoder {
    /// Encodes one piece. `squeeze` says that time is better spent on compression than on sending; an encoding that
    /// always compresses does not ask.
    pub fn encode(&mut self, piece: Piece, squeeze: bool) -> Vec<Block> {
        match (self, piece) {
            (Self::Plain, piece) => vec![Block {
                head: Bytes::new(),
                body: plain(piece),
            }],
            (Self::Snappy(encoder), piece) => vec![encoder.encode(&piece)],
            (Self::Frames(encoder), piece) => encoder.encode(piece, squeeze),
        }
    }
}

fn plain(piece: Piece) -> Bytes {
    match piece {
        Piece::Data(bytes) => bytes,
        Piece::Zeros(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(ZEROS.len());
            Bytes::from_static(&ZEROS[..count])
        }
    }
}

/// Knows what was sent, in order, and so the end.
pub struct Seal(Option<frames::Ledger>);

impl Seal {
    /// `blocks` are the next ones of the stream and stand for `length` bytes.
    pub fn pass(&mut self, blocks: &[Block], length: u64) {
        if let Some(ledger) = &mut self.0 {
            ledger.pass(blocks, length);
        }
    }

    /// The last bytes of the stream.
    pub fn end(&self) -> Bytes {
        self.0.as_ref().map_or_else(Bytes::new, frames::Ledger::end)
    }
}
