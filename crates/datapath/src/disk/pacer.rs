//! Limits the amount of dirty data that writes through the page cache leave behind.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Bytes written to the page cache after which they are flushed. Dirty pages must not fill the
/// memory of a pod, whose limit includes its page cache, and must not all be left to the final
/// fsync. At most twice as many bytes are dirty at a time.
const DIRTY_BYTES: usize = 32 << 20;

/// Counts the bytes that are written through the page cache and flushes them from time to time.
#[derive(Debug, Default)]
pub(crate) struct FlushPacer {
    dirty: AtomicUsize,
    flushing: Mutex<()>,
}

impl FlushPacer {
    /// Records that `bytes` were written to `file`. If enough bytes are dirty, flushes them. While
    /// one thread flushes, the others continue to write, until they have as much to flush
    /// themselves.
    pub(crate) fn record_write(&self, bytes: usize, file: &File) -> io::Result<()> {
        if self.dirty.fetch_add(bytes, Ordering::Relaxed) + bytes < DIRTY_BYTES {
            return Ok(());
        }
        let _one = self.flushing.lock();
        if self.dirty.load(Ordering::Relaxed) < DIRTY_BYTES {
            return Ok(());
        }
        // Reset the count before the flush, which may not include what other threads write
        // meanwhile.
        self.dirty.store(0, Ordering::Relaxed);
        file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_bytes_are_flushed_above_the_limit() {
        let file = tempfile::tempfile().unwrap();
        let pacer = FlushPacer::default();
        pacer.record_write(DIRTY_BYTES - 1, &file).unwrap();
        assert_eq!(pacer.dirty.load(Ordering::Relaxed), DIRTY_BYTES - 1);
        pacer.record_write(1, &file).unwrap();
        assert_eq!(pacer.dirty.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_failed_flush_is_an_error() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        // fdatasync on a pipe fails with EINVAL.
        assert!(FlushPacer::default().record_write(DIRTY_BYTES, &file).is_err());
    }
}
