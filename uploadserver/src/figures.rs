//! The metrics of a server.

use std::sync::Arc;

use program::metrics::{Counter, Gauge, MetricsRegistry};
use reporting::figures::{TransferMetrics, writer_troubles};
use stream::memory;

use crate::job::UploadJob;

/// The metric series of an upload server.
pub(crate) struct ServerMetrics {
    registry: MetricsRegistry,
    successes: Counter,
    failures: Counter,
    /// Rejected requests to upload paths.
    pub(crate) refusals: Counter,
    percent: Gauge,
    speed: Gauge,
    states: [(&'static str, Gauge); 6],
    held: Gauge,
    /// Transfer metrics.
    pub(crate) transfers: Arc<TransferMetrics>,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let registry = MetricsRegistry::default();
        let outcome = |outcome| {
            registry.add_counter(
                "cdi_uploadserver_uploads_total",
                "Uploads that have ended.",
                &[("outcome", outcome)],
            )
        };
        let state = |state| {
            let help = "1 for the current state of the server.";
            let labels = [("state", state)];
            (state, registry.add_gauge("cdi_uploadserver_state", help, &labels))
        };
        Self {
            successes: outcome("success"),
            failures: outcome("failure"),
            refusals: registry.add_counter(
                "cdi_uploadserver_refused_requests_total",
                "Upload requests that were rejected: from another client, with another method, or while an upload is in progress.",
                &[],
            ),
            percent: registry.add_gauge(
                "cdi_uploadserver_progress_percent",
                "Percentage of the upload in progress that was received; 0 if its length is not known.",
                &[],
            ),
            speed: registry.add_gauge(
                "cdi_uploadserver_bytes_per_second",
                "Average speed of the upload in progress.",
                &[],
            ),
            states: ["idle", "uploading", "waiting", "processing", "done", "failed"].map(state),
            held: registry.add_gauge("cdi_uploadserver_held_bytes", "Memory used for data.", &[]),
            transfers: Arc::new(TransferMetrics::new(
                &registry,
                "uploadserver",
                writer_troubles(),
            )),
            registry,
        }
    }
}

impl ServerMetrics {
    /// Counts an upload that has ended.
    pub(crate) fn count_upload(&self, job: &UploadJob, is_success: bool) {
        job.progress.count_received();
        if is_success { &self.successes } else { &self.failures }.add(1);
    }

    /// Returns the metrics page for Prometheus, for a server in `state` whose upload is at
    /// `percent`.
    pub(crate) fn encode_metrics(
        &self,
        state: &str,
        percent: Option<f64>,
        bytes_per_second: u64,
    ) -> String {
        self.percent.set(percent.unwrap_or(0.0));
        self.speed.set(bytes_per_second as f64);
        self.held.set(memory::in_use() as f64);
        for (known, gauge) in &self.states {
            gauge.set(if *known == state { 1.0 } else { 0.0 });
        }
        self.registry.encode_page()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_current_state_is_one_in_the_metrics() {
        let text = ServerMetrics::default().encode_metrics("waiting", Some(12.5), 7);
        for line in [
            "cdi_uploadserver_state{state=\"waiting\"} 1",
            "cdi_uploadserver_state{state=\"idle\"} 0",
            "cdi_uploadserver_progress_percent 12.5",
            "cdi_uploadserver_bytes_per_second 7",
            "cdi_uploadserver_uploads_total{outcome=\"failure\"} 0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
