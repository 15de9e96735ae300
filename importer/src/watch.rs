//! Observes a pod's import for its log and metrics.

use std::sync::Arc;

use program::metrics::MetricsRegistry;
use reporting::figures::{CountedTransfer, TransferMetrics, writer_troubles};
use reporting::watch::PhaseTracker;

/// Registers the metrics of an import in `registry`. `progress` is the name and the help text of
/// the progress metric. Its label is the owner's UID, by which the controllers find the metric.
pub(crate) fn count_import(
    registry: &MetricsRegistry,
    progress: (&'static str, &'static str),
    owner_uid: &str,
    phases: PhaseTracker,
) -> Arc<CountedTransfer> {
    let (name, help) = progress;
    let metrics = TransferMetrics::new(registry, "importer", writer_troubles());
    let connections = registry.add_gauge(
        "cdi_importer_source_connections",
        "Connections over which the source is read. With auto, they are added while they make it faster.",
        &[],
    );
    let transfer = CountedTransfer::new(Arc::new(metrics))
        .with_phases(phases)
        .with_progress(registry.add_progress(name, help, owner_uid), connections);
    Arc::new(transfer)
}

#[cfg(test)]
mod tests {
    use program::metrics::IMPORT_PROGRESS;
    use reporting::messages::ProductKind;
    use stream::observe::Observer;

    use super::*;

    #[test]
    fn progress_is_absent_before_the_first_byte_and_full_only_at_the_end() {
        let registry = MetricsRegistry::default();
        let phases = PhaseTracker::new(ProductKind::Disk);
        let watch = count_import(&registry, IMPORT_PROGRESS, "uid", phases);
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
        watch.finish();
        assert_eq!(shown().as_deref(), Some("100.00"));
    }
}
