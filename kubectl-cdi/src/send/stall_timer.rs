//! Retries for an upload that makes no progress.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::connection::ProxyClient;
use super::watch::UploadWatch;
use super::{UploadSendError, UploadTask};

/// Time limit for a proxy that was never reached. It is short, because such a proxy is more likely
/// to be unreachable from here in general than to be interrupted at this moment.
const FIRST_CONTACT: Duration = Duration::from_secs(60);

/// The first and the longest pause between attempts. Each pause is twice as long as the previous
/// one.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The retry policy for an upload that makes no progress: how long it pauses, and when it gives
/// up.
pub(super) struct StallTimer<'a> {
    limit: Duration,
    proxy: &'a ProxyClient,
    watch: &'a UploadWatch,
    since: Instant,
    pause: Duration,
    most: u64,
}

impl<'a> StallTimer<'a> {
    pub(super) fn new(sending: &UploadTask<'a>) -> Self {
        Self {
            limit: sending.patience,
            proxy: sending.proxy,
            watch: sending.watch,
            since: Instant::now(),
            pause: FIRST_PAUSE,
            most: 0,
        }
    }

    /// Prepares for a new upload, whose bytes are counted from 0.
    pub(super) fn reset_bytes(&mut self) {
        self.most = 0;
    }

    /// Records that the server has `bytes` bytes. If this is a new maximum, the time limit and the
    /// pauses start again.
    pub(super) fn note_progress(&mut self, bytes: u64) {
        if bytes > self.most {
            self.most = bytes;
            self.since = Instant::now();
            self.pause = FIRST_PAUSE;
        }
    }

    /// Waits before the next attempt. Fails if the time limit has been reached.
    pub(super) async fn wait_before_retry(&mut self, words: String) -> Result<(), UploadSendError> {
        let limit = match self.proxy.was_reached() {
            true => self.limit,
            false => self.limit.min(FIRST_CONTACT),
        };
        if self.since.elapsed() >= limit {
            return Err(UploadSendError::Unreachable {
                url: self.proxy.display_url().to_owned(),
                seconds: limit.as_secs(),
                words,
            });
        }
        tracing::info!("resuming the upload shortly: {words}");
        // The pause is random, so that many clients that lost the same proxy do not all return at
        // once.
        let pause = self.pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.watch.begin_retry(words, pause);
        sleep(pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}
