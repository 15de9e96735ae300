//! Formats the progress bar for the width of the terminal.

use std::time::{Duration, Instant};

use super::text::{BinaryBytes, RoughTime, cut_text};
use super::{JobMoment, WatchedJob};

/// Minimum width of the bar in columns. If there is less space, fields are omitted before the bar
/// becomes narrower.
const MIN_BAR: usize = 10;

/// The space between two fields.
const GAP: &str = "  ";

/// Returns the line for `watched` at `moment`, for a terminal with this number of columns. The
/// last column stays empty, because a terminal may wrap after it.
pub(super) fn bar_text(watched: &impl WatchedJob, moment: &JobMoment, columns: usize) -> String {
    let columns = columns.saturating_sub(1);
    let (done, total) = (watched.done_bytes(), watched.total_bytes());
    let Some(total) = total else {
        return match &moment.wait {
            Some(wait) => wait.to_line(moment.now, columns),
            None => unknown_text(done, moment, columns),
        };
    };
    // The bar stops at 99 %, because work remains after the last byte; the summary reports 100 %.
    let percent = (u128::from(done) * 100).checked_div(total.into()).unwrap_or(0).min(99);
    let percent = format!("{percent:>3} %");
    if let Some(wait) = &moment.wait {
        let room = columns.saturating_sub(percent.len() + GAP.len());
        let text = format!("{percent}{GAP}{}", wait.to_line(moment.now, room));
        return with_bar(&text, done, total, columns).unwrap_or_else(|| cut_text(&text, columns));
    }
    let fields = [
        Some(format!("{} of {}", BinaryBytes(done), BinaryBytes(total))),
        moment.bytes_per_second.map(|rate| format!("{}/s", BinaryBytes(rate))),
        moment.seconds_left.map(|left| format!("{} left", RoughTime(Duration::from_secs(left)))),
    ];
    // If the line is too long, fields are omitted from the front.
    let texts = (0..=fields.len()).map(|dropped| {
        let shown = fields.iter().skip(dropped).flatten();
        shown.fold(percent.clone(), |text, field| text + GAP + field)
    });
    let lines = texts.clone().filter_map(|text| with_bar(&text, done, total, columns));
    let mut bare = texts.filter(|text| text.chars().count() <= columns);
    lines.into_iter().next().or_else(|| bare.next()).unwrap_or_else(|| cut_text(&percent, columns))
}

/// Returns `text` after a bar that fills the remaining columns, or `None` if fewer than
/// [`MIN_BAR`] columns remain.
fn with_bar(text: &str, done: u64, total: u64, columns: usize) -> Option<String> {
    let width =
        columns.checked_sub(text.chars().count() + GAP.len()).filter(|width| *width >= MIN_BAR)?;
    let parts = u128::try_from(width).ok()?;
    let filled = (u128::from(done) * parts).checked_div(total.into()).unwrap_or(0).min(parts);
    let filled = usize::try_from(filled).ok()?;
    Some(format!("{}{}{GAP}{text}", "█".repeat(filled), "░".repeat(width - filled)))
}

/// Returns the line of a job whose total is unknown.
fn unknown_text(done: u64, moment: &JobMoment, columns: usize) -> String {
    const SPINNER: [char; 4] = ['|', '/', '-', '\\'];
    let turn = SPINNER.get(moment.drawings % SPINNER.len()).copied().unwrap_or_default();
    let rate = moment.bytes_per_second;
    let rate = rate.map_or_else(String::new, |rate| format!("{GAP}{}/s", BinaryBytes(rate)));
    cut_text(&format!("{turn} {} read{rate}", BinaryBytes(done)), columns)
}

/// A rate in bytes per second, smoothed so that the remaining time does not jump.
#[derive(Debug)]
pub(super) struct SmoothedRate {
    at: Instant,
    position: u64,
    smoothed: Option<u64>,
}

impl SmoothedRate {
    pub(super) fn start(position: u64, now: Instant) -> Self {
        Self { at: now, position, smoothed: None }
    }

    /// Returns the rate at the time `now`, with `position` bytes done. The most recent interval
    /// contributes a quarter to it. An interval of less than 0.9 s would make the rate jump, so a
    /// short interval is extended until the next call.
    pub(super) fn update_rate(&mut self, position: u64, now: Instant) -> Option<u64> {
        const INTERVAL: Duration = Duration::from_millis(900);
        let time = now.duration_since(self.at);
        if time >= INTERVAL {
            let fresh = bytes_per_second(position.saturating_sub(self.position), time);
            let rate = self.smoothed.map_or(fresh, |old| old - old / 4 + fresh / 4);
            *self = Self { at: now, position, smoothed: Some(rate) };
        }
        self.smoothed
    }
}

/// Returns the average rate of `bytes` during `time`.
pub fn bytes_per_second(bytes: u64, time: Duration) -> u64 {
    let rate =
        (u128::from(bytes) * 1000).checked_div(time.as_millis()).unwrap_or(u128::from(bytes));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Job, moment};
    use super::super::wait::{PlannedRetry, WaitState};
    use super::*;

    #[test]
    fn fields_disappear_as_a_terminal_gets_narrower() {
        let job = Job(36 << 20, Some(114 << 20));
        let spinner = bar_text(&Job(3 << 20, None), &moment(), 80);
        assert_eq!(spinner, "/ 3.00 MiB read  22.00 MiB/s", "a job of unknown length");
        for (columns, text) in [
            (80, "███░░░░░░░░░   31 %  36.00 MiB of 114.00 MiB  22.00 MiB/s  3 s left"),
            (60, "███████░░░░░░░░░░░░░░░░   31 %  22.00 MiB/s  3 s left"),
            (40, "█████░░░░░░░░░░░░   31 %  3 s left"),
            (20, "███░░░░░░░░░   31 %"),
            (17, " 31 %  3 s left"),
            (10, " 31 %"),
            (3, " …"),
        ] {
            let shown = bar_text(&job, &moment(), columns);
            let without_bar = |line: &str| line.trim_start_matches(['█', '░']).to_owned();
            assert_eq!(without_bar(&shown), without_bar(text), "{columns}: {shown}");
        }
        for columns in 0..200 {
            let shown = bar_text(&job, &moment(), columns).chars().count();
            assert!(shown < columns.max(1), "{shown} of {columns}");
            assert!(columns < 40 || shown == columns - 1, "the bar must fill the line");
        }
    }

    #[test]
    fn a_wait_replaces_the_rates() {
        let now = Instant::now();
        let retry = PlannedRetry { attempt: 2, at: now + Duration::from_secs(8) };
        let cause = "connection refused".to_owned();
        let wait = WaitState { party: None, cause, since: now, retry: Some(retry) };
        let waiting = JobMoment { now, wait: Some(wait), ..moment() };
        let text = "retrying in 8 s (connection refused, attempt 2)";
        assert_eq!(bar_text(&Job(36, Some(114)), &waiting, 60), format!(" 31 %  {text}"));
        assert_eq!(bar_text(&Job(0, None), &waiting, 80), text);
        let wide = bar_text(&Job(36, Some(114)), &waiting, 120);
        assert!(wide.starts_with('█') && wide.ends_with(text), "{wide}");
    }
}
