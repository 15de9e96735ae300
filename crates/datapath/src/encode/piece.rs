//! Pieces of a volume, before and after they are encoded.

use bytes::Bytes;

use crate::buffer::{CHUNK_BYTES, PAGE};

/// Bytes of a piece of data at most. A decoder's chunk that begins anywhere in a page has room for it, and pieces of a device
/// keep the alignment of direct I/O.
pub const PIECE_BYTES: usize = CHUNK_BYTES - PAGE;

/// The next bytes of a volume.
#[derive(Debug, Clone)]
pub enum VolumePiece {
    /// Bytes that were read, at most [`PIECE_BYTES`].
    Data(Bytes),
    /// Zeros that were not read, only counted; at most [`Encoding::zeros_at_once`](super::Encoding::zeros_at_once).
    Zeros(u64),
}

impl VolumePiece {
    /// Bytes of the volume.
    pub fn volume_bytes(&self) -> u64 {
        match self {
            Self::Data(bytes) => bytes.len() as u64,
            Self::Zeros(count) => *count,
        }
    }
}

/// A part of an encoded piece.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodedBlock {
    /// The header of a frame, if the encoding has such.
    pub head: Bytes,
    /// The bytes behind it.
    pub body: Bytes,
}

impl EncodedBlock {
    /// Bytes of both.
    pub fn encoded_bytes(&self) -> u64 {
        (self.head.len() + self.body.len()) as u64
    }
}
