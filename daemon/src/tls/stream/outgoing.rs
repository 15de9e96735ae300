//! Records that are sealed and have not left.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

/// Bytes that wait at most before more are taken.
const WAITING_BYTES: usize = 64 << 10;

/// Records that leave at once.
const MAX_SLICES: usize = 16;

/// The records, in order.
#[derive(Default)]
pub(super) struct Outgoing {
    records: VecDeque<Vec<u8>>,
    /// Bytes of the first record that have left.
    sent: usize,
    /// Bytes that have not.
    bytes: usize,
}

impl Outgoing {
    pub(super) fn push(&mut self, record: Vec<u8>) {
        self.bytes += record.len();
        self.records.push_back(record);
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.bytes
    }

    /// True if as much waits as may.
    pub(super) fn is_full(&self) -> bool {
        self.waiting() >= WAITING_BYTES
    }

    /// Sends all of it.
    pub(super) fn poll_send<S: AsyncWrite + Unpin>(
        &mut self,
        io: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.records.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let mut skipped = self.sent;
            let mut count = 0;
            for (slice, record) in slices.iter_mut().zip(&self.records) {
                *slice = IoSlice::new(record.get(skipped..).unwrap_or_default());
                skipped = 0;
                count += 1;
            }
            let slices = slices.get(..count).unwrap_or_default();
            let sent = ready!(Pin::new(&mut *io).poll_write_vectored(cx, slices))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.have_left(sent);
        }
        Poll::Ready(Ok(()))
    }

    fn have_left(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.sent += bytes;
        while let Some(first) = self.records.front()
            && self.sent >= first.len()
        {
            self.sent -= first.len();
            self.records.pop_front();
        }
    }
}
