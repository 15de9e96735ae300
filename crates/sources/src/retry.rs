//! Limits for retries and timeouts.
//!
//! Broken connections and the statuses 5xx, 408 and 429 are retried from the current byte, with
//! exponential back-off and full jitter. Each new byte resets the counter; ten minutes without a
//! new byte end the transfer.

use std::time::Duration;

use datapath::error::{SourceError, SourceErrorKind};
use datapath::observe::{Observer, RetryPause};
use http::StatusCode;
use tokio::time::Instant;
use tracing::Span;

use crate::messages::status_text;

/// The reason why one attempt failed.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// Another attempt may succeed, but not before `retry_after` if the server asked for that.
    Transient { error: SourceError, retry_after: Option<Duration> },
    /// No further attempt can succeed.
    Final(SourceError),
}

impl AttemptError {
    pub(super) fn new_transient(kind: SourceErrorKind, cause: impl Into<String>) -> Self {
        Self::from_transient(SourceError::new(kind, cause))
    }

    /// Wraps an error after which another attempt may succeed at any time.
    pub(super) fn from_transient(error: SourceError) -> Self {
        Self::Transient { error, retry_after: None }
    }

    pub(super) fn new_final(kind: SourceErrorKind, cause: impl Into<String>) -> Self {
        Self::Final(SourceError::new(kind, cause))
    }

    /// Puts `place` before the message of the error.
    pub(super) fn with_context(self, place: &str) -> Self {
        let at = |error: SourceError| SourceError::with_context(error.kind(), place, error);
        match self {
            Self::Transient { error, retry_after } => {
                Self::Transient { error: at(error), retry_after }
            }
            Self::Final(error) => Self::Final(at(error)),
        }
    }

    /// Sets another message for users of a command line.
    pub(super) fn with_plain_words(self, words: &str) -> Self {
        match self {
            Self::Transient { error, retry_after } => {
                Self::Transient { error: error.with_plain_words(words), retry_after }
            }
            Self::Final(error) => Self::Final(error.with_plain_words(words)),
        }
    }

    /// Returns the kind of the error.
    pub(super) fn error_kind(&self) -> SourceErrorKind {
        match self {
            Self::Transient { error, .. } | Self::Final(error) => error.kind(),
        }
    }

    pub(super) fn into_error(self) -> SourceError {
        match self {
            Self::Transient { error, .. } | Self::Final(error) => error,
        }
    }
}

/// Limits for retries and timeouts.
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    /// Longest time without a new byte before the transfer fails.
    pub no_progress_limit: Duration,
    /// A connection that is silent for this long is replaced by a new one.
    pub idle_limit: Duration,
    /// Allowed consecutive failures without a new byte; `None` leaves only the time limit.
    pub retries: Option<u32>,
    /// Number of times that the first request is sent before its failure is reported. `None`
    /// leaves this to the other limits; only then does the time limit apply to the first request.
    pub first_attempts: Option<u32>,
    /// Upper limit of the first pause between attempts; each further failure doubles it.
    pub first_delay: Duration,
    /// Upper limit of every pause, including a pause that the server asks for.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            no_progress_limit: Duration::from_secs(600),
            idle_limit: Duration::from_secs(60),
            retries: None,
            // About three seconds in total, which is enough for a service that is being moved.
            // Longer waits are left to whoever started the import.
            first_attempts: Some(3),
            first_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(30),
        }
    }
}

impl RetryPolicy {
    /// Returns the longest silence allowed on one connection. At most a third of the time limit,
    /// so that time is left to try another connection.
    pub(crate) fn idle_limit(&self) -> Duration {
        self.idle_limit.min(self.no_progress_limit / 3)
    }

    /// Returns the pause after `failures` consecutive failures: exponential with full jitter, so
    /// that many pods that lost the same server do not come back at the same moment. `random` lies
    /// in `0..1`.
    fn backoff_delay(&self, failures: u32, random: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        self.first_delay.saturating_mul(1 << doublings).min(self.max_delay).mul_f64(random)
    }

