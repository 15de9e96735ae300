//! Limits for retries and timeouts.
//!
//! Broken connections and the statuses 5xx, 408 and 429 are retried from the current byte, with
//! exponential back-off and full jitter. Each new byte resets the counter; ten minutes without a
//! new byte end the transfer.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use stream::error::{SourceError, SourceErrorKind};
use stream::observe::{Observer, RetryPause};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::error::stopped_error;
use crate::messages::status_text;

/// The reason why one attempt failed.
#[derive(Debug)]
pub enum AttemptError {
    /// Another attempt may succeed.
    Transient {
        /// The failure.
        error: SourceError,
        /// The pause that the server asked for.
        retry_after: Option<Duration>,
    },
    /// No further attempt can succeed.
    Final(SourceError),
}

impl AttemptError {
    /// Creates an error after which another attempt may succeed at any time.
    pub fn new_transient(kind: SourceErrorKind, cause: impl Into<String>) -> Self {
        Self::from_transient(SourceError::new(kind, cause))
    }

    /// Wraps an error after which another attempt may succeed at any time.
    pub fn from_transient(error: SourceError) -> Self {
        Self::Transient { error, retry_after: None }
    }

    /// Creates an error after which no attempt can succeed.
    pub fn new_final(kind: SourceErrorKind, cause: impl Into<String>) -> Self {
        Self::Final(SourceError::new(kind, cause))
    }

    /// Replaces the error.
    pub(super) fn map(self, change: impl FnOnce(SourceError) -> SourceError) -> Self {
        match self {
            Self::Transient { error, retry_after } => {
                Self::Transient { error: change(error), retry_after }
            }
            Self::Final(error) => Self::Final(change(error)),
        }
    }

    /// Puts `place` before the message of the error.
    pub fn with_context(self, place: &str) -> Self {
        self.map(|error| SourceError::with_context(error.kind(), place, error))
    }

    /// Returns the kind of the error.
    pub(super) fn error_kind(&self) -> SourceErrorKind {
        match self {
            Self::Transient { error, .. } | Self::Final(error) => error.kind(),
        }
    }

    /// Returns the failure.
    pub fn into_error(self) -> SourceError {
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
    /// Longest time for which the first request is retried. One attempt may take longer. An unknown
    /// host ends it after [`RetryPolicy::UNKNOWN_HOST_LIMIT`] at the latest.
    pub contact_limit: Duration,
    /// Allowed retries while the host is unknown, if `retries` allows more.
    pub unknown_host_retries: Option<u32>,
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
            // A pod often starts before its DNS, its network policy or the server is ready.
            contact_limit: Duration::from_secs(600),
            unknown_host_retries: None,
            first_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(30),
        }
    }
}

/// Longest pause before the first contact, unless the server asks for a longer one. With pauses
/// of up to 30 s, a server that is ready after 40 s would be found after a minute.
const CONTACT_PAUSE: Duration = Duration::from_secs(10);

impl RetryPolicy {
    /// Longest time for which a host is looked up that has no address. In a pod, the name of a
    /// Kubernetes service may exist a moment later; otherwise it is mistyped.
    pub const UNKNOWN_HOST_LIMIT: Duration = Duration::from_secs(60);

    /// Returns the longest silence allowed on one connection. At most a third of the time limit,
    /// so that time is left to try another connection.
    pub fn idle_limit(&self) -> Duration {
        self.idle_limit.min(self.no_progress_limit / 3)
    }

    /// Returns the pause after `failures` consecutive failures: exponential with full jitter, so
    /// that many pods that lost the same server do not come back at the same moment. `random` lies
    /// in `0..1`.
    fn backoff_delay(&self, failures: u32, random: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        self.first_delay.saturating_mul(1 << doublings).min(self.max_delay).mul_f64(random)
    }

    /// Returns the longest time for which a first contact that failed with `kind` is retried, and
    /// the allowed number of retries.
    fn contact_bounds(&self, kind: SourceErrorKind) -> (Duration, Option<u32>) {
        match kind {
            SourceErrorKind::UnknownHost => (
                self.contact_limit.min(Self::UNKNOWN_HOST_LIMIT),
                self.retries.into_iter().chain(self.unknown_host_retries).min(),
            ),
            _ => (self.contact_limit, self.retries),
        }
    }

