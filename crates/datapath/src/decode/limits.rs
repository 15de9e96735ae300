//! Caps of a stack of decoders.

use std::num::NonZeroUsize;

use crate::memory::Budget;

/// Default of [`Limits::spare_bytes`]: headers, indexes, seek tables and padding take less.
const SPARE_BYTES: u64 = 64 << 20;

/// Costs that all layers of a stack may have together.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Memory that windows (zstd) and dictionaries (xz) are taken from. Asked for by the stream's own header, before the memory
    /// is taken.
    pub memory: Budget,
    /// Bytes that a layer may read before something comes out below all of them; see `spent.rs`.
    pub spare_bytes: u64,
    /// Threads that a layer may decode with, where its format and its encoder allow that (xz). With one, the thread
    /// that reads decodes.
    pub threads: NonZeroUsize,
}

impl Default for Limits {
    /// The budget of the process, what real streams need, and one thread.
    fn default() -> Self {
        Self {
            memory: Budget::default(),
            spare_bytes: SPARE_BYTES,
            threads: NonZeroUsize::MIN,
        }
    }
}
