//! Trouble with a compressed layer.

use crate::memory::MemoryLimitError;

/// A failure of the decode stage. `codec` is the name of the layer, outermost layer first in a stack.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The stream ended inside a member, frame, block or trailer.
    #[error("the {codec} stream is truncated after {offset} compressed bytes")]
    Truncated {
        /// Name of the layer.
        codec: &'static str,
        /// Compressed bytes of this layer that were read.
        offset: u64,
    },
    /// The decoder found bytes that its format does not allow, or a checksum of it does not match.
    #[error("the {codec} stream is corrupt at compressed byte {offset}: {reason}")]
    Corrupt {
        /// Name of the layer.
        codec: &'static str,
        /// Compressed bytes of this layer that were read.
        offset: u64,
        /// The words of the decoder.
        reason: String,
    },
    /// Something follows the end of the compressed stream that is not another member of it.
    #[error("the {codec} stream is followed by bytes that do not belong to it, at compressed byte {offset}")]
    TrailingGarbage {
        /// Name of the layer.
        codec: &'static str,
        /// Offset of the foreign bytes.
        offset: u64,
    },
    /// The stream needs a larger window or dictionary than there is memory for.
    #[error(
        "the {codec} stream {exceeded}: recompress it with a smaller window, or give the process more memory"
    )]
    Memory {
        /// Name of the layer.
        codec: &'static str,
        /// The memory that it asks for, and that there is.
        exceeded: MemoryLimitError,
    },
    /// A layer goes on and on, and next to nothing comes out of the stack.
    #[error(
        "{consumed} bytes of the {codec} stream came, and only {decoded} bytes of an image came out of them: it is not worth its transfer"
    )]
    Barren {
        /// Name of the layer.
        codec: &'static str,
        /// Compressed bytes of this layer that were read.
        consumed: u64,
        /// Bytes that came out below all layers.
        decoded: u64,
    },
    /// More layers inside each other than the documented depth.
    #[error("more than {limit} compressed layers inside each other")]
    TooDeep {
        /// The documented depth.
        limit: usize,
    },
    /// A codec that is recognised but not supported.
    #[error("{0} compression is not supported: recompress the image with gzip, xz, zstd or bzip2")]
    Unsupported(&'static str),
    /// A stream that has no bytes at all.
    #[error("could not process image header: EOF")]
    Empty,
    /// A stream that ends within the header that an image was to have. The words before the number are upstream's.
    #[error(
        "could not process image header: unexpected EOF: {bytes} bytes are no disk image; is it a page about one?"
    )]
    ShortHeader {
        /// Bytes of the stream.
        bytes: usize,
    },
}

impl DecodeError {
    /// The names of all kinds.
    // `kind` takes them apart, so that it can have no other.
    pub(super) const KINDS: [&'static str; 6] =
        ["truncated", "corrupt", "memory", "barren", "unsupported", "empty"];

    /// The kind, a coarse one.
    pub(super) const fn kind_name(&self) -> &'static str {
        let [truncated, corrupt, memory, barren, unsupported, empty] = Self::KINDS;
        match self {
            Self::Truncated { .. } => truncated,
            Self::Corrupt { .. } | Self::TrailingGarbage { .. } => corrupt,
            Self::Memory { .. } => memory,
            Self::Barren { .. } => barren,
            Self::TooDeep { .. } | Self::Unsupported(_) => unsupported,
            Self::Empty | Self::ShortHeader { .. } => empty,
        }
    }
}
