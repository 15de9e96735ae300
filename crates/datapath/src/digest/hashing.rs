//! A digest that is taken beside the transfer: without SHA instructions, SHA-256 alone is slower than most disks.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use bytes::Bytes;

use super::{Algorithm, Digest};
use crate::buffer::CHUNK_BYTES;
use crate::error::NoThread;
use crate::queue::Queue;

/// Bytes that may wait to be hashed.
const QUEUE_BYTES: usize = 4 << 20;

/// A running hash on a thread of its own.
pub struct Hashing {
    queue: Arc<Queue<Bytes>>,
    /// `None` once it was joined.
    thread: Option<JoinHandle<String>>,
}

impl Hashing {
    /// The hash of nothing yet.
    pub fn start(algorithm: Algorithm) -> Result<Self, NoThread> {
        let queue = Arc::new(Queue::new(QUEUE_BYTES));
        let chunks = Arc::clone(&queue);
        let thread = Builder::new().spawn(move || {
            // If hashing panics, `update` must not wait for ever.
            let chunks = Abort(chunks);
            let mut digest = Digest::new(algorithm);
            while let Some((chunk, held)) = chunks.0.pop() {
                digest.update(&chunk);
                drop(chunk);
                chunks.0.done(held);
            }
            digest.finish()
        })?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    /// Adds the next bytes, waiting while too many have not been hashed yet.
    pub fn update(&self, chunk: &Bytes) {
        // However short, it keeps the chunk that it is a part of.
        self.queue.push(chunk.clone(), chunk.len().max(CHUNK_BYTES));
    }

    /// `algorithm:hex` of all bytes.
    pub fn finish(mut self) -> String {
        self.queue.close();
        // A thread that panicked has hashed nothing, which no checksum equals.
        self.thread
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default()
    }
}

struct Abort(Arc<Queue<Bytes>>);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for Hashing {
    fn drop(&mut self) {
        self.queue.abort();
        if let Some(thread) = self.thread.take() {
            // The digest is of no use any more.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashing_beside_equals_hashing() {
        let chunks: Vec<Bytes> = (0..100u8).map(|byte| Bytes::from(vec![byte; 100_000])).collect();
        let hashing = Hashing::start(Algorithm::Sha256).unwrap();
        let mut digest = Digest::new(Algorithm::Sha256);
        for chunk in &chunks {
            hashing.update(chunk);
            digest.update(chunk);
        }
        assert_eq!(hashing.finish(), digest.finish());
    }

    #[test]
    fn dropping_it_early_ends_the_thread() {
        let hashing = Hashing::start(Algorithm::Sha512).unwrap();
        let queue = Arc::clone(&hashing.queue);
        hashing.update(&Bytes::from(vec![0; 10 << 20]));
        drop(hashing);
        assert!(queue.pop().is_none());
        assert_eq!(Arc::strong_count(&queue), 1);
    }
}
