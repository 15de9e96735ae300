//! Observes a pod's import for its log and metrics.

use std::sync::Arc;
use std::time::Duration;

use program::metrics::{Gauge, MetricsRegistry, ProgressMetric};
use reporting::figures::{CountedTransfer, TransferMetrics, writer_troubles};
use reporting::watch::{self, PhaseTracker};
use stream::Error;
use stream::error::SourceErrorKind;
use stream::facts::ImageFacts;
use stream::observe::{ByteCount, LimitingPart, Observer, Stage, TransferPhase};

/// Logs the phases under CDI's names, and updates the progress metric that CDI's controllers
/// scrape.
#[derive(Debug)]
pub(crate) struct PodWatch {
    progress: ProgressMetric,
    connections: Gauge,
    counted: CountedTransfer,
    phases: PhaseTracker,
}

impl PodWatch {
    /// Registers the metrics in `registry`. `progress` is the name and the help text of the
    /// progress metric. Its label is the owner's UID, by which the controllers find the metric.
    pub(crate) fn new(
        registry: &MetricsRegistry,
        progress: (&'static str, &'static str),
        owner_uid: &str,
        phases: PhaseTracker,
    ) -> Self {
        let (name, help) = progress;
        let metrics = TransferMetrics::new(registry, "importer", writer_troubles());
        Self {
            progress: registry.add_progress(name, help, owner_uid),
            connections: registry.add_gauge(
                "cdi_importer_source_connections",
                "Connections over which the source is read. With auto, they are added while they make it faster.",
                &[],
            ),
            counted: CountedTransfer::new(Arc::new(metrics)),
            phases,
        }
    }

    /// Returns the most recent phase.
    pub(crate) fn current_phase(&self) -> TransferPhase {
        self.phases.current_phase()
    }

    /// Counts `error` as a failure of the import.
    pub(crate) fn record_failure(&self, error: &Error) {
        self.counted.metrics.record_failure(error.stage_and_kind());
    }

    /// Sets the progress to 100 %, and logs what limited the import. This is called when everything
    /// is verified and on the disk.
    pub(crate) fn finish_progress(&self) {
        self.progress.set_complete();
        self.counted.log_limits();
    }
}

impl Observer for PodWatch {
    fn begin_phase(&self, phase: TransferPhase) {
        self.phases.begin_phase(phase);
    }

    fn record_image(&self, facts: &ImageFacts) {
        watch::log_image(facts);
    }

    fn source_position(&self, position: u64, total: Option<u64>) {
        self.counted.record_bytes(ByteCount::Source, position);
        if let Some(total) = total {
            self.progress.record_bytes(position, total);
        }
    }

    fn record_bytes(&self, count: ByteCount, total: u64) {
        self.counted.record_bytes(count, total);
    }

    fn record_retry(&self, kind: SourceErrorKind) {
        self.counted.record_retry(kind);
    }

    fn record_connections(&self, open: usize, reason: &str) {
        self.counted.record_connections(open, reason);
        self.connections.set(u32::try_from(open).map_or(f64::INFINITY, f64::from));
    }

    fn record_time(&self, stage: Stage, time: Duration) {
        self.counted.record_time(stage, time);
    }

    fn record_limit(&self, part: LimitingPart, time: Duration) {
        self.counted.record_limit(part, time);
    }
}

#[cfg(test)]
mod tests {
    use program::metrics::IMPORT_PROGRESS;
    use reporting::messages::ProductKind;

    use super::*;

    #[test]
    fn progress_is_absent_before_the_first_byte_and_full_only_at_the_end() {
        let registry = MetricsRegistry::default();
        let phases = PhaseTracker::new(ProductKind::Disk);
        let watch = PodWatch::new(&registry, IMPORT_PROGRESS, "uid", phases);
        let shown = || {
            let text = registry.encode_text();
            let line =
                text.lines().find(|line| line.starts_with(IMPORT_PROGRESS.0)).map(str::to_owned);
            line.map(|line| line.rsplit(' ').next().unwrap_or_default().to_owned())
        };
        watch.source_position(0, None);
        assert_eq!(shown(), None);
        watch.source_position(1, Some(3));
        assert_eq!(shown().as_deref(), Some("33.33"));
        watch.source_position(3, Some(3));
        assert_eq!(shown().as_deref(), Some("99.99"));
        watch.finish_progress();
        assert_eq!(shown().as_deref(), Some("100.00"));
    }
}
