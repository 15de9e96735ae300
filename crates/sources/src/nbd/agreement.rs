//! Limits of a connection.

use super::wire::BlockSizes;

/// The agreement with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NbdAgreement {
    /// Bytes of the export.
    pub(super) size: u64,
    /// True if all connections to the export see the same bytes.
    pub(super) multi_conn: bool,
    pub(super) block_sizes: BlockSizes,
    /// True if replies are structured: they come in chunks, and holes without their zeros.
    pub(super) structured: bool,
    /// The number of `base:allocation` in answers, if block status is available.
    pub(super) allocation: Option<u32>,
}
