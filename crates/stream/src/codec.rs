//! The supported compression formats and their names.

use std::fmt;

/// A compression format that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// RFC 1952: any number of members, with zero padding at the end.
    Gzip,
    /// The .xz file format 1.2: any number of streams, with stream padding.
    Xz,
    /// RFC 8878: any number of frames and skippable frames.
    Zstd,
    /// bzip2: any number of streams.
    Bzip2,
    /// The snappy framing format. It is never detected from the content, because CDI's clones
    /// declare it.
    Snappy,
}

/// `Content-Encoding` names of the codecs that `codec::decode::sniff_codec` recognises. A
/// body with one of these encodings need not be decoded by the HTTP client.
pub const CONTENT_CODINGS: [&str; 5] = ["gzip", "x-gzip", "zstd", "bzip2", "xz"];

impl Codec {
    /// The name that messages, logs and metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Snappy => "snappy",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