    /// Starts counting the failures of the first request.
    pub(crate) fn first_contact(&self) -> FirstContact<'_> {
        FirstContact { policy: self, started: Instant::now(), failures: 0 }
    }

    /// Runs `ask` and retries it while the server seems to be temporarily unavailable. `passes`
    /// returns true for errors that mean this.
    pub(super) async fn retry_first_request<T>(
        &self,
        observer: &dyn Observer,
        passes: impl Fn(&SourceError) -> bool,
        mut ask: impl AsyncFnMut() -> Result<T, AttemptError>,
    ) -> Result<T, SourceError> {
        let mut contact = self.first_contact();
        let mut waiting = WaitReport::new(observer);
        loop {
            let (error, retry_after) = match ask().await {
                Ok(brought) => return Ok(brought),
                Err(AttemptError::Transient { error, retry_after }) if passes(&error) => {
                    (error, retry_after)
                }
                Err(failed) => return Err(failed.into_error()),
            };
            let Some(pause) = contact.next_pause(retry_after.unwrap_or_default()) else {
                return Err(error);
            };
            observer.record_retry(error.kind());
            let attempt = contact.failures;
            tracing::info!(attempt, cause = %error, "the source is not ready, trying again");
            waiting.begin(&short_cause(&error), attempt, pause);
            tokio::time::sleep(pause).await;
        }
    }
}

/// Reports a pause between two attempts to the observer, and reports its end when dropped.
pub(super) struct WaitReport<'a> {
    observer: &'a dyn Observer,
    is_begun: bool,
}

impl<'a> WaitReport<'a> {
    pub(super) fn new(observer: &'a dyn Observer) -> Self {
        Self { observer, is_begun: false }
    }

    /// Reports that attempt number `failed` ended because of `cause`, and that the next one begins
    /// after `pause`.
    pub(super) fn begin(&mut self, cause: &str, failed: u32, pause: Duration) {
        self.is_begun = true;
        let next_attempt = failed.saturating_add(1);
        self.observer.begin_wait(&RetryPause { cause, next_attempt, pause });
    }
}

impl Drop for WaitReport<'_> {
    fn drop(&mut self) {
        if self.is_begun {
            self.observer.end_wait();
        }
    }
}

/// Returns the last part of the error message, which is the cause. A progress line has no room for
/// the rest.
pub(super) fn short_cause(error: &SourceError) -> String {
    match error.kind() {
        SourceErrorKind::Status(code) => match StatusCode::from_u16(code) {
            Ok(status) => format!("HTTP {}", status_text(status)),
            Err(_) => format!("status {code}"),
        },
        _ => {
            let sentence = error.to_string();
            sentence.rsplit(": ").next().unwrap_or_default().to_owned()
        }
    }
}

/// Counts the attempts to get a first response.
pub(crate) struct FirstContact<'a> {
    policy: &'a RetryPolicy,
    started: Instant,
    /// Number of attempts that failed so far.
    pub(crate) failures: u32,
}

impl FirstContact<'_> {
    /// Returns the pause after another failure, or `None` to give up. The pauses are 1 s and 2 s
    /// by default, longer if the server `asked` for it. No jitter is added, because whatever
    /// starts the imports already spreads their start times.
    pub(crate) fn next_pause(&mut self, asked: Duration) -> Option<Duration> {
        let policy = self.policy;
        self.failures += 1;
        let retries = policy.retries.map(|retries| retries.saturating_add(1));
        if [policy.first_attempts, retries]
            .into_iter()
            .flatten()
            .any(|allowed| self.failures >= allowed)
        {
            return None;
        }
        let doubled = policy.first_delay.saturating_mul(1 << self.failures.min(16));
        let pause = doubled.max(asked).min(policy.max_delay);
        if policy.first_attempts.is_some() {
            return Some(pause);
        }
        let left = policy.no_progress_limit.saturating_sub(self.started.elapsed());
        (!left.is_zero()).then(|| pause.min(left))
    }
}

/// Counts the attempts to read one more byte. A new value is created after each byte gained, which
/// resets the counters.
pub(super) struct RetryAttempts<'a> {
    patience: &'a RetryPolicy,
    waiting: WaitReport<'a>,
    waiting_since: Instant,
    failures: u32,
    /// Cause of the first failure, for the final error. Later failures may only say that the time
    /// was up.
    first_cause: Option<String>,
    furthest_repeated: u64,
}

impl<'a> RetryAttempts<'a> {
    pub(super) fn new(patience: &'a RetryPolicy, observer: &'a dyn Observer) -> Self {
        Self {
            patience,
            waiting: WaitReport::new(observer),
            waiting_since: Instant::now(),
            failures: 0,
            first_cause: None,
            furthest_repeated: 0,
        }
    }

    /// Returns the tracing span of the next attempt. Only retries have a numbered span, because a
    /// span for each piece would cost more than the piece.
    pub(super) fn tracing_span(&self) -> Span {
        match self.failures {
            0 => Span::none(),
            failures => tracing::error_span!("attempt", attempt = failures + 1),
        }
    }

