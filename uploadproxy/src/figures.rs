//! The metrics of the proxy.

use std::time::Duration;

use https::listener::ConnectionFigures;
use program::metrics::{
    Counter, Gauge, Histogram, MetricsRegistry, TRANSFER_BYTES, TRANSFER_SECONDS,
};

use crate::limits::UploadLimitError;
use crate::outcome::RequestOutcome;

/// The metric series of a proxy. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct ProxyMetrics {
    pub(crate) registry: MetricsRegistry,
    /// Uploads in progress.
    pub(crate) active: Gauge,
    /// Bytes of bodies that were forwarded.
    pub(crate) bytes: Counter,
    /// The connections of clients.
    pub(crate) connections: ConnectionFigures,
    seconds: Histogram,
    sizes: Histogram,
    /// The expiry time of the certificate presented to clients, in seconds since 1970.
    pub(crate) certificate_expiry: Gauge,
    outcomes: [(RequestOutcome, Counter); RequestOutcome::NAMES.len()],
    limits: [(&'static str, Counter); UploadLimitError::NAMES.len()],
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
                "Bytes received from clients for upload servers.",
                &[],
            ),
            connections: ConnectionFigures {
                open: registry.add_gauge(
                    "cdi_uploadproxy_open_connections",
                    "Connections of clients.",
                    &[],
                ),
                limit: registry.add_gauge(
                    "cdi_uploadproxy_max_connections",
                    "Number of client connections at which the oldest idle one is closed.",
                    &[],
                ),
                evicted: registry.add_counter(
                    "cdi_uploadproxy_evicted_connections_total",
                    "Connections that were closed to make room: idle ones, and unfinished handshakes.",
                    &[],
                ),
                refused: registry.add_counter(
                    "cdi_uploadproxy_refused_connections_total",
                    "Connections that were closed immediately because the connection limit was reached.",
                    &[],
                ),
            },
            seconds: registry.add_histogram(
                "cdi_uploadproxy_request_duration_seconds",
                "Duration of requests with a valid token.",
                TRANSFER_SECONDS,
            ),
            sizes: registry.add_histogram(
                "cdi_uploadproxy_request_size_bytes",
                "Bytes received in requests with a valid token.",
                TRANSFER_BYTES,
            ),
            certificate_expiry: registry.add_gauge(
                "cdi_uploadproxy_certificate_expiry_timestamp_seconds",
                "Expiry time of the certificate presented to clients, in seconds since 1970.",
                &[],
            ),
            outcomes: RequestOutcome::NAMES.map(|(outcome, name)| {
                let help = "Requests to upload paths, by outcome.";
                let labels = [("outcome", name)];
                (outcome, registry.add_counter("cdi_uploadproxy_requests_total", help, &labels))
            }),
            limits: UploadLimitError::NAMES.map(|limit| {
                let help = "Requests that were refused because there were too many, by the limit.";
                let labels = [("limit", limit)];
                (limit, registry.add_counter("cdi_uploadproxy_limited_requests_total", help, &labels))
            }),
            registry,
        }
    }
}

impl ProxyMetrics {
    /// Counts a request that has ended with `outcome`.
    pub(crate) fn count_outcome(&self, outcome: RequestOutcome) {
        if let Some((_, counter)) = self.outcomes.iter().find(|(known, _)| *known == outcome) {
            counter.add(1);
        }
    }

    /// Counts a request that was rejected because of a limit.
    pub(crate) fn count_limit(&self, error: UploadLimitError) {
        self.count_outcome(RequestOutcome::Limited);
        if let Some((_, counter)) = self.limits.iter().find(|(known, _)| *known == error.name()) {
            counter.add(1);
        }
    }

    /// Records the duration and the size of a request with a valid token.
    pub(crate) fn record_request(&self, time: Duration, bytes: u64) {
        self.seconds.observe(time.as_secs_f64());
        self.sizes.observe(bytes as f64);
    }
}
