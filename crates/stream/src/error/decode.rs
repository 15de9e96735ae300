//! Errors of compressed layers.

use crate::codec::Codec;
use crate::memory::MemoryLimitError;

/// A failure of the decode stage. `codec` names the layer that failed.
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
    /// The bytes violate the format, or a checksum in the stream does not match.
    #[error("the {codec} stream is corrupt at compressed byte {offset}: {reason}")]
    Corrupt {
        /// Name of the layer.
        codec: &'static str,
        /// Compressed bytes of this layer that were read.
        offset: u64,
        /// The decoder's message.
        reason: String,
    },
    /// The end of the compressed stream is followed by bytes that do not begin another member.
    #[error(
        "the {codec} stream is followed by bytes that do not belong to it, at compressed byte {offset}"
    )]
    TrailingGarbage {
        /// Name of the layer.
        codec: &'static str,
        /// Offset of the foreign bytes.
        offset: u64,
    },
    /// The stream needs a larger window or dictionary than the memory budget allows.
    #[error(
        "the {codec} stream {exceeded}: recompress it with a smaller window, or give the process more memory"
    )]
    Memory {
        /// Name of the layer.
        codec: &'static str,
        /// The memory that the stream needs, and the memory that is available.
        exceeded: MemoryLimitError,
    },
    /// The stream has a part that only a newer version of its format defines.
    #[error("the {codec} stream has {part} of an unknown type: decompress it with a newer {codec}")]
    Newer {
        /// Name of the layer.
        codec: &'static str,
        /// The part, with an article.
        part: &'static str,
    },
    /// A layer has read many bytes, but the whole stack of layers has produced almost none.
    #[error(
        "{consumed} bytes of the {codec} stream decode to only {decoded} bytes of an image: streams with so little data are rejected"
    )]
    Barren {
        /// Name of the layer.
        codec: &'static str,
        /// Compressed bytes of this layer that were read.
        consumed: u64,
        /// Bytes that came out of the innermost layer.
        decoded: u64,
    },
    /// More nested layers than the documented limit.
    #[error("more than {limit} nested layers of compression")]
    TooDeep {
        /// The documented limit.
        limit: usize,
    },
    /// The codec is recognised but not supported.
    #[error(
        "{0} compression is not supported: recompress the image with {names}",
        names = Codec::sniffed_names()
    )]
    Unsupported(&'static str),
    /// The stream is empty.
    #[error("could not process image header: EOF")]
    Empty,
    /// The stream is shorter than an image header. The text before the number is upstream's.
    #[error(
        "could not process image header: unexpected EOF: {bytes} bytes are not a disk image; is it an error page?"
    )]
    ShortHeader {
        /// Bytes of the stream.
        bytes: usize,
    },
}

impl DecodeError {
    /// Names of all kinds, for the metric label `kind`.
    // `kind_name` destructures this array, so it cannot return a name that is not listed here.
    pub(super) const KINDS: [&'static str; 6] =
        ["truncated", "corrupt", "memory", "barren", "unsupported", "empty"];

    /// Name of the kind. Several variants share one name.
    pub(super) const fn kind_name(&self) -> &'static str {
        let [truncated, corrupt, memory, barren, unsupported, empty] = Self::KINDS;
        match self {
            Self::Truncated { .. } => truncated,
            Self::Corrupt { .. } | Self::TrailingGarbage { .. } => corrupt,
            Self::Memory { .. } => memory,
            Self::Barren { .. } => barren,
            Self::TooDeep { .. } | Self::Unsupported(_) | Self::Newer { .. } => unsupported,
            Self::Empty | Self::ShortHeader { .. } => empty,
        }
    }
}