    /// Returns the longest next wait for the server. Each failure doubles it, so that even a
    /// server that takes a minute and a half to respond is reached.
    pub(super) fn wait_limit(&self) -> Duration {
        let patient = self.patience.idle_limit().saturating_mul(1 << self.failures.min(16));
        patient.min(self.remaining_time())
    }

    /// Records that `bytes` were read again before a new one. Getting further than any earlier
    /// attempt counts as progress; reading the same bytes repeatedly does not.
    pub(super) fn record_repeated(&mut self, bytes: u64) {
        if bytes > self.furthest_repeated {
            self.furthest_repeated = bytes;
            self.waiting_since = Instant::now();
        }
    }

    /// Records a failure. Returns the pause before the next attempt, or the error if the limits
    /// are exceeded. `place` describes the position of the transfer in the object.
    pub(super) fn record_failure(
        &mut self,
        failure: AttemptError,
        place: &str,
    ) -> Result<Duration, SourceError> {
        let (error, retry_after) = match failure {
            AttemptError::Final(error) => return Err(error),
            AttemptError::Transient { error, retry_after } => (error, retry_after),
        };
        self.failures += 1;
        let first_cause = self.first_cause.get_or_insert_with(|| error.to_string()).clone();
        if self.patience.retries.is_some_and(|allowed| self.failures > allowed) {
            let what = format!("giving up {place} after {} failures in a row", self.failures);
            return Err(SourceError::with_context(error.kind(), what, error));
        }
        if self.remaining_time().is_zero() {
            let limit = self.patience.no_progress_limit.as_secs_f64();
            let message = format!("no new byte for {limit} s {place}, giving up: {first_cause}");
            return Err(SourceError::new(error.kind(), message).with_cause(error));
        }
        // A pause requested by the server overrides a shorter jitter, but not the remaining time.
        let asked = retry_after.unwrap_or_default().min(self.patience.max_delay);
        let delay = self
            .patience
            .backoff_delay(self.failures, fastrand::f64())
            .max(asked)
            .min(self.remaining_time());
        self.waiting.observer.record_retry(error.kind());
        tracing::info!(attempt = self.failures, cause = %error, "the source failed {place}, resuming");
        self.waiting.begin(&short_cause(&error), self.failures, delay);
        Ok(delay)
    }

    /// Returns how much longer the transfer may go without a new byte.
    pub(super) fn remaining_time(&self) -> Duration {
        self.patience.no_progress_limit.saturating_sub(self.waiting_since.elapsed())
    }
}

/// Longest total time of all requests that find out which object is meant. Each response alone may
/// be slow.
const LOOKUP_LIMIT: Duration = Duration::from_secs(600);

/// Runs `work`, which sends several requests, within [`LOOKUP_LIMIT`].
pub(super) async fn with_lookup_limit<T>(
    work: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    tokio::time::timeout(LOOKUP_LIMIT, work).await.unwrap_or_else(|_| {
        let message = format!(
            "the server did not report the object's location within {} s",
            LOOKUP_LIMIT.as_secs()
        );
        Err(SourceError::new(SourceErrorKind::Stalled, message))
    })
}

/// Runs `work`. Returns a transient failure if it takes longer than `limit`.
pub(super) async fn with_time_limit<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, AttemptError>>,
) -> Result<T, AttemptError> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let message = format!("the server sent nothing for {:.1} s", limit.as_secs_f64());
        Err(AttemptError::new_transient(SourceErrorKind::Stalled, message))
    })
}

#[cfg(test)]
mod tests {
    use datapath::observe::NoObserver;
    use parking_lot::Mutex;

    use super::*;

    fn patience() -> RetryPolicy {
        RetryPolicy::default()
    }

    fn broken() -> AttemptError {
        AttemptError::new_transient(SourceErrorKind::Io, "connection reset")
    }

    #[test]
    fn pauses_double_up_to_the_limit() {
        let patience = patience();
        for (failures, seconds) in
            [(1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 30.0), (u32::MAX, 30.0)]
        {
            assert_eq!(
                patience.backoff_delay(failures, 1.0),
                Duration::from_secs_f64(seconds),
                "{failures}"
            );
            assert_eq!(patience.backoff_delay(failures, 0.0), Duration::ZERO);
        }
    }

    #[test]
    fn time_without_a_byte_ends_the_attempts() {
        let patience = RetryPolicy { no_progress_limit: Duration::from_secs(2), ..patience() };
        let mut attempts = RetryAttempts::new(&patience, &NoObserver);
        assert!(attempts.record_failure(broken(), "at byte 5").is_ok());
        attempts.waiting_since = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        assert!(attempts.record_failure(broken(), "at byte 5").unwrap() <= Duration::from_secs(1));
        assert!(attempts.wait_limit() <= Duration::from_secs(1));
        attempts.waiting_since = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        let error = attempts.record_failure(broken(), "at byte 5").unwrap_err().to_string();
        assert_eq!(error, "no new byte for 2 s at byte 5, giving up: connection reset");
    }

