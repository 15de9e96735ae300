//! Divides the memory that the cgroup allows into shares, which limit the numbers of simultaneous
//! uploads and connections; and the allocator's thread.

use std::num::NonZeroUsize;

/// Memory of a proxy without clients (12 to 16 MiB), and memory for responses of the API server
/// (`api`).
const RESERVED_BYTES: u64 = 32 << 20;

/// Memory of an upload whose upload server does not read while its client sends as fast as it can.
/// It consists of the data of one TLS read (128 KiB), the HTTP read buffer and the frames before
/// and after it (128 KiB each), the write buffer (64 KiB), and TLS records that are not sent yet
/// (128 KiB, in buffers of 20 KiB for each 16 KiB). The measured value was 0.84 MiB. The kernel's
/// socket buffers are additional in cgroups that count them.
const UPLOAD_BYTES: u64 = 896 << 10;

/// Memory of any other connection. It takes 36 KiB without a request, and up to this value while a
/// client whose request was rejected continues to send. The buffers are then the same as for an
/// upload, up to and including the frame after the HTTP read buffer.
const CONNECTION_BYTES: u64 = 512 << 10;

/// Numbers of clients that fit into a memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryShares {
    /// Maximum number of simultaneous uploads.
    pub(crate) uploads: NonZeroUsize,
    /// Maximum number of other simultaneous connections.
    pub(crate) others: usize,
}

impl MemoryShares {
    /// Computes the numbers for a limit of `limit_bytes`. Half of the memory beyond the reserve is
    /// for uploads, and the other half is for other connections.
    pub(crate) fn from_limit(limit_bytes: u64) -> Self {
        let half = limit_bytes.saturating_sub(RESERVED_BYTES) / 2;
        let count = |each: u64| usize::try_from(half / each).unwrap_or(usize::MAX);
        Self {
            uploads: NonZeroUsize::new(count(UPLOAD_BYTES)).unwrap_or(NonZeroUsize::MIN),
            others: count(CONNECTION_BYTES),
        }
    }
}

/// Runs `work` while the allocator has no thread of its own. Landlock restricts only threads that
/// start later.
pub(crate) fn without_background_thread<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(feature = "jemalloc")]
    tikv_jemalloc_ctl::background_thread::write(false).ok();
    let done = work();
    #[cfg(feature = "jemalloc")]
    tikv_jemalloc_ctl::background_thread::write(true).ok();
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_limit_is_divided_between_uploads_and_other_clients() {
        for (mib, uploads, others) in [(64, 18, 32), (128, 54, 96), (1024, 566, 992)] {
            let shares = MemoryShares::from_limit(mib << 20);
            assert_eq!((shares.uploads.get(), shares.others), (uploads, others), "{mib} MiB");
        }
        for limit in [0, 1 << 20, 32 << 20, u64::MAX] {
            assert!(MemoryShares::from_limit(limit).uploads.get() >= 1, "{limit}");
        }
    }
}
