//! A running transfer in numbers, words and events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::BinaryBytes;
use program::progress::{WatchedJob, emit_event};

use super::event::ImportEvent;
use super::watch::TransferWatch;

/// The view of a transfer that is displayed.
pub(super) struct TransferView {
    watch: Arc<TransferWatch>,
    rate: SmoothedRate,
    said_image: bool,
}

impl TransferView {
    pub(super) fn new(watch: Arc<TransferWatch>) -> Self {
        Self { watch, rate: SmoothedRate::start(), said_image: false }
    }
}

impl WatchedJob for TransferView {
    fn done_bytes(&self) -> u64 {
        self.watch.consumed_bytes()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.watch.total_bytes()
    }

    fn plain_line(&mut self) -> String {
        let speed = self.rate.update_rate(self.watch.consumed_bytes(), Instant::now());
        progress_line(&self.watch, speed)
    }

    fn emit_json(&mut self) {
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
        let position = self.watch.consumed_bytes();
        let speed = self.rate.update_rate(position, Instant::now());
        emit_event(&ImportEvent::Progress {
            source_bytes: position,
            source_total: self.watch.total_bytes(),
            written_bytes: self.watch.written_bytes(),
            percent: self.watch.permille().map(|permille| f64::from(permille) / 10.0),
            bytes_per_second: speed,
            eta_seconds: seconds_left(&self.watch, speed),
        });
    }
}

fn progress_line(watch: &TransferWatch, speed: u64) -> String {
    let (position, written) = (BinaryBytes(watch.consumed_bytes()), BinaryBytes(watch.written_bytes()));
    let speed_text = BinaryBytes(speed);
    match (watch.total_bytes(), watch.permille()) {
        (Some(total), Some(permille)) => {
            let left = seconds_left(watch, speed).map_or_else(String::new, |left| format!(", {left} s left"));
            let total = BinaryBytes(total);
            format!(
                "{}.{} %, {position} of {total} read, {written} written, {speed_text}/s{left}",
                permille / 10,
                permille % 10
            )
        }
        _ => format!("{position} read, {written} written, {speed_text}/s"),
    }
}

fn seconds_left(watch: &TransferWatch, speed: u64) -> Option<u64> {
    watch.total_bytes()?.saturating_sub(watch.consumed_bytes()).checked_div(speed)
}

/// Bytes per second, smoothed so that the remaining time does not jump.
struct SmoothedRate {
    at: Instant,
    position: u64,
    smoothed: Option<u64>,
}

impl SmoothedRate {
    fn start() -> Self {
        Self { at: Instant::now(), position: 0, smoothed: None }
    }

    /// The rate at time `now`, after `position` bytes: a quarter of it is what the last interval adds.
    fn update_rate(&mut self, position: u64, now: Instant) -> u64 {
        let fresh = bytes_per_second(position.saturating_sub(self.position), now.duration_since(self.at));
        let rate = self.smoothed.map_or(fresh, |old| old - old / 4 + fresh / 4);
        *self = Self { at: now, position, smoothed: Some(rate) };
        rate
    }
}

/// The average speed of `bytes` in `time`.
pub(super) fn bytes_per_second(bytes: u64, time: Duration) -> u64 {
    let rate = (u128::from(bytes) * 1000).checked_div(time.as_millis()).unwrap_or(u128::from(bytes));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use datapath::observe::{ByteCount, Observer};

    use super::*;

    #[test]
    fn a_line_says_what_is_known() {
        let watch = TransferWatch::default();
        watch.source_position(3 << 20, None);
        watch.record_bytes(ByteCount::Target, 1 << 20);
        assert_eq!(progress_line(&watch, 1 << 20), "3.00 MiB read, 1.00 MiB written, 1.00 MiB/s");
        watch.source_position(3 << 20, Some(8 << 20));
        assert_eq!(
            progress_line(&watch, 1 << 20),
            "37.5 %, 3.00 MiB of 8.00 MiB read, 1.00 MiB written, 1.00 MiB/s, 5 s left"
        );
        assert!(!progress_line(&watch, 0).contains("left"), "nothing moves, so nobody knows");
    }

    #[test]
    fn the_rate_follows_slowly() {
        let mut rate = SmoothedRate::start();
        let second = |n| rate.at + Duration::from_secs(n);
        let (one, two) = (second(1), second(2));
        assert_eq!(rate.update_rate(1000, one), 1000);
        assert_eq!(rate.update_rate(1000, two), 750);
    }

    #[test]
    fn speeds_do_not_divide_by_zero() {
        assert_eq!(bytes_per_second(7, Duration::ZERO), 7);
        assert_eq!(bytes_per_second(u64::MAX, Duration::from_millis(1)), u64::MAX);
    }
}
