//! Shows a running transfer as progress lines, JSON events and log lines.

use std::sync::Arc;
use std::time::Duration;

use program::progress::{
    BinaryBytes, JobMoment, WaitState, WatchedJob, bytes_per_second, emit_event,
};
use stream::observe::Stage;

use super::event::ImportEvent;
use super::watch::TransferWatch;

/// A transfer, in the form that the progress display needs.
pub(super) struct TransferView {
    watch: Arc<TransferWatch>,
    said_image: bool,
    logged: LoggedState,
}

/// The counters of a transfer at the time of the last log line with rates. The next rates are
/// computed from the difference to them.
#[derive(Default)]
struct LoggedState {
    source_bytes: u64,
    written_bytes: u64,
    times: [Duration; Stage::ALL.len()],
}

impl TransferView {
    pub(super) fn new(watch: Arc<TransferWatch>) -> Self {
        Self { watch, said_image: false, logged: LoggedState::default() }
    }
}

impl WatchedJob for TransferView {
    fn done_bytes(&self) -> u64 {
        self.watch.consumed_bytes()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.watch.total_bytes()
    }

    fn wait_state(&self) -> Option<WaitState> {
        self.watch.wait_state()
    }

    fn plain_line(&self, moment: &JobMoment) -> String {
        progress_line(&self.watch, moment.bytes_per_second.unwrap_or(0), moment.seconds_left)
    }

    fn emit_json(&mut self, moment: &JobMoment) {
        if !self.said_image
            && let Some(facts) = self.watch.image_facts()
        {
            self.said_image = true;
            emit_event(&ImportEvent::Image {
                layers: &facts.layers,
                format: facts.format.to_string(),
                route: facts.route.to_string(),
                virtual_size: facts.virtual_size,
            });
        }
        emit_event(&ImportEvent::Progress {
            source_bytes: self.watch.consumed_bytes(),
            source_total: self.watch.total_bytes(),
            written_bytes: self.watch.written_bytes(),
            percent: self.watch.permille().map(|permille| f64::from(permille) / 10.0),
            bytes_per_second: moment.bytes_per_second.unwrap_or(0),
            eta_seconds: moment.seconds_left,
            limited_seconds: self.watch.times().limited_seconds(),
            waiting: moment.wait.as_ref().map(|wait| wait.to_event(moment.now)),
            connections: self.watch.open_connections(),
        });
    }

    fn log_rates(&mut self, period: Duration) {
        let times = self.watch.times().stage_times().map(|(_, time)| time);
        let now = LoggedState {
            source_bytes: self.watch.consumed_bytes(),
            written_bytes: self.watch.written_bytes(),
            times,
        };
        let last = std::mem::replace(&mut self.logged, now);
        let rate =
            |now: u64, last: u64| BinaryBytes(bytes_per_second(now.saturating_sub(last), period));
        let shares =
            Stage::ALL.into_iter().zip(times).zip(last.times).map(|((stage, now), last)| {
                let percent = now.saturating_sub(last).as_secs_f64() * 100.0 / period.as_secs_f64();
                format!("{stage} {percent:.0} %")
            });
        tracing::debug!(
            "read {}/s, wrote {}/s; busy: {}",
            rate(self.logged.source_bytes, last.source_bytes),
            rate(self.logged.written_bytes, last.written_bytes),
            shares.collect::<Vec<_>>().join(", ")
        );
    }
}

fn progress_line(watch: &TransferWatch, speed: u64, seconds_left: Option<u64>) -> String {
    let (position, written) =
        (BinaryBytes(watch.consumed_bytes()), BinaryBytes(watch.written_bytes()));
    let speed = BinaryBytes(speed);
    match (watch.total_bytes(), watch.permille()) {
        (Some(total), Some(permille)) => {
            let left = seconds_left.map_or_else(String::new, |left| format!(", {left} s left"));
            let total = BinaryBytes(total);
            format!(
                "{}.{} %, {position} of {total} read, {written} written, {speed}/s{left}",
                permille / 10,
                permille % 10
            )
        }
        _ => format!("{position} read, {written} written, {speed}/s"),
    }
}

#[cfg(test)]
mod tests {
    use stream::observe::{ByteCount, Observer};

    use super::*;

    #[test]
    fn a_progress_line_shows_only_known_values() {
        let watch = TransferWatch::default();
        watch.source_position(3 << 20, None);
        watch.record_bytes(ByteCount::Target, 1 << 20);
        assert_eq!(
            progress_line(&watch, 1 << 20, None),
            "3.00 MiB read, 1.00 MiB written, 1.00 MiB/s"
        );
        watch.source_position(3 << 20, Some(8 << 20));
        assert_eq!(
            progress_line(&watch, 1 << 20, Some(5)),
            "37.5 %, 3.00 MiB of 8.00 MiB read, 1.00 MiB written, 1.00 MiB/s, 5 s left"
        );
        assert!(
            !progress_line(&watch, 0, None).contains("left"),
            "no remaining time while nothing moves"
        );
    }
}
