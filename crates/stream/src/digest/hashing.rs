//! Computes a digest on its own thread, in parallel with the transfer. Without SHA instructions,
//! SHA-256 alone is slower than most disks.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use bytes::Bytes;

use super::{DigestAlgorithm, RunningDigest};
use crate::buffer::CHUNK_BYTES;
use crate::error::ThreadStartError;
use crate::queue::WorkQueue;

/// Maximum number of bytes that may wait to be hashed.
const QUEUE_BYTES: usize = 4 << 20;

/// A running hash on its own thread.
pub struct HashingThread {
    queue: Arc<WorkQueue<Bytes>>,
    /// `None` after the thread was joined.
    thread: Option<JoinHandle<String>>,
}

impl HashingThread {
    /// Starts a thread that hashes with `algorithm`.
    pub fn start(algorithm: DigestAlgorithm) -> Result<Self, ThreadStartError> {
        let queue = Arc::new(WorkQueue::new(QUEUE_BYTES));
        let chunks = Arc::clone(&queue);
        let thread = Builder::new().spawn(move || {
            // The guard aborts the queue if hashing panics. Otherwise `update` would wait forever.
            let chunks = QueueAbortGuard(chunks);
            let mut digest = RunningDigest::new(algorithm);
            while let Some((chunk, held)) = chunks.0.pop() {
                digest.update(&chunk);
                // Free the chunk before its bytes are released; otherwise the queue would hold
                // more memory than its limit.
                drop(chunk);
                chunks.0.release_bytes(held);
            }
            digest.finish_digest()
        })?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Adds the next bytes. Waits while too many bytes have not been hashed yet.
    pub fn update(&self, chunk: &Bytes) {
        // Charge a whole chunk, because even a short piece keeps its chunk allocated.
        self.queue.push(chunk.clone(), chunk.len().max(CHUNK_BYTES));
    }

    /// Returns the digest of all bytes as `algorithm:hex`.
    pub fn finish_digest(mut self) -> String {
        self.queue.close();
        // If the thread panicked, return an empty string, which matches no expected checksum.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

struct QueueAbortGuard(Arc<WorkQueue<Bytes>>);

impl Drop for QueueAbortGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for HashingThread {
    fn drop(&mut self) {
        self.queue.abort();
        if let Some(thread) = self.thread.take() {
            // The result is ignored, because the digest is no longer needed.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashing_thread_computes_the_same_digest() {
        let chunks: Vec<Bytes> = (0..100u8).map(|byte| Bytes::from(vec![byte; 100_000])).collect();
        let hashing = HashingThread::start(DigestAlgorithm::Sha256).unwrap();
        let mut digest = RunningDigest::new(DigestAlgorithm::Sha256);
        for chunk in &chunks {
            hashing.update(chunk);
            digest.update(chunk);
        }
        assert_eq!(hashing.finish_digest(), digest.finish_digest());
    }

    #[test]
    fn dropping_a_hashing_thread_early_ends_it() {
        let hashing = HashingThread::start(DigestAlgorithm::Sha512).unwrap();
        let queue = Arc::clone(&hashing.queue);
        hashing.update(&Bytes::from(vec![0; 10 << 20]));
        drop(hashing);
        assert!(queue.pop().is_none());
        assert_eq!(Arc::strong_count(&queue), 1);
    }
}
