//! Retries for a transfer that makes no progress.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::watch::UploadWatch;
use crate::error::PluginError;

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

    /// Waits before the next attempt; the last one has failed because of `cause`. Fails with the
    /// time limit in seconds if it has been reached; it is shorter if the server was never reached.
    pub(crate) async fn wait_before_retry(
        &mut self,
        cause: &PluginError,
        was_reached: bool,
    ) -> Result<(), u64> {
        let limit = if was_reached { self.limit } else { self.limit.min(FIRST_CONTACT) };
        if self.since.elapsed() >= limit {
            return Err(limit.as_secs());
        }
        tracing::info!("retrying shortly: {cause}");
        // The pause is random, so that many clients that lost the same server do not all return at
        // once.
        let pause = self.pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.watch.begin_retry(cause.to_string(), pause);
        sleep(pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}