    #[test]
    fn only_new_bytes_count_as_progress_of_a_repetition() {
        let patience = patience();
        let mut attempts = RetryAttempts::new(&patience, &NoObserver);
        attempts.record_repeated(100);
        let since = attempts.waiting_since;
        attempts.record_repeated(100);
        assert_eq!(attempts.waiting_since, since);
        attempts.record_repeated(101);
        assert!(attempts.waiting_since > since);
    }

    #[test]
    fn a_cause_fits_a_line_of_progress() {
        for (kind, sentence, cause) in [
            (
                SourceErrorKind::Status(503),
                "expected status code 200, got 503",
                "HTTP 503 Service Unavailable",
            ),
            (
                SourceErrorKind::Connect,
                "http://h: cannot connect to h port 80: connection refused",
                "connection refused",
            ),
            (
                SourceErrorKind::Length,
                "the body ended after 5 of 9 bytes",
                "the body ended after 5 of 9 bytes",
            ),
        ] {
            assert_eq!(short_cause(&SourceError::new(kind, sentence)), cause);
        }
    }

    #[test]
    fn an_observer_is_told_of_pauses_and_their_end() {
        #[derive(Default)]
        struct Heard(Mutex<Vec<String>>);
        impl Observer for Heard {
            fn begin_wait(&self, pause: &RetryPause<'_>) {
                self.0
                    .lock()
                    .push(format!("{} before attempt {}", pause.cause, pause.next_attempt));
            }

            fn end_wait(&self) {
                self.0.lock().push("end".to_owned());
            }
        }
        let (heard, patience) = (Heard::default(), patience());
        drop(RetryAttempts::new(&patience, &heard));
        let mut attempts = RetryAttempts::new(&patience, &heard);
        attempts.record_failure(broken(), "at byte 5").unwrap();
        attempts.record_failure(broken(), "at byte 5").unwrap();
        drop(attempts);
        let lines =
            ["connection reset before attempt 2", "connection reset before attempt 3", "end"];
        assert_eq!(*heard.0.lock(), lines);
    }

    #[test]
    fn the_limit_of_retries_ends_the_attempts() {
        let patience = RetryPolicy { retries: Some(2), ..patience() };
        let mut attempts = RetryAttempts::new(&patience, &NoObserver);
        assert!(attempts.record_failure(broken(), "at byte 5").is_ok());
        assert!(attempts.record_failure(broken(), "at byte 5").is_ok());
        let error = attempts.record_failure(broken(), "at byte 5").unwrap_err().to_string();
        assert_eq!(error, "giving up at byte 5 after 3 failures in a row: connection reset");
    }
    /// Returns the pauses of a first contact in seconds, if the attempts themselves take no time.
    fn first_pauses(policy: &RetryPolicy) -> Vec<u64> {
        let mut contact = policy.first_contact();
        std::iter::from_fn(|| contact.next_pause(Duration::ZERO))
            .take(9)
            .map(|pause| pause.as_secs())
            .collect()
    }

    #[test]
    fn a_first_contact_is_given_up_early_unless_limits_are_set() {
        let retries = |retries| RetryPolicy { retries: Some(retries), ..patience() };
        assert_eq!(first_pauses(&patience()), [1, 2]);
        assert_eq!(first_pauses(&retries(1)), [1]);
        assert_eq!(first_pauses(&retries(8)), [1, 2]);
        let unlimited = |policy| RetryPolicy { first_attempts: None, ..policy };
        assert!(first_pauses(&unlimited(retries(0))).is_empty());
        assert_eq!(first_pauses(&unlimited(retries(6))), [1, 2, 4, 8, 16, 30]);
        assert_eq!(first_pauses(&unlimited(patience())).len(), 9);
    }

    #[test]
    fn a_first_contact_without_a_limit_of_attempts_ends_by_time() {
        let policy = RetryPolicy {
            first_attempts: None,
            no_progress_limit: Duration::from_secs(10),
            ..patience()
        };
        let mut contact = policy.first_contact();
        let long = Duration::from_secs(60);
        assert!(contact.next_pause(long).unwrap() <= Duration::from_secs(10));
        contact.started = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        assert_eq!(contact.next_pause(long), None);
    }
}
