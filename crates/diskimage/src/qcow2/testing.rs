//! A header for tests.

use super::header::Qcow2Header;
use crate::{ClusterCompression, Host};

/// Creates a version 3 header for tests.
pub(crate) fn header(cluster_bits: u32) -> Qcow2Header {
    Qcow2Header {
        version: 3,
        virtual_size: 1 << 30,
        cluster_bits,
        compression: ClusterCompression::Deflate,
        extended_l2: false,
        l1_entries: 2,
        l1_size: 2,
        l1_offset: Host(1 << cluster_bits),
        refcount_table_offset: Host(2 << cluster_bits),
        refcount_table_bytes: 1 << cluster_bits,
        refcount_order: 4,
        snapshots: 0,
        snapshot_table_offset: Host(0),
        bitmap_count: 0,
        bitmaps: None,
        dirty: false,
        is_delta: false,
        corrupt: false,
    }
}
