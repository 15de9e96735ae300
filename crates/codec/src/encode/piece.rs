//! Pieces of a volume, before and after they are encoded.

use bytes::Bytes;

use stream::buffer::{CHUNK_BYTES, PAGE};

/// Maximum size of a piece of data in bytes. A piece fits into a chunk of the decoder at any
/// position within a page, and pieces of a device keep the alignment for direct I/O.
pub const PIECE_BYTES: usize = CHUNK_BYTES - PAGE;

/// The next bytes of a volume.
#[derive(Debug, Clone)]
pub enum VolumePiece {
    /// Data that was read, at most [`PIECE_BYTES`].
    Data(Bytes),
    /// A number of zeros that were not read; at most
    /// [`Encoding::zeros_at_once`](super::Encoding::zeros_at_once).
    Zeros(u64),
}

impl VolumePiece {
    /// Returns the number of bytes of the volume.
    pub(crate) fn volume_bytes(&self) -> u64 {
        match self {
            Self::Data(bytes) => bytes.len() as u64,
            Self::Zeros(count) => *count,
        }
    }
}

/// The way a piece is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceKind {
    /// Zeros, which are counted and not read.
    Zeros,
    /// Uncompressed data.
    Stored,
    /// Data that is compressed, unless that saves too little.
    Squeezed,
}

/// A piece after it was encoded.
pub struct EncodedPiece {
    /// The encoded bytes, in parts: data that is stored unchanged is not copied behind its header.
    pub parts: Vec<Bytes>,
    /// Number of bytes of the volume that the parts encode.
    pub length: u64,
    /// The way the piece is encoded.
    pub kind: PieceKind,
}
