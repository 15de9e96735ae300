//! Metrics of transfers, by stage. The names are the same in every program that writes or uploads
//! a volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use program::metrics::{Counter, Gauge, MetricsRegistry, ProgressMetric};
use stream::Error;
use stream::error::{SourceErrorKind, error_kinds};
use stream::facts::ImageFacts;
use stream::observe::{ByteCount, LimitingPart, Observer, Stage, TransferPhase, TransferTimes};

use crate::messages::ProductKind;
use crate::watch::{self, PhaseTracker};

const RETRIES: &str =
    "Failed attempts that are retried: requests, connections, uploads that wait to be resumed.";
const ERRORS: &str = "Errors that ended a transfer.";
const SECONDS: &str = "Time spent in each stage: source waits for bytes, decode decompresses and unpacks, format reads the image, \
                       target writes and syncs, or waits for the network. Stages and threads overlap.";

const LIMITED: &str = "Time in which the transfer was limited by its source, by its decoder (decompressing and reading the image; \
                       in a clone, encoding), or by its target (writing and syncing, or the network). These times do not overlap.";

/// The stage in which a transfer failed, and the kind of error.
pub type TransferTrouble = (Stage, &'static str);

/// Returns all combinations of stage and error kind that can occur in a program that writes a
/// volume.
pub fn writer_troubles() -> impl Iterator<Item = TransferTrouble> {
    let kinds_of = |stage| error_kinds(stage).iter().map(move |&kind| (stage, kind));
    Stage::ALL.into_iter().flat_map(kinds_of)
}

/// The series `cdi_transfer_…` of a program. All of them are exported from the start, initially
/// with the value 0.
#[derive(Debug)]
pub struct TransferMetrics {
    bytes: [Counter; ByteCount::ALL.len()],
    /// Retries by kind of error. Only the source is retried, so all of them have the stage
    /// `source`.
    retries: Vec<(&'static str, Counter)>,
    errors: Vec<(TransferTrouble, Counter)>,
    seconds: Vec<(Stage, Counter)>,
    limited: [Counter; LimitingPart::ALL.len()],
}

impl TransferMetrics {
    /// Registers the series in `registry` with the label `program`, such as `importer`. `troubles`
    /// lists the errors that can occur; only the stages named there get a series `stage_seconds`.
    pub fn new(
        registry: &MetricsRegistry,
        program: &'static str,
        troubles: impl Iterator<Item = TransferTrouble>,
    ) -> Self {
        let family = MetricNames { registry, program };
        let troubles: Vec<_> = troubles.collect();
        let is_used = |stage: &Stage| troubles.iter().any(|(used, _)| used == stage);
        Self {
            bytes: ByteCount::ALL.map(|count| {
                let (name, help) = count.describe();
                family.add_counter(name, help, &[])
            }),
            retries: family.add_retries(),
            seconds: (Stage::ALL.into_iter().filter(is_used))
                .map(|stage| {
                    (
                        stage,
                        family.add_seconds("stage_seconds", SECONDS, &[("stage", stage.name())]),
                    )
                })
                .collect(),
            limited: LimitingPart::ALL.map(|part| {
                family.add_seconds("limited_seconds", LIMITED, &[("part", part.name())])
            }),
            errors: (troubles.into_iter())
                .map(|(stage, kind)| {
                    let labels = [("stage", stage.name()), ("kind", kind)];
                    ((stage, kind), family.add_counter("errors", ERRORS, &labels))
                })
                .collect(),
        }
    }

    /// Counts a transfer that failed with `trouble`. If it is `None`, the transfer was stopped on
    /// request and is not counted.
    pub fn record_failure(&self, trouble: Option<TransferTrouble>) {
        if let Some((_, counter)) = self.errors.iter().find(|(known, _)| Some(*known) == trouble) {
            counter.add(1);
        }
    }
}

/// Registers the series of one program.
struct MetricNames<'r> {
    registry: &'r MetricsRegistry,
    program: &'static str,
}

impl MetricNames<'_> {
    fn add_counter(&self, name: &str, help: &'static str, labels: &[(&str, &str)]) -> Counter {
        self.registry.add_counter(format!("cdi_transfer_{name}_total"), help, &self.all(labels))
    }

    /// Adds a retry counter for each kind of source error. Only reads of the source are retried.
    fn add_retries(&self) -> Vec<(&'static str, Counter)> {
        let with_counter = |&kind| {
            let labels = [("stage", Stage::Source.name()), ("kind", kind)];
            (kind, self.add_counter("retries", RETRIES, &labels))
        };
        error_kinds(Stage::Source).iter().map(with_counter).collect()
    }

    fn add_seconds(&self, name: &str, help: &'static str, labels: &[(&str, &str)]) -> Counter {
        let name = format!("cdi_transfer_{name}_total");
        self.registry.add_seconds_counter(name, help, &self.all(labels))
    }

    fn all<'l>(&self, labels: &[(&'l str, &'l str)]) -> Vec<(&'l str, &'l str)> {
        [&[("program", self.program)], labels].concat()
    }
}

