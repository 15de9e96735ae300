//! The state of a running upload, for the progress display and for the detection of stalls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use program::progress::{PlannedRetry, WaitState};
use tokio::time::{Instant, sleep};

/// Interval at which a stream is checked for a stall.
const LOOK: Duration = Duration::from_secs(1);

/// The shared state of an upload.
#[derive(Debug, Default)]
pub(crate) struct UploadWatch {
    image_bytes: AtomicU64,
    handed_over: AtomicU64,
    /// The reason for the current wait, if there is one.
    waiting: Mutex<Option<WaitState>>,
    retries: AtomicU64,
    /// Time of the last activity; `None` before the first.
    moved: Mutex<Option<Instant>>,
}

impl UploadWatch {
    /// Returns the number of bytes of the image whose transfer has begun.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.image_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that were passed to the network, including bytes that were sent
    /// again.
    pub(crate) fn handed_over(&self) -> u64 {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Returns the reason for the current wait, if there is one.
    pub(crate) fn wait_state(&self) -> Option<WaitState> {
        self.waiting.lock().clone()
    }

    /// Sets the reason for the current wait.
    pub(crate) fn set_wait_reason(&self, what: impl Into<String>) {
        self.begin_wait(what.into(), None);
    }

    /// Records that an attempt failed because of `cause`, and that it will be retried after
    /// `pause`.
    pub(crate) fn begin_retry(&self, cause: String, pause: Duration) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        self.begin_wait(cause, Some(pause));
    }

    fn begin_wait(&self, cause: String, pause: Option<Duration>) {
        let now = std::time::Instant::now();
        let mut waiting = self.waiting.lock();
        let before = waiting.take();
        let last_attempt =
            before.as_ref().and_then(|wait| wait.retry).map_or(1, |retry| retry.attempt);
        *waiting = Some(WaitState {
            party: None,
            // Consecutive failed attempts count as one wait, even if their causes differ.
            since: before
                .filter(|wait| wait.cause == cause || (wait.retry.is_some() && pause.is_some()))
                .map_or(now, |wait| wait.since),
            cause,
            retry: pause.map(|pause| PlannedRetry { attempt: last_attempt + 1, at: now + pause }),
        });
    }

    /// Returns the number of retries.
    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Records that the transfer has reached this offset in the image.
    pub(crate) fn set_position(&self, image_offset: u64) {
        self.image_bytes.store(image_offset, Ordering::Relaxed);
    }

    /// Records that `bytes` bytes were passed to the network, which ends the current wait.
    pub(crate) fn add_stream_bytes(&self, bytes: u64) {
        self.handed_over.fetch_add(bytes, Ordering::Relaxed);
        self.note_activity();
        self.waiting.lock().take();
    }

    /// Records activity. Also called at the start of an operation that may stall.
    pub(crate) fn note_activity(&self) {
        *self.moved.lock() = Some(Instant::now());
    }

    /// Waits until nothing has happened for `stall_limit`.
    pub(crate) async fn wait_for_stall(&self, stall_limit: Duration) {
        loop {
            let moved = *self.moved.lock();
            if moved.is_some_and(|moved| moved.elapsed() >= stall_limit) {
                return;
            }
            sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_attempts_are_one_wait() {
        let watch = UploadWatch::default();
        watch.set_wait_reason("waiting for CDI");
        assert_eq!(watch.wait_state().unwrap().retry, None);
        watch.begin_retry("no route".to_owned(), Duration::from_secs(1));
        let first = watch.wait_state().unwrap();
        watch.begin_retry("refused".to_owned(), Duration::from_secs(2));
        let second = watch.wait_state().unwrap();
        assert_eq!((first.since, first.retry.unwrap().attempt), (second.since, 2));
        assert_eq!((second.cause.as_str(), second.retry.unwrap().attempt), ("refused", 3));
        assert_eq!(watch.retries(), 2);
        watch.add_stream_bytes(1);
        assert_eq!(watch.wait_state(), None);
    }
}
