//! The observer of a pod's import, for log and metrics.

use std::time::Duration;

use datapath::Error;
use datapath::facts::ImageFacts;
use datapath::observe::{Observer, Stage, TransferPhase};
use program::metrics::{Counter, MetricsRegistry, ProgressMetric};
use volume::figures::TransferMetrics;
use volume::watch::{self, PhaseTracker};
use volume::wording::ProductKind;

/// Logs the phases by CDI's names and drives the progress that its controllers scrape.
#[derive(Debug)]
pub(crate) struct PodWatch {
    progress: ProgressMetric,
    source_bytes: Counter,
    target_bytes: Counter,
    figures: TransferMetrics,
    phases: PhaseTracker,
}

impl PodWatch {
    /// Series in `registry`: `progress`, by name and help, has the owner's uid as the controllers expect it.
    pub(crate) fn new(
        registry: &MetricsRegistry,
        progress: (&'static str, &'static str),
        owner_uid: &str,
        made: ProductKind,
    ) -> Self {
        let (name, help) = progress;
        Self {
            progress: registry.add_progress(name, help, owner_uid),
            source_bytes: registry.add_counter(
                "cdi_importer_source_bytes_total",
                "Bytes of the source that are consumed.",
                &[],
            ),
            target_bytes: registry.add_counter(
                "cdi_importer_target_bytes_total",
                "Bytes that were handed to the target.",
                &[],
            ),
            figures: TransferMetrics::new(registry, "cdi_importer"),
            phases: PhaseTracker::new(made),
        }
    }

    /// The phase that began last.
    pub(crate) fn current_phase(&self) -> TransferPhase {
        self.phases.current_phase()
    }

    /// The import ends with `error`.
    pub(crate) fn record_failure(&self, error: &Error) {
        self.figures.record_failure(error);
    }

    /// Everything is verified and on the disk: 100 %.
    pub(crate) fn finish_progress(&self) {
        self.progress.set_complete();
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
        // Calls come from one thread, in order; a position that went back (a restart) adds nothing.
        self.source_bytes
            .add(position.saturating_sub(self.source_bytes.value()));
        if let Some(total) = total {
            self.progress.record_bytes(position, total);
        }
    }

    fn target_written(&self, bytes: u64) {
        self.target_bytes
            .add(bytes.saturating_sub(self.target_bytes.value()));
    }

    fn record_retry(&self, _stage: Stage) {
        self.figures.record_retry();
    }

    fn record_time(&self, stage: Stage, time: Duration) {
        self.figures.record_time(stage, time);
    }
}

#[cfg(test)]
mod tests {
    use program::metrics::IMPORT_PROGRESS;

    use super::*;

    #[test]
    fn progress_is_absent_before_the_first_byte_and_full_only_at_the_end() {
        let registry = MetricsRegistry::default();
        let watch = PodWatch::new(&registry, IMPORT_PROGRESS, "uid", ProductKind::Disk);
        let shown = || {
            let text = registry.encode_text();
            let line = text
                .lines()
                .find(|line| line.starts_with(IMPORT_PROGRESS.0))
                .map(str::to_owned);
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
