//! The other direction of [`crate::decode`]: the bytes of a volume become the stream that an upload server takes for a clone.
//!
//! A stream is made of pieces, which can be encoded by several threads at once: each thread has an [`PieceEncoder`], and what they make is
//! put in order.

mod flow;
pub mod outgoing;
pub mod outlet;
mod piece;
mod snappy;
pub(crate) mod zstd;

use bytes::Bytes;

pub use self::piece::{EncodedBlock, PIECE_BYTES, VolumePiece};
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
    /// Most zeros of one [`VolumePiece`], so that what becomes of it is small.
    pub const fn zeros_at_once(self) -> u64 {
        match self {
            Self::Plain => ZEROS.len() as u64,
            Self::Snappy => snappy::ZEROS_AT_ONCE,
            Self::Zstd => zstd::ZEROS_AT_ONCE,
        }
    }

    /// The first bytes of the stream.
    pub fn stream_header(self) -> Bytes {
        match self {
            Self::Plain | Self::Zstd => Bytes::new(),
            Self::Snappy => snappy::stream_identifier(),
        }
    }

    /// The encoder of a thread.
    pub fn new_encoder(self) -> PieceEncoder {
        match self {
            Self::Plain => PieceEncoder::Plain,
            Self::Snappy => PieceEncoder::Snappy(Box::default()),
            Self::Zstd => PieceEncoder::Zstd(Box::default()),
        }
    }
}

/// Encodes pieces.
pub enum PieceEncoder {
    /// Leaves pieces as they are.
    Plain,
    /// Makes chunks of framed snappy.
    Snappy(Box<snappy::SnappyEncoder>),
    /// Makes frames of zstd.
    Zstd(Box<zstd::Encoder>),
}

impl PieceEncoder {
    /// Encodes one piece. `squeeze` says that time is better spent on compression than on sending; an encoding that
    /// always compresses does not ask.
    pub fn encode_piece(&mut self, piece: VolumePiece, squeeze: bool) -> Vec<EncodedBlock> {
        match (self, piece) {
            (Self::Plain, piece) => vec![EncodedBlock { head: Bytes::new(), body: plain_bytes(piece) }],
            (Self::Snappy(encoder), piece) => vec![encoder.encode_piece(&piece)],
            (Self::Zstd(encoder), piece) => encoder.encode_piece(piece, squeeze),
        }
    }
}

fn plain_bytes(piece: VolumePiece) -> Bytes {
    match piece {
        VolumePiece::Data(bytes) => bytes,
        VolumePiece::Zeros(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(ZEROS.len());
            Bytes::from_static(&ZEROS[..count])
        }
    }
}
