//! The names of the codecs.

use std::fmt;

/// A compression format that can be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// RFC 1952, any number of members, zero padding at the end.
    Gzip,
    /// The .xz file format 1.2, any number of streams with stream padding.
    Xz,
    /// RFC 8878, any number of frames and skippable frames.
    Zstd,
    /// bzip2, any number of streams.
    Bzip2,
    /// The snappy framing format. Never sniffed: clones of CDI come in it, and say so.
    Snappy,
}

/// Names of codecs in HTTP (`Content-Encoding`), as far as [`sniff`](crate::decode::sniff_codec) recognises them: they need not be undone on the way.
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
