//! The properties of compressed clusters that a decoder needs to know.

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

/// Codec and size of the compressed clusters of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedClusters {
    /// The codec of all compressed clusters.
    pub compression: ClusterCompression,
    /// Bytes of each cluster when inflated.
    pub size: u64,
}
