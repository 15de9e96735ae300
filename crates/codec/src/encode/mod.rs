//! Encodes the bytes of a volume as a stream that an upload server accepts as a clone.
//! [`crate::decode`] is the other direction.
//!
//! A stream consists of pieces, which several threads can encode at once. Each thread has a
//! [`PieceEncoder`], and the encoded pieces are put back in order.

pub mod blocks;
mod flow;
pub mod outgoing;
pub mod outlet;
mod piece;
pub mod qcow2;
mod snappy;
pub(crate) mod zstd;

use bytes::Bytes;
use diskimage::qcow2::Qcow2Compression;
use stream::zeros::ZEROS;

pub use self::piece::{EncodedPiece, PIECE_BYTES, VolumePiece};

/// Maximum number of threads that compress a file. Each takes up to 2 MiB; the process must stay
/// below 64 MiB.
pub const MAX_FILE_ENCODERS: usize = 8;

/// When data is compressed for a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionRule {
    /// While the network is slower than reading and encoding.
    IfSlow,
    /// Always. The same pieces always give the same bytes.
    Always,
}

impl CompressionRule {
    /// Returns the rule for a process that may decide by the rates that it measures, or may not.
    pub fn new(is_pace_fixed: bool) -> Self {
        if is_pace_fixed { Self::Always } else { Self::IfSlow }
    }
}

/// The encoding of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// The bytes are sent unchanged.
    Plain,
    /// The snappy framing format, which CDI uses.
    Snappy,
    /// Zstd frames, which every program with zstd support can read.
    Zstd(CompressionRule),
    /// Zstd frames for a file that is kept: data is always compressed, and better than for a
    /// network. The same pieces always give the same bytes.
    ZstdFile,
    /// Clusters of a qcow2 image. The pieces must come from a [`blocks::BlockOutlet`], and
    /// [`qcow2::append_piece`] turns what is encoded into an image.
    Qcow2(Qcow2Compression),
}

impl Encoding {
    /// Returns the largest number of zeros in one [`VolumePiece`]. It is limited so that the
    /// encoded piece stays small.
    pub fn zeros_at_once(self) -> u64 {
        match self {
            Self::Plain => ZEROS.len() as u64,
            Self::Snappy => snappy::ZEROS_AT_ONCE,
            Self::Zstd(_) | Self::ZstdFile => zstd::ZEROS_AT_ONCE,
            Self::Qcow2(_) => u64::MAX,
        }
    }

    /// Returns the size of the blocks into which a disk is cut, at most [`PIECE_BYTES`].
    const fn block_bytes(self) -> usize {
        match self {
            Self::Plain | Self::Snappy | Self::Zstd(_) | Self::ZstdFile => PIECE_BYTES,
            Self::Qcow2(_) => qcow2::BLOCK_BYTES,
        }
    }

    /// Returns the bytes at the beginning of the stream, before the first piece.
    pub(crate) fn stream_header(self) -> Bytes {
        match self {
            Self::Plain | Self::Zstd(_) | Self::ZstdFile | Self::Qcow2(_) => Bytes::new(),
            Self::Snappy => snappy::stream_identifier(),
        }
    }

    /// Creates an encoder. Each thread needs its own.
    pub fn new_encoder(self) -> PieceEncoder {
        match self {
            Self::Plain => PieceEncoder::Plain,
            Self::Snappy => PieceEncoder::Snappy(Box::default()),
            Self::Zstd(rule) => PieceEncoder::Zstd(Box::new(zstd::Encoder::for_network(rule))),
            Self::ZstdFile => PieceEncoder::Zstd(Box::new(zstd::Encoder::for_file())),
            Self::Qcow2(compression) => {
                PieceEncoder::Qcow2(Box::new(qcow2::ClusterEncoder::new(compression)))
            }
        }
    }
}

/// Encodes pieces of a volume.
pub enum PieceEncoder {
    /// Leaves pieces unchanged.
    Plain,
    /// Encodes pieces as chunks of the snappy framing format.
    Snappy(Box<snappy::SnappyEncoder>),
    /// Encodes pieces as zstd frames.
    Zstd(Box<zstd::Encoder>),
    /// Encodes pieces as clusters of a qcow2 image.
    Qcow2(Box<qcow2::ClusterEncoder>),
}

impl PieceEncoder {
    /// Returns true if data is compressed even while the network is fast.
    fn always_compresses(&self) -> bool {
        match self {
            Self::Plain => false,
            Self::Snappy(_) | Self::Qcow2(_) => true,
            Self::Zstd(encoder) => encoder.always_compresses,
        }
    }

    /// Encodes one piece. If `squeeze` is true, the network is the bottleneck, so the piece should
    /// be compressed. Encodings that always compress ignore it.
    pub fn encode_piece(&mut self, piece: VolumePiece, squeeze: bool) -> Vec<Bytes> {
        match self {
            Self::Plain => vec![plain_bytes(piece)],
            Self::Snappy(encoder) => vec![encoder.encode_piece(&piece)],
            Self::Zstd(encoder) => encoder.encode_piece(piece, squeeze),
            Self::Qcow2(encoder) => encoder.encode_piece(piece),
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
