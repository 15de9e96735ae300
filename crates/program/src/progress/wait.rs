//! Describes what a job is waiting for, and its next attempt.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::text::{RoughTime, cut_text};

/// Shortest wait for which the duration is shown. For shorter waits the number would only flicker.
const SHOWN_WAIT: Duration = Duration::from_secs(2);

/// A wait: its reason, when it began, and the next attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitState {
    /// The party that the job is waiting for, such as the client. `None` if `cause` is a complete
    /// sentence, or an attempt is repeated.
    pub party: Option<&'static str>,
    /// The reason for the wait, such as `connection refused`.
    pub cause: String,
    /// The time at which the wait began.
    pub since: Instant,
    /// The next attempt, if there is one.
    pub retry: Option<PlannedRetry>,
}

/// The next attempt after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRetry {
    /// The number of the attempt. The first attempt, which failed, had number 1.
    pub attempt: u32,
    /// The time at which the attempt begins.
    pub at: Instant,
}

/// A [`WaitState`] as an object of `--progress json`.
#[derive(Debug, Serialize)]
pub struct WaitEvent {
    cause: String,
    waited_seconds: u64,
    attempt: Option<u32>,
    retry_seconds: Option<u64>,
}

impl WaitState {
    /// Converts the wait at the time `now` to an event for programs.
    pub fn to_event(&self, now: Instant) -> WaitEvent {
        WaitEvent {
            cause: self.cause.clone(),
            waited_seconds: now.duration_since(self.since).as_secs(),
            attempt: self.retry.map(|retry| retry.attempt),
            retry_seconds: self.retry.map(|retry| retry.seconds_left(now)),
        }
    }

    /// Formats the wait at the time `now` as one line of at most `columns` columns.
    pub(super) fn to_line(&self, now: Instant, columns: usize) -> String {
        let cause = printable::escape_text(&self.cause);
        let line = match (self.retry, self.party) {
            (Some(retry), _) => {
                let time = match retry.seconds_left(now) {
                    0 => "now".to_owned(),
                    seconds => format!("in {seconds} s"),
                };
                format!("retrying {time} ({cause}, attempt {})", retry.attempt)
            }
            (None, Some(party)) => format!("waiting for {party} ({cause}){}", self.duration(now)),
            (None, None) => format!("{cause}{}", self.duration(now)),
        };
        cut_text(&line, columns)
    }

    /// Returns how long the wait has lasted, if that is worth mentioning.
    fn duration(&self, now: Instant) -> String {
        let waited = Some(now.duration_since(self.since)).filter(|waited| *waited >= SHOWN_WAIT);
        waited.map_or_else(String::new, |waited| format!(" for {}", RoughTime(waited)))
    }

    /// True if a line about `other` would differ only in its times.
    pub(super) fn is_same_wait(&self, other: &Self) -> bool {
        let parts =
            |wait: &Self| (wait.party, wait.cause.clone(), wait.retry.map(|retry| retry.attempt));
        parts(self) == parts(other)
    }
}

impl PlannedRetry {
    /// Returns the seconds until the attempt begins, rounded up.
    fn seconds_left(&self, now: Instant) -> u64 {
        let left = self.at.saturating_duration_since(now);
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(seconds: u64) -> (WaitState, Instant) {
        let since = Instant::now();
        let now = since + Duration::from_secs(seconds);
        let retry = PlannedRetry { attempt: 4, at: now + Duration::from_millis(7500) };
        let cause = "connection refused".to_owned();
        (WaitState { party: None, cause, since, retry: Some(retry) }, now)
    }

    #[test]
    fn a_line_gives_the_cause_and_the_next_attempt_or_the_duration() {
        let (state, now) = wait(12);
        let line = "retrying in 8 s (connection refused, attempt 4)";
        assert_eq!(state.to_line(now, 80), line);
        assert_eq!(state.to_line(now, 18), "retrying in 8 s (…");
        let json = serde_json::to_string(&state.to_event(now)).unwrap();
        let event =
            r#"{"cause":"connection refused","waited_seconds":12,"attempt":4,"retry_seconds":8}"#;
        assert_eq!(json, event);
        let under_way = state.to_line(now + Duration::from_secs(8), 80);
        assert_eq!(under_way, "retrying now (connection refused, attempt 4)");
        let cause = "it sends nothing".to_owned();
        let idle = WaitState { party: Some("the client"), cause, retry: None, ..state };
        let line = "waiting for the client (it sends nothing) for 12 s";
        assert_eq!(idle.to_line(now, 80), line);
        let sentence = WaitState { party: None, ..idle };
        assert_eq!(sentence.to_line(now, 80), "it sends nothing for 12 s");
        assert_eq!(sentence.to_line(sentence.since, 80), "it sends nothing");
    }
}