    /// Returns the pause of the first contact after an `error` that is its failure number
    /// `failures`, or `None` to give up after `elapsed`. The pauses are 1, 2, 4, 8 and then 10 s
    /// by default, longer if the server `asked` for it. No jitter is added, because whatever
    /// starts the imports already spreads their start times.
    fn contact_pause(
        &self,
        failures: u32,
        elapsed: Duration,
        error: &SourceError,
        asked: Duration,
    ) -> Option<Duration> {
        let (limit, retries) = self.contact_bounds(error.kind());
        let left = limit.saturating_sub(elapsed);
        if left.is_zero() || retries.is_some_and(|retries| failures > retries) {
            return None;
        }
        let doubled = self.first_delay.saturating_mul(1 << failures.min(16)).min(CONTACT_PAUSE);
        Some(doubled.max(asked).min(self.max_delay).min(left))
    }
}

/// Reports a pause between two attempts to the log and the observer, and its end when dropped.
struct WaitReport<'a> {
    observer: &'a dyn Observer,
    is_begun: bool,
}

impl<'a> WaitReport<'a> {
    fn new(observer: &'a dyn Observer) -> Self {
        Self { observer, is_begun: false }
    }

    /// Reports that attempt number `failed` ended with `error`, and that the next one begins after
    /// `pause`. `what` says what failed.
    fn begin(
        &mut self,
        what: &str,
        error: &SourceError,
        failed: u32,
        pause: Duration,
        contact: Option<(Duration, Option<u32>)>,
    ) {
        self.is_begun = true;
        self.observer.record_retry(error.kind());
        let (cause, next_attempt) = (&*short_cause(error), failed.saturating_add(1));
        let seconds = pause.as_secs_f64().ceil();
        tracing::info!(cause = %error, "{what}: retrying in {seconds} s ({cause}, attempt {next_attempt})");
        self.observer.begin_wait(&RetryPause { cause, error, next_attempt, pause, contact });
    }
}

impl Drop for WaitReport<'_> {
    fn drop(&mut self) {
        if self.is_begun {
            self.observer.end_wait();
        }
    }
}

/// Returns the cause in a few words: a progress line has no room for more.
fn short_cause(error: &SourceError) -> String {
    match error.kind() {
        SourceErrorKind::Status(code) => match StatusCode::from_u16(code) {
            Ok(status) => format!("HTTP {}", status_text(status)),
            Err(_) => format!("status {code}"),
        },
        _ => error.short_cause().to_owned(),
    }
}

/// Counts the attempts to make a first contact.
pub struct FirstContact<'a> {
    policy: &'a RetryPolicy,
    stop: &'a CancellationToken,
    waiting: WaitReport<'a>,
    started: Instant,
    failures: u32,
}

impl<'a> FirstContact<'a> {
    pub(super) fn new(
        policy: &'a RetryPolicy,
        observer: &'a dyn Observer,
        stop: &'a CancellationToken,
    ) -> Self {
        let (waiting, started) = (WaitReport::new(observer), Instant::now());
        Self { policy, stop, waiting, started, failures: 0 }
    }

    /// Pauses before the next attempt. Returns the error of `failure` instead if it is final or the
    /// limits are exceeded.
    pub async fn pause_after(&mut self, failure: AttemptError) -> Result<(), SourceError> {
        let (error, retry_after) = match failure {
            AttemptError::Final(error) => return Err(error),
            AttemptError::Transient { error, retry_after } => (error, retry_after),
        };
        self.failures += 1;
        let (elapsed, asked) = (self.started.elapsed(), retry_after.unwrap_or_default());
        let Some(pause) = self.policy.contact_pause(self.failures, elapsed, &error, asked) else {
            return Err(error);
        };
        let bounds = Some(self.policy.contact_bounds(error.kind()));
        self.waiting.begin("the source is not ready", &error, self.failures, pause, bounds);
        // Only the pause is cancelled: some requests must also be sent after a stop, to end what
        // was begun on a server.
        let pausing = self.stop.run_until_cancelled(tokio::time::sleep(pause));
        pausing.await.ok_or_else(stopped_error)
    }
}

