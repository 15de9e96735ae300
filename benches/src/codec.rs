//! The codecs of whole streams, as encoders.

use std::io::{Read, Result};

use bytes::Bytes;

/// A codec that the data path undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// gzip, level 6.
    Gzip,
    /// xz, preset 6.
    Xz,
    /// Zstandard, level 3.
    Zstd,
    /// bzip2, level 9.
    Bzip2,
}

impl Codec {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gzip, Self::Xz, Self::Zstd, Self::Bzip2];

    /// As it appears in the names of benches.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
        }
    }

    /// `data` in one member, with the defaults of the codec's own program.
    pub fn compress(self, data: &[u8]) -> Result<Bytes> {
        let mut packed = Vec::new();
        match self {
            Self::Gzip => {
                flate2::read::GzEncoder::new(data, flate2::Compression::new(6)).read_to_end(&mut packed)
            }
            Self::Xz => liblzma::read::XzEncoder::new(data, 6).read_to_end(&mut packed),
            Self::Zstd => zstd::stream::read::Encoder::new(data, 3)?.read_to_end(&mut packed),
            Self::Bzip2 => {
                bzip2::read::BzEncoder::new(data, bzip2::Compression::best()).read_to_end(&mut packed)
            }
        }?;
        Ok(packed.into())
    }
}
