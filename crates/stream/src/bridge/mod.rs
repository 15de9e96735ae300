//! The bounded hand-off from an asynchronous reader, such as a socket, to the blocking threads of
//! the data path.
//!
//! The limit counts bytes in flight, not messages. A fast network in front of a slow disk
//! therefore holds at most the budget in memory, whatever the size of its chunks.
//!
//! Waking a thread is a system call on each side. If every chunk caused one, these would be two
//! thirds of the system calls of a raw import. A waiting receiver is therefore woken only when 2
//! MiB are available, and a waiting sender only when half of the budget is free again. A raw
//! import then makes 3 futex calls per MiB instead of 16.

mod copying;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::copying::{COPY_WAIT, CopyingSender, REST_WAIT};
use crate::copier::HeldChunk;

/// Budget charged for every chunk in addition to its length: its handle, its cost and their slot
/// in the queue. Without this, a peer that sends single bytes could fill the memory with
/// bookkeeping.
const CHUNK_OVERHEAD_BYTES: usize = 64;

/// Number of waiting bytes at which a sleeping receiver is woken, unless a sender wakes it earlier
/// because no more bytes will come soon.
const WAKE_BYTES: usize = 2 << 20;

/// Creates a queue that holds at most `budget_bytes`. A single chunk may be larger if it is alone
/// in the queue. Cancelling `stop` ends every wait on both sides.
pub fn channel(budget_bytes: usize, stop: &CancellationToken) -> (BridgeSender, BridgeReceiver) {
    let shared = Arc::new(BridgeState {
        queue: Mutex::default(),
        budget: budget_bytes.max(1),
        has_chunks: Notify::new(),
        has_room: Notify::new(),
        gone: stop.child_token(),
    });
    let sender = BridgeSender(Arc::new(SenderGuard(Arc::clone(&shared))));
    (sender, BridgeReceiver(shared))
}

/// The other end of the bridge was dropped, or the transfer was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reading end of the bridge was closed")]
pub struct BridgeClosedError;

/// State shared by both ends.
struct BridgeState {
    queue: Mutex<ChunkQueue>,
    budget: usize,
    has_chunks: Notify,
    has_room: Notify,
    /// Cancelled when the receiver is dropped or the transfer is stopped.
    gone: CancellationToken,
}

#[derive(Default)]
struct ChunkQueue {
    chunks: VecDeque<HeldChunk>,
    /// Total cost of the chunks in bytes.
    waiting: usize,
    /// Set while the receiver sleeps: the number of waiting bytes at which to wake it.
    wake_at: Option<usize>,
    /// Since when a sender sleeps until there is room.
    full_since: Option<Instant>,
    /// Total time that senders have slept until there was room, without the current sleep.
    full_time: Duration,
    /// True once all senders are dropped.
    has_ended: bool,
}

/// State of the receiver after a chunk was added.
enum ReceiverState {
    Awake,
    Asleep,
    /// The receiver was asleep, and the caller must wake it now.
    Due,
}

impl ChunkQueue {
    /// Adds a chunk. Returns it as an error if it has to wait for room.
    fn try_push(
        &mut self,
        chunk: HeldChunk,
        cost: usize,
        budget: usize,
    ) -> Result<ReceiverState, HeldChunk> {
        if !self.chunks.is_empty() && self.waiting.saturating_add(cost) > budget {
            self.full_since.get_or_insert_with(Instant::now);
            return Err(chunk);
        }
        self.waiting += cost;
        self.chunks.push_back(chunk);
        Ok(match self.wake_at {
            None => ReceiverState::Awake,
            Some(bytes) if self.waiting < bytes => ReceiverState::Asleep,
            Some(_) => {
                self.wake_at = None;
                ReceiverState::Due
            }
        })
    }
}

impl BridgeState {
    /// Number of bytes of the budget that `chunk` uses.
    fn chunk_cost(&self, chunk: &HeldChunk) -> usize {
        chunk.held.saturating_add(CHUNK_OVERHEAD_BYTES).min(self.budget)
    }

    /// Wakes the receiver if any chunk is waiting or the stream has ended.
    fn wake_receiver(&self) {
        let sleeps = {
            let mut queue = self.queue.lock();
            let has_something = queue.has_ended || !queue.chunks.is_empty();
            has_something && queue.wake_at.take().is_some()
        };
        // Wake it only after the lock is released: the receiver needs the lock as soon as it
        // wakes.
        if sleeps {
            self.has_chunks.notify_one();
        }
    }
}

/// The asynchronous sending end. Dropping it and all its clones ends the stream.
#[derive(Clone)]
pub struct BridgeSender(Arc<SenderGuard>);

/// Shared by all clones of a sender; dropped with the last of them.
struct SenderGuard(Arc<BridgeState>);

impl Drop for SenderGuard {
    fn drop(&mut self) {
        self.0.queue.lock().has_ended = true;
        self.0.wake_receiver();
    }
}

