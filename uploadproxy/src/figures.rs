//! The metrics of the proxy.

use std::time::Duration;

use program::metrics::{Counter, Gauge, Registry};

use crate::outcome::Outcome;

/// Its series. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) registry: Registry,
    /// Uploads in progress.
    pub(crate) active: Gauge,
    /// Bytes of bodies that were forwarded.
    pub(crate) bytes: Counter,
    milliseconds: Counter,
    outcomes: [(Outcome, Counter); Outcome::ALL.len()],
}

impl Default for Figures {
    fn default() -> Self {
        let registry = Registry::default();
        Self {
            active: registry.gauge(
                "cdi_uploadproxy_active_uploads",
                "Requests with a valid token that are in progress.",
                &[],
            ),
            bytes: registry.counter(
                "cdi_uploadproxy_received_bytes_total",
                "Bytes that were taken from clients for upload servers.",
                &[],
            ),
            milliseconds: registry.counter(
                "cdi_uploadproxy_upload_milliseconds_total",
                "Milliseconds that all requests with a valid token have taken together.",
                &[],
            ),
            outcomes: Outcome::ALL.map(|outcome| {
                let help = "Requests to upload paths, by how they ended.";
                let labels = [("outcome", outcome.name())];
                (
                    outcome,
                    registry.counter("cdi_uploadproxy_requests_total", help, &labels),
                )
            }),
            registry,
        }
    }
}

impl Figures {
    /// A request has ended.
    pub(crate) fn count(&self, outcome: Outcome) {
        if let Some((_, counter)) = self.outcomes.iter().find(|(known, _)| *known == outcome) {
            counter.add(1);
        }
    }

    /// An upload took so long.
    pub(crate) fn add_time(&self, time: Duration) {
        self.milliseconds
            .add(time.as_millis().try_into().unwrap_or(u64::MAX));
    }
}