/// Counts the attempts to read one more byte. A new value is created after each byte gained, which
/// resets the counters.
pub struct RetryAttempts<'a> {
    policy: &'a RetryPolicy,
    waiting: WaitReport<'a>,
    waiting_since: Instant,
    failures: u32,
    /// Cause of the first failure, for the final error. Later failures may only say that the time
    /// was up.
    first_cause: Option<String>,
    furthest_repeated: u64,
}

impl<'a> RetryAttempts<'a> {
    pub(super) fn new(policy: &'a RetryPolicy, observer: &'a dyn Observer) -> Self {
        Self {
            policy,
            waiting: WaitReport::new(observer),
            waiting_since: Instant::now(),
            failures: 0,
            first_cause: None,
            furthest_repeated: 0,
        }
    }

    /// Returns the tracing span of the next attempt. Only retries have a numbered span, because a
    /// span for each piece would cost more than the piece.
    pub fn tracing_span(&self) -> Span {
        match self.failures {
            0 => Span::none(),
            failures => tracing::error_span!("attempt", attempt = failures + 1),
        }
    }

    /// Returns the longest next wait for the server. Each failure doubles it, so that even a
    /// server that takes a minute and a half to respond is reached.
    pub fn wait_limit(&self) -> Duration {
        let patient = self.policy.idle_limit().saturating_mul(1 << self.failures.min(16));
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
    pub fn record_failure(
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
        if self.policy.retries.is_some_and(|allowed| self.failures > allowed) {
            let what = format!("giving up {place} after {} failures in a row", self.failures);
            return Err(SourceError::with_context(error.kind(), what, error));
        }
        if self.remaining_time().is_zero() {
            let limit = self.policy.no_progress_limit.as_secs_f64();
            let message = format!("no new byte for {limit} s {place}, giving up: {first_cause}");
            return Err(SourceError::new(error.kind(), message).with_cause(error));
        }
        // A pause requested by the server overrides a shorter jitter, but not the remaining time.
        let asked = retry_after.unwrap_or_default().min(self.policy.max_delay);
        let delay = self
            .policy
            .backoff_delay(self.failures, fastrand::f64())
            .max(asked)
            .min(self.remaining_time());
        let what = format!("the source failed {place}");
        self.waiting.begin(&what, &error, self.failures, delay, None);
        Ok(delay)
    }

    /// Returns how much longer the transfer may go without a new byte.
    pub fn remaining_time(&self) -> Duration {
        self.policy.no_progress_limit.saturating_sub(self.waiting_since.elapsed())
    }
}

/// Longest total time of all requests that find out which object is meant. Each response alone may
/// be slow.
const LOOKUP_LIMIT: Duration = Duration::from_secs(600);

/// Runs `work`, which sends several requests, within `LOOKUP_LIMIT`.
pub async fn with_lookup_limit<T>(
    work: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    let missing = "the server did not report the object's location";
    within(LOOKUP_LIMIT, missing, work).await
}

/// Runs `work` for at most `limit`. The error after that is `missing`, such as `the server did not
/// answer`, with the limit behind it.
pub async fn within<T>(
    limit: Duration,
    missing: impl fmt::Display,
    work: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let message = format!("{missing} within {} s", limit.as_secs());
        Err(SourceError::new(SourceErrorKind::Stalled, message))
    })
}

