//! Parameters of a connection that are negotiated with the server.

use super::wire::BlockSizes;

/// The parameters that were negotiated with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NbdAgreement {
    /// Size of the export in bytes.
    pub size: u64,
    /// True if all connections to the export see the same bytes.
    pub multi_conn: bool,
    pub block_sizes: BlockSizes,
    /// True if replies are structured: they arrive in chunks, and holes are sent without their
    /// zeros.
    pub structured: bool,
    /// The number of the context `base:allocation` in replies, if block status is available.
    pub allocation: Option<u32>,
}
