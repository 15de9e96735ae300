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
    /// The codecs that are detected from the content, in the order in which messages list them.
    pub const SNIFFED: [Self; 4] = [Self::Gzip, Self::Xz, Self::Zstd, Self::Bzip2];

    /// The name that messages, logs and metrics use, and the name of the codec's program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Snappy => "snappy",
        }
    }

    /// The extension of the names of compressed files.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Gzip => "gz",
            Self::Xz => "xz",
            Self::Zstd => "zst",
            Self::Bzip2 => "bz2",
            Self::Snappy => "sz",
        }
    }

    /// The names in [`Codec::SNIFFED`] as a part of a sentence: `gzip, xz, zstd or bzip2`.
    pub(crate) fn sniffed_names() -> String {
        let [others @ .., last] = Self::SNIFFED.map(Self::name);
        format!("{} or {last}", others.join(", "))
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
