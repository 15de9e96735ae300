//! The way through the page cache, on which bytes must not pile up.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Bytes in the page cache that are flushed while more are written: they must neither fill the memory of a pod, which
/// counts its page cache, nor all wait for the final fsync. At most twice as many are dirty.
const DIRTY_BYTES: usize = 32 << 20;

/// Has what is written through the page cache flushed from time to time.
#[derive(Debug, Default)]
pub(crate) struct FlushPacer {
    dirty: AtomicUsize,
    flushing: Mutex<()>,
}

impl FlushPacer {
    /// `bytes` were written. One thread flushes while the others write on, until they have as much to flush.
    pub(crate) fn record_write(&self, bytes: usize, file: &File) -> io::Result<()> {
        if self.dirty.fetch_add(bytes, Ordering::Relaxed) + bytes < DIRTY_BYTES {
            return Ok(());
        }
        let _one = self.flushing.lock();
        if self.dirty.load(Ordering::Relaxed) < DIRTY_BYTES {
            return Ok(());
        }
        self.dirty.store(0, Ordering::Relaxed);
        file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_bytes_are_flushed_once_there_are_enough() {
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
        // fdatasync of a pipe is EINVAL.
        assert!(FlushPacer::default().record_write(DIRTY_BYTES, &file).is_err());
    }
}