impl BridgeSender {
    /// Sends `chunk`, which keeps `held` bytes of memory allocated. Waits while the budget is used
    /// up. Dropping the future loses the chunk.
    pub async fn send(&self, chunk: Bytes, held: usize) -> Result<(), BridgeClosedError> {
        self.send_held(HeldChunk { bytes: chunk, held }).await?;
        self.wake_receiver();
        Ok(())
    }

    /// Sends a chunk that others will soon follow. Returns `false` if the receiver stays asleep
    /// until [`WAKE_BYTES`] are waiting or [`BridgeSender::wake_receiver`] is called.
    async fn send_held(&self, mut chunk: HeldChunk) -> Result<bool, BridgeClosedError> {
        let shared = &*self.0.0;
        let cost = shared.chunk_cost(&chunk);
        loop {
            // Register before checking for room, so that room that becomes free after the check is
            // not missed.
            let has_room = shared.has_room.notified();
            if shared.gone.is_cancelled() {
                return Err(BridgeClosedError);
            }
            let added = shared.queue.lock().try_push(chunk, cost, shared.budget);
            chunk = match added {
                Ok(ReceiverState::Asleep) => return Ok(false),
                Ok(ReceiverState::Awake) => return Ok(true),
                Ok(ReceiverState::Due) => {
                    shared.has_chunks.notify_one();
                    return Ok(true);
                }
                Err(chunk) => chunk,
            };
            // The receiver may be asleep until `WAKE_BYTES` are waiting, and this sender is about
            // to wait for room. Without this call, neither would wake the other.
            shared.wake_receiver();
            shared.gone.run_until_cancelled(has_room).await.ok_or(BridgeClosedError)?;
        }
    }

    /// Returns for how long senders had to wait for room so far: the time in which the receiver
    /// was slower than they.
    pub fn full_time(&self) -> Duration {
        let queue = self.0.0.queue.lock();
        queue.full_time + queue.full_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Wakes the receiver if any chunk is waiting.
    fn wake_receiver(&self) {
        self.0.0.wake_receiver();
    }

    /// Completes when [`BridgeSender::send`] can no longer succeed: the receiver was dropped, or
    /// the transfer was stopped.
    pub async fn closed(&self) {
        self.0.0.gone.cancelled().await;
    }
}

/// The receiving end, for a thread or a task. Once it is dropped, sending fails.
pub struct BridgeReceiver(Arc<BridgeState>);

impl BridgeReceiver {
    /// Returns the next chunk. `None` when all senders are dropped and the queue is empty, or when
    /// the transfer was stopped. Blocks the thread, so it must not be used inside an asynchronous
    /// task.
    pub fn recv(&mut self) -> Option<Bytes> {
        let wake_at = WAKE_BYTES.min(self.0.budget / 2);
        block_on(self.wait_for_chunk(wake_at)).map(|chunk| chunk.bytes)
    }

    /// Like [`BridgeReceiver::recv`], but for an asynchronous task. Also returns the amount of
    /// memory that the chunk keeps allocated.
    pub async fn recv_held(&mut self) -> Option<HeldChunk> {
        self.wait_for_chunk(0).await
    }

    async fn wait_for_chunk(&mut self, wake_at: usize) -> Option<HeldChunk> {
        let shared = &*self.0;
        loop {
            if shared.gone.is_cancelled() {
                return None;
            }
            {
                let mut queue = shared.queue.lock();
                if let Some(chunk) = queue.chunks.pop_front() {
                    queue.waiting -= shared.chunk_cost(&chunk);
                    let has_room = queue.waiting <= shared.budget / 2;
                    let full_since = queue.full_since.take_if(|_| has_room);
                    queue.full_time += full_since.map_or(Duration::ZERO, |since| since.elapsed());
                    drop(queue);
                    if full_since.is_some() {
                        // Wake all senders: a bridge may have several, and each checks the budget
                        // again.
                        shared.has_room.notify_waiters();
                    }
                    return Some(chunk);
                }
                if queue.has_ended {
                    return None;
                }
                queue.wake_at = Some(wake_at);
            }
            // `notify_one` stores a permit, so a wake-up between the unlock above and this wait is
            // kept.
            shared.gone.run_until_cancelled(shared.has_chunks.notified()).await?;
        }
    }
}

impl Drop for BridgeReceiver {
    fn drop(&mut self) {
        self.0.gone.cancel();
        self.0.queue.lock().chunks.clear();
    }
}

/// Runs a future on this thread. The future must not need a reactor (only queues and tokens).
/// Unlike `Handle::block_on`, this needs no runtime on the reading side.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct ThreadWaker(Thread);
    impl Wake for ThreadWaker {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
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
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    }

    fn bytes(len: usize) -> Bytes {
        Bytes::from(vec![7; len])
    }

    async fn blocks(send: impl Future<Output = Result<(), BridgeClosedError>>) -> bool {
        tokio::time::timeout(Duration::from_millis(20), send).await.is_err()
    }

