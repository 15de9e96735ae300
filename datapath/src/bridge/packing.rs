//! Packing on the way over: what a network library hands out becomes chunks that the target can write.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::timeout;

use super::{Closed, Sender};
use crate::buffer::Pool;
use crate::pack::Packer;

/// Longest wait of a chunk that is not full for more: a fast source fills chunks, what a slow one has sent does not wait.
const PACK_WAIT: Duration = Duration::from_millis(10);

/// A bridge for bytes that lie anywhere in memory.
pub struct PackingSender {
    sender: Sender,
    packer: Packer,
}

impl PackingSender {
    /// For a stream that begins at `offset` of its object.
    pub fn new(sender: Sender, pool: Pool, offset: u64) -> Self {
        Self {
            sender,
            packer: Packer::new(pool, offset),
        }
    }

    /// Takes the next bytes; waits while the data path is slower. Dropping the future loses bytes.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<(), Closed> {
        self.packer.push(bytes);
        self.hand_over().await
    }

    /// Hands over what waits for more.
    pub async fn flush(&mut self) -> Result<(), Closed> {
        self.packer.flush();
        self.hand_over().await
    }

    /// The output of `next` if it comes soon; else hands over what waits, and `next` is still to be waited for.
    pub async fn soon<F: Future>(&mut self, next: Pin<&mut F>) -> Result<Option<F::Output>, Closed> {
        match timeout(PACK_WAIT, next).await {
            Ok(output) => Ok(Some(output)),
            Err(_) => self.flush().await.map(|()| None),
        }
    }

    /// Ready when no more bytes are wanted: the receiver is gone, or on stop.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }

    async fn hand_over(&mut self) -> Result<(), Closed> {
        while let Some(packed) = self.packer.pop() {
            self.sender.send(packed.bytes, packed.held).await?;
        }
        Ok(())
    }
}