/// One transfer, counted in the metrics of its program. Its phases and its image are logged under
/// CDI's names.
#[derive(Debug)]
pub struct CountedTransfer {
    /// The metrics of all transfers.
    pub metrics: Arc<TransferMetrics>,
    phases: PhaseTracker,
    /// The progress for CDI's controllers. Without [`CountedTransfer::with_progress`], it and the
    /// connections are counted but not exported.
    progress: ProgressMetric,
    connections: Gauge,
    /// Bytes of this transfer, indexed by [`ByteCount`].
    totals: [AtomicU64; ByteCount::ALL.len()],
    times: TransferTimes,
}

impl CountedTransfer {
    /// Starts counting a new transfer from zero.
    pub fn new(metrics: Arc<TransferMetrics>) -> Self {
        Self {
            metrics,
            phases: PhaseTracker::new(ProductKind::Disk),
            progress: ProgressMetric::default(),
            connections: Gauge::default(),
            totals: Default::default(),
            times: TransferTimes::default(),
        }
    }

    /// Logs the phases by `phases`. By default, the phases of a disk are logged.
    pub fn with_phases(self, phases: PhaseTracker) -> Self {
        Self { phases, ..self }
    }

    /// Exports the progress and the number of connections to the source as these metrics.
    pub fn with_progress(self, progress: ProgressMetric, connections: Gauge) -> Self {
        Self { progress, connections, ..self }
    }

    /// Returns the phase that began last.
    pub fn current_phase(&self) -> TransferPhase {
        self.phases.current_phase()
    }

    /// Counts `error` as the failure of this transfer.
    pub fn record_failure(&self, error: &Error) {
        self.metrics.record_failure(error.stage_and_kind());
    }

    /// Sets the progress to 100 %, and logs what limited the transfer. This is called when
    /// everything is verified and on the disk.
    pub fn finish(&self) {
        self.progress.set_complete();
        self.log_limits();
    }

    /// Returns the times of this transfer.
    pub fn times(&self) -> &TransferTimes {
        &self.times
    }

    /// Logs what limited this transfer, and why it was slow if it was.
    pub fn log_limits(&self) {
        tracing::info!("{}", self.times.limits_line());
        let [source_bytes, written_bytes] =
            [ByteCount::Source, ByteCount::Target].map(|count| self.total_bytes(count));
        watch::log_slow_part(&self.times, source_bytes, written_bytes);
    }

    /// Returns the bytes of this transfer that were counted as `count`.
    pub fn total_bytes(&self, count: ByteCount) -> u64 {
        self.totals[count as usize].load(Ordering::Relaxed)
    }
}

impl Observer for CountedTransfer {
    fn begin_phase(&self, phase: TransferPhase) {
        self.phases.begin_phase(phase);
    }

    fn record_image(&self, facts: &ImageFacts) {
        watch::log_image(facts);
    }

    fn source_position(&self, position: u64, total: Option<u64>) {
        self.record_bytes(ByteCount::Source, position);
        if let Some(total) = total {
            self.progress.record_bytes(position, total);
        }
    }

    fn record_bytes(&self, count: ByteCount, total: u64) {
        // After a restart, the total is smaller than before. The bytes up to the previous total
        // were already counted and add nothing.
        let before = self.totals[count as usize].fetch_max(total, Ordering::Relaxed);
        self.metrics.bytes[count as usize].add(total.saturating_sub(before));
    }

    fn record_retry(&self, kind: SourceErrorKind) {
        if let Some((_, counter)) =
            self.metrics.retries.iter().find(|(known, _)| *known == kind.name())
        {
            counter.add(1);
        }
    }

    fn record_limit(&self, part: LimitingPart, time: Duration) {
        self.metrics.limited[part as usize].add_time(time);
        self.times.add_limit(part, time);
    }

    fn record_connections(&self, open: usize, _reason: &str) {
        self.times.record_connections(open);
        self.connections.set(u32::try_from(open).map_or(f64::INFINITY, f64::from));
    }