    #[test]
    fn the_sender_is_limited_by_bytes_rather_than_by_messages() {
        let (sender, mut receiver) = channel(1000, &CancellationToken::new());
        runtime().block_on(async {
            sender.send(bytes(900), 900).await.unwrap();
            assert_eq!(sender.full_time(), Duration::ZERO);
            assert!(blocks(sender.send(bytes(900), 900)).await);
            assert!(sender.full_time() >= Duration::from_millis(20));
            assert_eq!(receiver.recv().unwrap().len(), 900);
            let waited = sender.full_time();
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(sender.full_time(), waited);
            // A chunk above the budget passes when it is alone.
            sender.send(bytes(5000), 5000).await.unwrap();
            assert!(blocks(sender.send(bytes(1), 1)).await);
            assert_eq!(receiver.recv().unwrap().len(), 5000);
            sender.send(bytes(900), 900).await.unwrap();
        });
    }

    #[test]
    fn tiny_chunks_cost_more_than_their_length() {
        let (sender, _receiver) =
            channel(10 * (CHUNK_OVERHEAD_BYTES + 1), &CancellationToken::new());
        runtime().block_on(async {
            for _ in 0..10 {
                sender.send(bytes(1), 1).await.unwrap();
            }
            assert!(blocks(sender.send(bytes(1), 1)).await);
        });
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Wakes(std::sync::atomic::AtomicUsize);
    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn a_receiver_is_woken_for_many_bytes_or_for_a_prompt_chunk() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let woken = || wakes.0.load(std::sync::atomic::Ordering::Relaxed);
        let (sender, mut receiver) = channel(4 * WAKE_BYTES, &CancellationToken::new());
        let put = |bytes| {
            let chunk = HeldChunk { bytes, held: WAKE_BYTES / 4 };
            runtime().block_on(sender.send_held(chunk)).unwrap()
        };
        let mut sleeping = Box::pin(receiver.wait_for_chunk(WAKE_BYTES));
        assert!(sleeping.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!([1, 2, 3, 4, 5].map(|_| put(bytes(1))), [false, false, false, true, true]);
        assert_eq!(woken(), 1);
        drop(sleeping);
        for _ in 0..5 {
            assert!(receiver.recv().is_some());
        }
        let mut sleeping = Box::pin(receiver.wait_for_chunk(WAKE_BYTES));
        assert!(sleeping.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(!put(bytes(1)));
        sender.wake_receiver();
        sender.wake_receiver();
        assert_eq!(woken(), 2);
        drop(sender);
        assert_eq!(woken(), 2, "a receiver that is already awake is not woken again");
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]
        /// Sender and receiver never both sleep, each waiting for the other, whatever the sizes
        /// of the chunks.
        #[test]
        fn every_chunk_arrives(
            budget in 1usize..5000,
            chunks in proptest::collection::vec((0usize..3000, proptest::bool::ANY), 0..200),
        ) {
            let (sender, mut receiver) = channel(budget, &CancellationToken::new());
            let numbered = |number: usize, len: usize| {
                Bytes::from(vec![number.to_le_bytes()[0]; len])
            };
            let sent = chunks.clone();
            let sending = std::thread::spawn(move || {
                runtime().block_on(async {
                    for (number, (len, is_prompt)) in sent.into_iter().enumerate() {
                        let bytes = numbered(number, len);
                        match is_prompt {
                            true => sender.send(bytes, len).await.unwrap(),
                            false => drop(sender.send_held(HeldChunk { bytes, held: len }).await.unwrap()),
                        }
                    }
                });
            });
            for (number, (len, _)) in chunks.into_iter().enumerate() {
                proptest::prop_assert_eq!(receiver.recv(), Some(numbered(number, len)));
            }
            proptest::prop_assert_eq!(receiver.recv(), None);
            sending.join().unwrap();
        }
    }

    /// Runs `action` on another thread after 20 ms, so that the caller is waiting by then.
    fn soon(action: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            action();
        })
    }

    #[test]
    fn a_waiting_sender_ends_when_the_receiver_is_dropped() {
        let (sender, receiver) = channel(1000, &CancellationToken::new());
        runtime().block_on(async {
            sender.send(bytes(1000), 1000).await.unwrap();
            let dropping = soon(|| drop(receiver));
            assert_eq!(sender.send(bytes(1), 1).await, Err(BridgeClosedError));
            dropping.join().unwrap();
        });
    }

    #[test]
    fn stop_wakes_a_waiting_sender_and_a_waiting_receiver() {
        let stop = CancellationToken::new();
        let (sender, _unread) = channel(100, &stop);
        let (_silent, mut receiver) = channel(100, &stop);
        let reader = std::thread::spawn(move || receiver.recv());
        runtime().block_on(async {
            sender.send(bytes(100), 100).await.unwrap();
            let stopping = soon(move || stop.cancel());
            assert_eq!(sender.send(bytes(1), 1).await, Err(BridgeClosedError));
            stopping.join().unwrap();
        });
        assert_eq!(reader.join().unwrap(), None);
    }
}
