//! Retries for a transfer that makes no progress.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::watch::UploadWatch;

/// Time limit for a server that was never reached. It is short, because such a server is more
/// likely to be unreachable from here in general than to be interrupted at this moment.
const FIRST_CONTACT: Duration = Duration::from_secs(60);

/// The first and the longest pause between attempts. Each pause is twice as long as the previous
/// one.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The retry policy for a transfer that makes no progress: how long it pauses, and when it gives
/// up.
pub(crate) struct StallTimer<'a> {
    limit: Duration,
    watch: &'a UploadWatch,
    since: Instant,
    pause: Duration,
    most: u64,
}

/// The error for a transfer that made no progress within its time limit.
pub(crate) struct StalledError {
    pub(crate) seconds: u64,
    /// The cause of the last failed attempt.
    pub(crate) words: String,
}

impl<'a> StallTimer<'a> {
    /// Creates a timer that gives up after `limit` without progress.
    pub(crate) fn new(limit: Duration, watch: &'a UploadWatch) -> Self {
        Self { limit, watch, since: Instant::now(), pause: FIRST_PAUSE, most: 0 }
    }

    /// Prepares for a new upload, whose bytes are counted from 0.
    pub(super) fn reset_bytes(&mut self) {
        self.most = 0;
    }

    /// Records that the receiver has `bytes` bytes. If this is a new maximum, the time limit and
    /// the pauses start again, and the method returns true.
    pub(crate) fn note_progress(&mut self, bytes: u64) -> bool {
        let is_more = bytes > self.most;
        if is_more {
            self.most = bytes;
            self.since = Instant::now();
            self.pause = FIRST_PAUSE;
        }
        is_more
    }

    /// Waits before the next attempt. Fails if the time limit has been reached; it is shorter if
    /// the server was never reached.
    pub(crate) async fn wait_before_retry(
        &mut self,
        words: String,
        was_reached: bool,
    ) -> Result<(), StalledError> {
        let limit = if was_reached { self.limit } else { self.limit.min(FIRST_CONTACT) };
        if self.since.elapsed() >= limit {
            return Err(StalledError { seconds: limit.as_secs(), words });
        }
        tracing::info!("retrying shortly: {words}");
        // The pause is random, so that many clients that lost the same server do not all return at
        // once.
        let pause = self.pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.watch.begin_retry(words, pause);
        sleep(pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}