    fn record_time(&self, stage: Stage, time: Duration) {
        self.times.add_time(stage, time);
        if let Some((_, seconds)) = self.metrics.seconds.iter().find(|(known, _)| *known == stage) {
            seconds.add_time(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::io::Errno;
    use stream::Error;
    use stream::digest::ChecksumMismatchError;
    use stream::error::{DecodeError, FormatError, SourceError, TargetError, TargetRefusedError};

    use super::*;

    fn source(kind: SourceErrorKind) -> Error {
        SourceError::new(kind, "x").into()
    }

    fn target(cause: impl Into<std::io::Error>) -> Error {
        TargetError::new("write", Path::new("/d"), cause.into()).into()
    }

    #[test]
    fn every_error_series_starts_at_zero_and_counts_its_own_errors() {
        let registry = MetricsRegistry::default();
        let figures = TransferMetrics::new(&registry, "x", writer_troubles());
        let before = registry.encode_text();
        let (codec, text) = ("gzip", String::new);
        for (error, stage, kind) in [
            (source(SourceErrorKind::Connect), "source", "connect"),
            (source(SourceErrorKind::UnknownHost), "source", "unknown-host"),
            (source(SourceErrorKind::Status(503)), "source", "status"),
            (source(SourceErrorKind::Changed), "source", "changed"),
            (source(SourceErrorKind::Length), "source", "length"),
            (source(SourceErrorKind::Digest), "source", "digest"),
            (source(SourceErrorKind::Signature), "source", "signature"),
            (source(SourceErrorKind::Stalled), "source", "stalled"),
            (source(SourceErrorKind::NotResumable), "source", "not-resumable"),
            (source(SourceErrorKind::Invalid), "source", "invalid"),
            (source(SourceErrorKind::Io), "source", "io"),
            (
                ChecksumMismatchError { expected: text(), calculated: text() }.into(),
                "source",
                "checksum",
            ),
            (DecodeError::Truncated { codec, offset: 1 }.into(), "decode", "truncated"),
            (DecodeError::TrailingGarbage { codec, offset: 1 }.into(), "decode", "corrupt"),
            (DecodeError::Barren { codec, consumed: 2, decoded: 1 }.into(), "decode", "barren"),
            (DecodeError::Empty.into(), "decode", "empty"),
            (DecodeError::TooDeep { limit: 4 }.into(), "decode", "unsupported"),
            (FormatError::Endless { passed: 2, most: 1 }.into(), "format", "endless"),
            (FormatError::Parking { parked: 2, budget: 1 }.into(), "format", "memory"),
            (FormatError::TooLarge { virtual_size: 2, available: 1 }.into(), "format", "too-large"),
            (FormatError::Base { found: text(), expected: text() }.into(), "format", "base"),
            (target(std::io::Error::other(TargetRefusedError::InUse)), "target", "refused"),
            (target(Errno::NOSPC), "target", "no-space"),
            (target(Errno::IO), "target", "io"),
        ] {
            let labels = format!("stage=\"{stage}\",kind=\"{kind}\"");
            figures.record_failure(error.stage_and_kind());
            let after = registry.encode_text();
            let series = format!("cdi_transfer_errors_total{{program=\"x\",{labels}}}");
            assert!(before.contains(&format!("{series} 0\n")), "{labels}");
            assert!(after.contains(&format!("{series} 1\n")), "{labels}");
        }
        let all = registry.encode_text();
        figures.record_failure(Error::Stopped.stage_and_kind());
        figures.record_failure(source(SourceErrorKind::Stopped).stage_and_kind());
        assert_eq!(registry.encode_text(), all, "a stop is not an error");
    }

    #[test]
    fn retries_times_and_bytes_add_up_and_a_restart_counts_once() {
        let registry = MetricsRegistry::default();
        let metrics = Arc::new(TransferMetrics::new(&registry, "x", writer_troubles()));
        let figures = CountedTransfer::new(Arc::clone(&metrics));
        figures.record_retry(SourceErrorKind::Connect);
        figures.record_retry(SourceErrorKind::Status(503));
        for _ in 0..3 {
            figures.record_time(Stage::Target, Duration::from_millis(250));
        }
        figures.record_limit(LimitingPart::Target, Duration::from_millis(500));
        assert_eq!(figures.times().limited_seconds()["target"], 0.5);
        for totals in [[1, 7, 3], [5, 2, 5]] {
            let transfer = CountedTransfer::new(Arc::clone(&metrics));
            for total in totals {
                transfer.record_bytes(ByteCount::Skipped, total);
            }
            assert_eq!(Some(transfer.total_bytes(ByteCount::Skipped)), totals.into_iter().max());
        }
        let text = registry.encode_text();
        for line in [
            "limited_seconds_total{program=\"x\",part=\"target\"} 0.5\n",
            "limited_seconds_total{program=\"x\",part=\"decoder\"} 0\n",
            "retries_total{program=\"x\",stage=\"source\",kind=\"connect\"} 1\n",
            "retries_total{program=\"x\",stage=\"source\",kind=\"status\"} 1\n",
            "retries_total{program=\"x\",stage=\"source\",kind=\"io\"} 0\n",
            "stage_seconds_total{program=\"x\",stage=\"target\"} 0.75\n",
            "stage_seconds_total{program=\"x\",stage=\"source\"} 0\n",
            "skipped_bytes_total{program=\"x\"} 12\n",
            "target_bytes_total{program=\"x\"} 0\n",
        ] {
            assert!(text.contains(&format!("\ncdi_transfer_{line}")), "{line} in {text}");
        }
    }
}
