//! Compressed clusters, as far as a decoder has to know them.

/// The codec of a compressed cluster (or grain).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterCompression {
    /// Raw deflate (RFC 1951): qcow2.
    Deflate,
    /// Deflate in its zlib wrapper with a checksum (RFC 1950): VMDK.
    Zlib,
    /// Zstandard frames (RFC 8878): qcow2.
    Zstd,
}

/// The compressed clusters of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedClusters {
    /// Their codec.
    pub compression: ClusterCompression,
    /// Bytes of each, inflated.
    pub size: u64,
}
