//! The codecs of whole streams, as encoders.

use std::io::{Read, Result};

use bytes::Bytes;

/// Data in a block of [`Codec::XzBlocks`].
const XZ_BLOCK_BYTES: usize = 1 << 20;

/// A codec that the data path undoes.
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
    /// Those that differ in more than the block size.
    pub const ALL: [Self; 4] = [Self::Gzip, Self::Xz, Self::Zstd, Self::Bzip2];

    /// As it appears in the names of benches.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::XzBlocks => "xz-blocks",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
        }
    }

    /// `data` compressed with the defaults of the codec's own program.
    pub fn compress(self, data: &[u8]) -> Result<Bytes> {
        let mut packed = Vec::new();
        match self {
            Self::Gzip => {
                flate2::read::GzEncoder::new(data, flate2::Compression::new(6)).read_to_end(&mut packed)
            }
            Self::Xz => liblzma::read::XzEncoder::new(data, 6).read_to_end(&mut packed),
            // Each block in a stream of its own: a file may have any number of those (.xz file format 1.2, §2).
            Self::XzBlocks => data
                .chunks(XZ_BLOCK_BYTES)
                .map(|block| liblzma::read::XzEncoder::new(block, 6).read_to_end(&mut packed))
                .sum(),
            Self::Zstd => zstd::stream::read::Encoder::new(data, 3)?.read_to_end(&mut packed),
            Self::Bzip2 => {
                bzip2::read::BzEncoder::new(data, bzip2::Compression::best()).read_to_end(&mut packed)
            }
        }?;
        Ok(packed.into())
    }
}
