//! The metrics of the proxy.

use std::time::Duration;

use program::metrics::{Counter, Gauge, MetricsRegistry, SecondsCounter};

use crate::outcome::RequestOutcome;

/// Its series. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct ProxyMetrics {
    pub(crate) registry: MetricsRegistry,
    /// Uploads in progress.
    pub(crate) active: Gauge,
    /// Bytes of bodies that were forwarded.
    pub(crate) bytes: Counter,
    seconds: SecondsCounter,
    /// The same, under an old name.
    milliseconds: Counter,
    /// The end of the certificate that clients see, in seconds since 1970.
    pub(crate) certificate_expiry: Gauge,
    outcomes: [(RequestOutcome, Counter); RequestOutcome::ALL.len()],
}

impl Default for ProxyMetrics {
    fn default() -> Self {
        let registry = MetricsRegistry::default();
        Self {
            active: registry.add_gauge(
                "cdi_uploadproxy_active_uploads",
                "Requests with a valid token that are in progress.",
                &[],
            ),
            bytes: registry.add_counter(
                "cdi_uploadproxy_received_bytes_total",
                "Bytes that were taken from clients for upload servers.",
                &[],
            ),
            seconds: registry.add_seconds_counter(
                "cdi_uploadproxy_upload_seconds_total",
                "Time that all requests with a valid token have taken together.",
                &[],
            ),
            milliseconds: registry.add_counter(
                "cdi_uploadproxy_upload_milliseconds_total",
                "Deprecated and gone with the next release: use cdi_uploadproxy_upload_seconds_total.",
                &[],
            ),
            certificate_expiry: registry.add_gauge(
                "cdi_uploadproxy_certificate_expiry_timestamp_seconds",
                "The end of the certificate that clients see, in seconds since 1970.",
                &[],
            ),
            outcomes: RequestOutcome::ALL.map(|outcome| {
                let help = "Requests to upload paths, by how they ended.";
                let labels = [("outcome", outcome.name())];
                (outcome, registry.add_counter("cdi_uploadproxy_requests_total", help, &labels))
            }),
            registry,
        }
    }
}

impl ProxyMetrics {
    /// A request has ended.
    pub(crate) fn count_outcome(&self, outcome: RequestOutcome) {
        if let Some((_, counter)) = self.outcomes.iter().find(|(known, _)| *known == outcome) {
            counter.add(1);
        }
    }

    /// An upload took so long.
    pub(crate) fn add_time(&self, time: Duration) {
        self.seconds.add_time(time);
        self.milliseconds.add(time.as_millis().try_into().unwrap_or(u64::MAX));
    }
}