/// Runs `work`. Returns a transient failure if it takes longer than `limit`.
pub async fn with_time_limit<T>(
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
    use parking_lot::Mutex;
    use stream::observe::NoObserver;

    use super::*;

    fn policy() -> RetryPolicy {
        RetryPolicy::default()
    }

    fn broken() -> AttemptError {
        AttemptError::new_transient(SourceErrorKind::Io, "connection reset")
    }

    #[test]
    fn pauses_double_up_to_the_limit() {
        let policy = policy();
        for (failures, seconds) in
            [(1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 30.0), (u32::MAX, 30.0)]
        {
            assert_eq!(
                policy.backoff_delay(failures, 1.0),
                Duration::from_secs_f64(seconds),
                "{failures}"
            );
            assert_eq!(policy.backoff_delay(failures, 0.0), Duration::ZERO);
        }
    }

    #[test]
    fn time_without_a_byte_ends_the_attempts() {
        let policy = RetryPolicy { no_progress_limit: Duration::from_secs(2), ..policy() };
        let mut attempts = RetryAttempts::new(&policy, &NoObserver);
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
        let policy = policy();
        let mut attempts = RetryAttempts::new(&policy, &NoObserver);
        attempts.record_repeated(100);
        let since = attempts.waiting_since;
        attempts.record_repeated(100);
        assert_eq!(attempts.waiting_since, since);
        attempts.record_repeated(101);
        assert!(attempts.waiting_since > since);
    }

    #[test]
    fn a_cause_fits_a_line_of_progress() {
        let refused = SourceError::with_context(SourceErrorKind::Connect, "h port 80", "refused");
        for (error, cause) in [
            (SourceError::new(SourceErrorKind::Status(503), "x"), "HTTP 503 Service Unavailable"),
            (refused.in_context("http://h"), "refused"),
            (SourceError::new(SourceErrorKind::Length, "5 of 9 bytes"), "5 of 9 bytes"),
        ] {
            assert_eq!(short_cause(&error), cause);
        }
    }

    #[test]
    fn an_observer_is_told_of_pauses_and_their_end() {
        #[derive(Default)]
        struct Heard(Mutex<Vec<String>>);
        impl Observer for Heard {
            fn begin_wait(&self, pause: &RetryPause<'_>) {
                let text = format!("{} before attempt {}", pause.cause, pause.next_attempt);
                self.0.lock().push(text);
            }

            fn end_wait(&self) {
                self.0.lock().push("end".to_owned());
            }
        }
        let (heard, policy) = (Heard::default(), policy());
        drop(RetryAttempts::new(&policy, &heard));
        let mut attempts = RetryAttempts::new(&policy, &heard);
        attempts.record_failure(broken(), "at byte 5").unwrap();
        attempts.record_failure(broken(), "at byte 5").unwrap();
        drop(attempts);
        let lines =
            ["connection reset before attempt 2", "connection reset before attempt 3", "end"];
        assert_eq!(*heard.0.lock(), lines);
    }

    #[test]
    fn a_first_contact_ends_by_time_by_retries_or_when_its_host_stays_unknown() {
        let pauses = |policy: &RetryPolicy, kind| {
            let (error, mut elapsed) = (SourceError::new(kind, "x"), Duration::ZERO);
            let mut pauses = Vec::new();
            for failures in 1.. {
                let Some(pause) = policy.contact_pause(failures, elapsed, &error, Duration::ZERO)
                else {
                    break;
                };
                elapsed += pause;
                pauses.push(pause.as_secs());
            }
            (pauses, elapsed.as_secs())
        };
        let (refused, unknown) = (SourceErrorKind::Connect, SourceErrorKind::UnknownHost);
        let (first, total) = pauses(&policy(), refused);
        assert_eq!((&first[..6], total), (&[1, 2, 4, 8, 10, 10][..], 600));
        assert_eq!(pauses(&policy(), unknown), (vec![1, 2, 4, 8, 10, 10, 10, 10, 5], 60));
        let retries = |retries| RetryPolicy { retries: Some(retries), ..policy() };
        assert_eq!(pauses(&retries(0), refused), (Vec::new(), 0));
        assert_eq!(pauses(&retries(2), refused).0, [1, 2]);
        let on_terminal = RetryPolicy { unknown_host_retries: Some(2), ..policy() };
        assert_eq!(pauses(&on_terminal, unknown).0, [1, 2]);
        assert_eq!(pauses(&on_terminal, refused).1, 600);
        let limited =
            |seconds| RetryPolicy { contact_limit: Duration::from_secs(seconds), ..policy() };
        assert_eq!(pauses(&limited(0), refused), (Vec::new(), 0));
        assert_eq!(pauses(&limited(5), unknown).0, [1, 2, 2]);
    }

    #[test]
    fn a_server_may_ask_for_a_longer_pause_before_the_first_contact() {
        let error = SourceError::new(SourceErrorKind::Status(503), "x");
        let pause = |asked| {
            let asked = Duration::from_secs(asked);
            policy().contact_pause(1, Duration::ZERO, &error, asked).map(|pause| pause.as_secs())
        };
        assert_eq!((pause(0), pause(20), pause(3600)), (Some(1), Some(20), Some(30)));
    }
}
