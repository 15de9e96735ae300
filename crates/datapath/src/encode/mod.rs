//! The other direction of [`crate::decode`]: the bytes of a volume become the stream that an upload server takes for a clone.
//!
//! A stream is made of pieces, which can be encoded by several threads at once: each thread has an [`Encoder`], and what they make is
//! put in order.

mod flow;
pub mod outgoing;
pub mod outlet;
mod piece;
mod snappy;
pub(crate) mod zstd;

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
    /// Frames of zstd, which every program that undoes compression can read.
    Zstd,
}

impl Encoding {
    /// Most zeros of one [`Piece`], so that what becomes of it is small.
    pub const fn zeros_at_once(self) -> u64 {
        match self {
            Self::Plain => ZEROS.len() as u64,
            Self::Snappy => snappy::ZEROS_AT_ONCE,
            Self::Zstd => zstd::ZEROS_AT_ONCE,
        }
    }

    /// The first bytes of the stream.
    pub fn start(self) -> Bytes {
        match self {
            Self::Plain | Self::Zstd => Bytes::new(),
            Self::Snappy => snappy::start(),
        }
    }

    /// The encoder of a thread.
    pub fn encoder(self) -> Encoder {
        match self {
            Self::Plain => Encoder::Plain,
            Self::Snappy => Encoder::Snappy(Box::default()),
            Self::Zstd => Encoder::Zstd(Box::default()),
        }
    }
}

/// Encodes pieces.
pub enum Encoder {
    /// Leaves pieces as they are.
    Plain,
    /// Makes chunks of framed snappy.
    Snappy(Box<snappy::Encoder>),
    /// Makes frames of zstd.
    Zstd(Box<zstd::Encoder>),
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
            (Self::Zstd(encoder), piece) => encoder.encode(piece, squeeze),
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
