//! The bounded hand-off from an asynchronous reader (a socket) to the blocking threads of the data path.
//!
//! The bound is of bytes in flight, not of messages: a fast network in front of a slow disk holds at most
//! the budget in memory, whatever the size of its chunks.

mod packing;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

pub use self::packing::PackingSender;
use crate::pack::Packed;

/// Budget that every chunk costs on top of its length, so that a peer that sends one byte at a time
/// cannot fill the memory with bookkeeping: the handle, its permit and their slot in the queue.
const CHUNK_OVERHEAD_BYTES: usize = 64;

/// A queue that holds at most `budget_bytes`; a single chunk may be larger than that while it is alone.
/// Cancelling `stop` ends every wait on both sides.
pub fn channel(budget_bytes: usize, stop: CancellationToken) -> (Sender, Receiver) {
    let limit = u32::try_from(budget_bytes.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
    let budget = Arc::new(Semaphore::new(
        usize::try_from(limit).unwrap_or(Semaphore::MAX_PERMITS),
    ));
    let (queue, chunks) = mpsc::unbounded_channel();
    let sender = Sender {
        queue,
        budget: Arc::clone(&budget),
        limit,
        stop: stop.clone(),
    };
    (sender, Receiver { chunks, budget, stop })
}

/// The other side of the bridge is gone, or the transfer was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody reads the other end of the bridge any more")]
pub struct Closed;

/// The asynchronous end. Dropping it, and its clones, ends the stream.
#[derive(Clone)]
pub struct Sender {
    queue: mpsc::UnboundedSender<(Packed, OwnedSemaphorePermit)>,
    budget: Arc<Semaphore>,
    limit: u32,
    stop: CancellationToken,
}

impl Sender {
    /// Hands `chunk` over, which keeps `held` bytes of memory, waiting while the budget is in use. Dropping the future
    /// loses the chunk.
    pub async fn send(&self, chunk: Bytes, held: usize) -> Result<(), Closed> {
        let cost = held.saturating_add(CHUNK_OVERHEAD_BYTES);
        let cost = u32::try_from(cost).unwrap_or(u32::MAX).min(self.limit);
        let room = Arc::clone(&self.budget).acquire_many_owned(cost);
        let permit = self
            .stop
            .run_until_cancelled(room)
            .await
            .ok_or(Closed)?
            .map_err(|_| Closed)?;
        let packed = Packed { bytes: chunk, held };
        self.queue.send((packed, permit)).map_err(|_| Closed)
    }

    /// Ready when [`Sender::send`] cannot succeed any more: the receiver is gone, or on stop.
    pub async fn closed(&self) {
        self.stop.run_until_cancelled(self.queue.closed()).await;
    }
}

/// The blocking end. Dropping it makes the sender fail.
pub struct Receiver {
    chunks: mpsc::UnboundedReceiver<(Packed, OwnedSemaphorePermit)>,
    budget: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Receiver {
    /// The next chunk, or `None` when the sender is gone and the queue is empty, or on stop.
    /// Blocks the thread; not for use inside an asynchronous task.
    pub fn recv(&mut self) -> Option<Bytes> {
        block_on(self.next()).map(|packed| packed.bytes)
    }

    /// The next chunk like [`Receiver::recv`], for an asynchronous task, with the memory that the chunk keeps.
    pub async fn next(&mut self) -> Option<Packed> {
        let next = self.stop.run_until_cancelled(self.chunks.recv()).await;
        let (packed, _permit) = next.flatten()?;
        Some(packed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.budget.close();
    }
}

/// Runs a future that needs no reactor (queues and tokens only) on this thread. Unlike
/// `Handle::block_on` it needs no runtime on the reading side.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    }

    fn bytes_of(byte: u8, len: usize) -> Bytes {
        Bytes::from(vec![byte; len])
    }

    fn bytes(len: usize) -> Bytes {
        bytes_of(7, len)
    }

    async fn blocks(send: impl Future<Output = Result<(), Closed>>) -> bool {
        tokio::time::timeout(Duration::from_millis(20), send)
            .await
            .is_err()
    }

    #[test]
    fn chunks_arrive_in_order_and_the_end_follows_the_last() {
        let (sender, mut receiver) = channel(1000, CancellationToken::new());
        let writer = std::thread::spawn(move || {
            runtime().block_on(async {
                for byte in 0..200u8 {
                    sender.send(bytes_of(byte, 300), 300).await.unwrap();
                }
            });
        });
        for byte in 0..200u8 {
            assert_eq!(receiver.recv(), Some(bytes_of(byte, 300)));
        }
        assert_eq!(receiver.recv(), None);
        writer.join().unwrap();
    }

    #[test]
    fn the_sender_waits_for_bytes_not_for_messages() {
        let (sender, mut receiver) = channel(1000, CancellationToken::new());
        runtime().block_on(async {
            sender.send(bytes(900), 900).await.unwrap();
            assert!(blocks(sender.send(bytes(900), 900)).await);
            assert_eq!(receiver.recv().unwrap().len(), 900);
            sender.send(bytes(900), 900).await.unwrap();
        });
    }

    #[test]
    fn tiny_chunks_cost_more_than_their_length() {
        let (sender, _receiver) = channel(10 * (CHUNK_OVERHEAD_BYTES + 1), CancellationToken::new());
        runtime().block_on(async {
            for _ in 0..10 {
                sender.send(bytes(1), 1).await.unwrap();
            }
            assert!(blocks(sender.send(bytes(1), 1)).await);
        });
    }

    #[test]
    fn a_chunk_above_the_budget_passes_alone() {
        let (sender, mut receiver) = channel(1000, CancellationToken::new());
        runtime().block_on(async {
            sender.send(bytes(5000), 5000).await.unwrap();
            assert!(blocks(sender.send(bytes(1), 1)).await);
            assert_eq!(receiver.recv().unwrap().len(), 5000);
            sender.send(bytes(1), 1).await.unwrap();
        });
    }

    /// Runs `action` on another thread after the caller has had time to wait.
    fn soon(action: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            action();
        })
    }

    #[test]
    fn a_sender_that_waits_ends_when_the_receiver_is_dropped() {
        let (sender, receiver) = channel(1000, CancellationToken::new());
        runtime().block_on(async {
            sender.send(bytes(1000), 1000).await.unwrap();
            let dropping = soon(|| drop(receiver));
            assert_eq!(sender.send(bytes(1), 1).await, Err(Closed));
            dropping.join().unwrap();
        });
    }

    #[test]
    fn stop_wakes_a_sender_and_a_receiver_that_wait() {
        let stop = CancellationToken::new();
        let (sender, _unread) = channel(100, stop.clone());
        let (_silent, mut receiver) = channel(100, stop.clone());
        let reader = std::thread::spawn(move || receiver.recv());
        runtime().block_on(async {
            sender.send(bytes(100), 100).await.unwrap();
            let stopping = soon(move || stop.cancel());
            assert_eq!(sender.send(bytes(1), 1).await, Err(Closed));
            stopping.join().unwrap();
        });
        assert_eq!(reader.join().unwrap(), None);
    }
}
