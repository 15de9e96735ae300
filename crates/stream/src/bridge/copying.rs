//! Packs bytes on their way into a bridge: buffers of a network library become chunks that the
//! target can write.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::{BridgeClosedError, BridgeSender};
use crate::copier::ChunkCopier;

/// Longest time that a partial chunk waits for the next read. A fast source fills its chunks
/// within this time, and the bytes of a slow source are not delayed for long.
pub const COPY_WAIT: Duration = Duration::from_millis(10);

/// Longest time that a byte waits until its chunk is full and the receiver is woken. Without this
/// limit a source of 100 KB/s would be delayed by 2.6 s, during which an import looks dead. At
/// full speed the delay is a few milliseconds.
pub const REST_WAIT: Duration = Duration::from_millis(100);

/// A sender for bytes that may lie anywhere in memory.
pub struct CopyingSender {
    sender: BridgeSender,
    copier: ChunkCopier,
    /// True if the receiver is asleep although chunks are waiting for it.
    is_unseen: bool,
    /// When the oldest waiting byte arrived. Bytes wait for their chunk to be full, or for the
    /// receiver to be woken.
    since: Option<Instant>,
    /// Fires at the end of a wait, or earlier. A single timer is used for all waits: setting a
    /// timer wakes the runtime, which cost a system call for each read of a socket.
    timer: Option<Pin<Box<Sleep>>>,
}

impl CopyingSender {
    /// Creates a sender for a stream that begins at `offset` of its object.
    pub fn new(sender: BridgeSender, offset: u64) -> Self {
        Self {
            sender,
            copier: ChunkCopier::new(offset),
            is_unseen: false,
            since: None,
            timer: None,
        }
    }

    /// Takes the next bytes. Waits if the data path is slower than the source. Dropping the future
    /// loses bytes.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<(), BridgeClosedError> {
        self.copier.push(bytes);
        self.hand_over().await
    }

    /// Sends all copied bytes, including a partial chunk, and wakes the receiver.
    pub async fn flush(&mut self) -> Result<(), BridgeClosedError> {
        self.copier.flush();
        self.hand_over().await?;
        self.sender.wake_receiver();
        self.is_unseen = false;
        self.since = None;
        Ok(())
    }

    /// Waits a short time for `next` and returns its output. If it is not ready by then, sends the
    /// waiting bytes and returns `None`; the caller must continue to wait for `next`.
    pub async fn await_or_flush<F: Future>(
        &mut self,
        mut next: Pin<&mut F>,
    ) -> Result<Option<F::Output>, BridgeClosedError> {
        if self.since.is_some_and(|since| since.elapsed() >= REST_WAIT) {
            self.flush().await?;
        }
        let mut until = None;
        let early = poll_fn(|cx| {
            if let Poll::Ready(output) = next.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            let until = *until.get_or_insert_with(|| Instant::now() + COPY_WAIT);
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            while timer.as_mut().poll(cx).is_ready() {
                if Instant::now() >= until {
                    return Poll::Ready(None);
                }
                timer.as_mut().reset(until);
            }
            Poll::Pending
        });
        match early.await {
            Some(output) => Ok(Some(output)),
            None => self.flush().await.map(|()| None),
        }
    }

    /// Completes when no more bytes are accepted: the receiver was dropped, or the transfer was
    /// stopped.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }

    async fn hand_over(&mut self) -> Result<(), BridgeClosedError> {
        while let Some(chunk) = self.copier.pop() {
            self.is_unseen = !self.sender.send_held(chunk).await?;
            if !self.is_unseen {
                // Forget the wait so far: a slow data path must not lead to smaller chunks.
                self.since = None;
            }
        }
        if !self.is_unseen && !self.copier.has_rest() {
            self.since = None;
        } else if self.since.is_none() {
            self.since = Some(Instant::now());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::pin;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::bridge;

    #[tokio::test(start_paused = true)]
    async fn received_bytes_are_returned_before_copied_bytes_are_flushed() {
        let (sender, mut chunks) = bridge::channel(1 << 20, &CancellationToken::new());
        let mut copying = CopyingSender::new(sender, 0);
        copying.push(b"first").await.unwrap();
        tokio::time::advance(REST_WAIT).await;
        assert_eq!(copying.await_or_flush(pin!(ready(7))).await.unwrap(), Some(7));
        assert_eq!(&chunks.recv_held().await.unwrap().bytes[..], b"first");
        copying.push(b"second").await.unwrap();
        assert_eq!(copying.await_or_flush(pin!(std::future::pending::<u8>())).await.unwrap(), None);
        assert_eq!(&chunks.recv_held().await.unwrap().bytes[..], b"second");
    }
}
