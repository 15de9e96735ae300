//! Encoders for the codecs of whole streams.

use std::io::{Read, Result};

use bytes::Bytes;

/// Uncompressed size of a block of [`Codec::XzBlocks`].
const XZ_BLOCK_BYTES: usize = 1 << 20;

/// A codec that the data path can decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// gzip, level 6.
    Gzip,
    /// xz, preset 6.
    Xz,
    /// xz, preset 6, in blocks of 1 MiB, which several threads can decode.
    XzBlocks,
    /// Zstandard, level 3.
    Zstd,
    /// bzip2, level 9.
    Bzip2,
}

impl Codec {
    /// All codecs, with one variant of xz.
    pub const ALL: [Self; 4] = [Self::Gzip, Self::Xz, Self::Zstd, Self::Bzip2];

    /// The codec's name in benchmark names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::XzBlocks => "xz-blocks",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
        }
    }

    /// Compresses `data` with the default settings of the codec's own program.
    pub fn compress(self, data: &[u8]) -> Result<Bytes> {
        let mut packed = Vec::new();
        match self {
            Self::Gzip => flate2::read::GzEncoder::new(data, flate2::Compression::new(6))
                .read_to_end(&mut packed),
            Self::Xz => liblzma::read::XzEncoder::new(data, 6).read_to_end(&mut packed),
            // Each block is a stream of its own; a file may contain any number of streams (.xz
            // file format 1.2, §2).
            Self::XzBlocks => data
                .chunks(XZ_BLOCK_BYTES)
                .map(|block| liblzma::read::XzEncoder::new(block, 6).read_to_end(&mut packed))
                .sum(),
            Self::Zstd => zstd::stream::read::Encoder::new(data, 3)?.read_to_end(&mut packed),
            Self::Bzip2 => bzip2::read::BzEncoder::new(data, bzip2::Compression::best())
                .read_to_end(&mut packed),
        }?;
        Ok(packed.into())
    }
}
