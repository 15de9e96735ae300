//! Log lines about a transfer, with the phase names that CDI's importer and upload server use.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use program::logging::POD_LINES;
use program::progress::{BinaryBytes, bytes_per_second};
use stream::facts::ImageFacts;
use stream::observe::{LimitingPart, Stage, TransferPhase, TransferTimes};

use crate::messages::ProductKind;

/// Shortest limit of a part that is worth an explanation.
const SLOW_PART: Duration = Duration::from_secs(1);

/// Logs the bytes that a transfer read and the bytes that it wrote to the disk at `path`.
pub fn log_transfer(source_bytes: u64, written_bytes: u64, path: &Path) {
    let path = path.display();
    tracing::info!("Read {source_bytes} bytes, wrote {written_bytes} bytes to {path}");
}

/// Logs the number of entries and bytes that were unpacked from an archive into `dir`.
pub fn log_unpacked(source_bytes: u64, entries: u64, data_bytes: u64, dir: &Path) {
    tracing::info!(
        "Read {source_bytes} bytes, unpacked {entries} entries with {data_bytes} bytes into {}",
        dir.display()
    );
}

/// Logs why a transfer was slow, if one part limited most of it.
pub fn log_slow_part(times: &TransferTimes, source_bytes: u64, written_bytes: u64) {
    if let Some(sentence) = explain_slow_part(times, source_bytes, written_bytes) {
        tracing::info!("{sentence}");
    }
}

/// Compares the part that limited most of a transfer with the target, such as `the source gave
/// 18.00 MiB/s on 1 connection; the target could take at least 900.00 MiB/s`. Returns `None` if no
/// part stands out, or if the transfer was fast.
fn explain_slow_part(
    times: &TransferTimes,
    source_bytes: u64,
    written_bytes: u64,
) -> Option<String> {
    let limits = times.limit_times();
    let whole: Duration = limits.iter().map(|(_, time)| *time).sum();
    let (part, time) = limits.into_iter().max_by_key(|(_, time)| *time)?;
    if time < SLOW_PART || time < whole / 2 {
        return None;
    }
    let rate = |bytes, time| format!("{}/s", BinaryBytes(bytes_per_second(bytes, time)));
    // Several threads write at once, so the sum of their times gives a lower limit of the rate.
    let writing = times.stage_times()[Stage::Target as usize].1;
    // A disk of zeros says nothing about the target.
    let target_rate = match written_bytes {
        0 => String::new(),
        bytes => format!("; the target could take at least {}", rate(bytes, writing)),
    };
    Some(match part {
        LimitingPart::Source => {
            let number = match times.most_connections().map(NonZeroUsize::get) {
                None => String::new(),
                Some(1) => " on 1 connection".to_owned(),
                Some(most) => format!(" on up to {most} connections"),
            };
            format!("the source gave {}{number}{target_rate}", rate(source_bytes, whole))
        }
        LimitingPart::Decoder => {
            format!("the decoder read {} of the source{target_rate}", rate(source_bytes, whole))
        }
        LimitingPart::Target => {
            let taken = rate(written_bytes, whole);
            format!("the target took {taken}; the source and the decoder were faster")
        }
    })
}

/// Logs that the phase `name` began.
pub fn log_phase(name: &str) {
    tracing::info!(target: POD_LINES, "New phase: {name}");
}

/// Tracks and logs the phases of a transfer.
#[derive(Debug)]
pub struct PhaseTracker {
    /// The most recent [`TransferPhase`], as a number.
    current: AtomicU8,
    made: ProductKind,
    /// True for a disk that CDI's importer converts from a file.
    is_conversion: bool,
}

impl PhaseTracker {
    /// Creates a tracker for a transfer that produces `made`. Its first phase is `Info`.
    pub fn new(made: ProductKind) -> Self {
        Self { current: AtomicU8::new(TransferPhase::Info as u8), made, is_conversion: false }
    }

    /// Starts like [`PhaseTracker::new`] for a disk in an image that the kubelet has mounted. CDI's
    /// importer calls the transfer of such a disk `Convert`.
    pub fn new_conversion() -> Self {
        Self { is_conversion: true, ..Self::new(ProductKind::Disk) }
    }

    /// Records and logs that `phase` began.
    pub fn begin_phase(&self, phase: TransferPhase) {
        self.current.store(phase as u8, Ordering::Relaxed);
        let name = match (phase, self.made) {
            // Logged already, before the image was opened.
            (TransferPhase::Info, _) if self.is_conversion => return,
            (TransferPhase::Info, _) => "Info",
            (TransferPhase::Transfer, _) if self.is_conversion => "Convert",
            (TransferPhase::Transfer, ProductKind::Disk | ProductKind::Changes) => {
                "TransferDataFile"
            }
            (TransferPhase::Transfer, ProductKind::Directory) => "TransferDataDir",
            (TransferPhase::Transfer, ProductKind::Delta) => "MergeDelta",
            (TransferPhase::Resize, _) => "Resize",
            (TransferPhase::Complete, _) => "Complete",
        };
        log_phase(name);
    }

    /// Returns the most recent phase.
    pub fn current_phase(&self) -> TransferPhase {
        let number = self.current.load(Ordering::Relaxed);
        [TransferPhase::Transfer, TransferPhase::Resize, TransferPhase::Complete]
            .into_iter()
            .find(|&phase| phase as u8 == number)
            .unwrap_or(TransferPhase::Info)
    }
}

/// Logs the format, compression, size and route of a recognized image; the route is how the image
/// is read.
pub fn log_image(facts: &ImageFacts) {
    let layers = if facts.layers.is_empty() { "none".to_owned() } else { facts.layers.join(",") };
    tracing::info!(
        format = %facts.format,
        compression = layers,
        virtual_size = facts.virtual_size,
        route = %facts.route,
        "recognized the image"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_that_limits_most_of_the_time_is_compared_with_the_target() {
        let target = "; the target could take at least 900.00 MiB/s";
        for (limits, connections, written, sentence) in [
            ([9, 1, 0], 0, 900, Some(format!("the source gave 18.00 MiB/s{target}"))),
            (
                [9, 1, 0],
                1,
                900,
                Some(format!("the source gave 18.00 MiB/s on 1 connection{target}")),
            ),
            (
                [9, 0, 1],
                4,
                900,
                Some(format!("the source gave 18.00 MiB/s on up to 4 connections{target}")),
            ),
            (
                [1, 8, 1],
                4,
                900,
                Some(format!("the decoder read 18.00 MiB/s of the source{target}")),
            ),
            (
                [1, 1, 8],
                0,
                900,
                Some("the target took 90.00 MiB/s; the source and the decoder were faster".into()),
            ),
            ([10, 0, 0], 0, 0, Some("the source gave 18.00 MiB/s".into())),
            // The transfer was too fast to matter, or no stage stands out.
            ([0, 0, 0], 0, 900, None),
            ([4, 3, 3], 0, 900, None),
        ] {
            let times = TransferTimes::default();
            for (part, seconds) in LimitingPart::ALL.into_iter().zip(limits) {
                times.add_limit(part, Duration::from_secs(seconds));
            }
            times
                .add_time(Stage::Target, Duration::from_millis(if written > 0 { 1000 } else { 0 }));
            times.record_connections(connections);
            assert_eq!(explain_slow_part(&times, 180 << 20, written << 20), sentence);
        }
    }
}
