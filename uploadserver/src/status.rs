//! What is going on, for people (JSON) and for Prometheus.

use std::sync::Arc;
use std::time::Instant;

use daemon::metrics::{Counter, Gauge, Registry};
use datapath::memory;
use datapath::observe::Phase;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::job::Job;
use crate::reply::{self, Reply};
use crate::serve::Server;
use crate::slot::State;

/// The metrics of a server.
pub(crate) struct Figures {
    registry: Registry,
    received: Counter,
    written: Counter,
    successes: Counter,
    failures: Counter,
    percent: Gauge,
    speed: Gauge,
    stages: [(&'static str, Gauge); 5],
    held: Gauge,
}

impl Default for Figures {
    fn default() -> Self {
        let registry = Registry::default();
        let outcome = |outcome| {
            registry.counter(
                "cdi_uploadserver_uploads_total",
                "Uploads that have ended.",
                &[("outcome", outcome)],
            )
        };
        let stage = |stage| {
            let help = "1 for what the server is doing.";
            (
                stage,
                registry.gauge("cdi_uploadserver_stage", help, &[("stage", stage)]),
            )
        };
        Self {
            received: registry.counter(
                "cdi_uploadserver_received_bytes_total",
                "Bytes of images that were received.",
                &[],
            ),
            written: registry.counter(
                "cdi_uploadserver_written_bytes_total",
                "Bytes that were written to the target.",
                &[],
            ),
            successes: outcome("success"),
            failures: outcome("failure"),
            percent: registry.gauge(
                "cdi_uploadserver_progress_percent",
                "How much of the upload in progress was received; 0 if its length is not known.",
                &[],
            ),
            speed: registry.gauge(
                "cdi_uploadserver_bytes_per_second",
                "Average speed of the upload in progress.",
                &[],
            ),
            stages: ["idle", "uploading", "waiting", "processing", "done"].map(stage),
            held: registry.gauge("cdi_uploadserver_held_bytes", "Memory that data takes.", &[]),
            registry,
        }
    }
}

impl Figures {
    /// Counts what an upload has moved since it was last counted.
    fn catch_up(&self, job: &Job) {
        let (received, written) = job.progress.moved();
        self.received.add(received);
        self.written.add(written);
    }

    /// An upload has ended.
    pub(crate) fn count(&self, job: &Job, is_success: bool) {
        self.catch_up(job);
        if is_success {
            &self.successes
        } else {
            &self.failures
        }
        .add(1);
    }
}

/// The state of the server.
#[derive(Debug, Serialize)]
struct Status {
    state: &'static str,
    /// Bytes that came over the network.
    received_bytes: u64,
    /// Bytes of the upload, if the client said.
    total_bytes: Option<u64>,
    percent: Option<f64>,
    /// Bytes that were written to the target.
    written_bytes: u64,
    /// The phase of the transfer.
    stage: &'static str,
    /// On average since the beginning.
    bytes_per_second: u64,
    /// Since the beginning.
    seconds: f64,
    /// The format of the image, once it is recognised.
    format: Option<String>,
    /// Its compressed layers.
    layers: Vec<&'static str>,
    /// Bytes of the disk, once they are known.
    virtual_size: Option<u64>,
    /// Where the upload can be continued, if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<String>,
}

impl Status {
    fn of(state: &State) -> Self {
        match state {
            State::Busy(job) => Self::busy(job),
            State::Idle => Self::at_rest("idle"),
            State::Done(_) => Self::at_rest("done"),
            State::Broken(_) => Self::at_rest("failed"),
        }
    }

    fn at_rest(state: &'static str) -> Self {
        Self {
            state,
            received_bytes: 0,
            total_bytes: None,
            percent: None,
            written_bytes: 0,
            stage: "none",
            bytes_per_second: 0,
            seconds: 0.0,
            format: None,
            layers: Vec::new(),
            virtual_size: None,
            resume: None,
        }
    }

    fn busy(job: &Arc<Job>) -> Self {
        let progress = &job.progress;
        let seconds = Instant::now().duration_since(progress.began).as_secs_f64();
        let received = progress.received();
        let facts = progress.facts();
        Self {
            state: match job.resumable.as_ref() {
                _ if job.is_verified() => "processing",
                Some(resumable) if resumable.is_waiting() => "waiting",
                _ => "uploading",
            },
            received_bytes: received,
            total_bytes: progress.total,
            percent: progress.total.map(|total| percent(received, total)),
            written_bytes: progress.written(),
            stage: match progress.current_phase() {
                Phase::Info => "info",
                Phase::Transfer => "transfer",
                Phase::Resize => "resize",
                Phase::Complete => "complete",
            },
            bytes_per_second: per_second(received, seconds),
            seconds,
            format: facts.map(|facts| facts.format.to_string()),
            layers: facts.map(|facts| facts.layers.clone()).unwrap_or_default(),
            virtual_size: facts.and_then(|facts| facts.virtual_size),
            resume: job
                .resumable
                .is_some()
                .then(|| format!("{}/{}", crate::routes::RESUMABLE, job.id)),
        }
    }
}

/// With two decimals; an empty upload is complete.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 100.0;
    }
    (part as f64 / whole as f64 * 10_000.0).floor() / 100.0
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is not negative, and `as` saturates"
)]
fn per_second(bytes: u64, seconds: f64) -> u64 {
    (bytes as f64 / seconds.max(0.001)) as u64
}

/// The state as JSON.
pub(crate) fn json(server: &Server) -> Reply {
    let status = Status::of(&server.slot.state());
    let text = serde_json::to_string(&status).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
    let mut reply = reply::typed(StatusCode::OK, "application/json", text + "\n");
    let no_store = HeaderValue::from_static("no-store");
    reply.headers_mut().insert(header::CACHE_CONTROL, no_store);
    reply
}

/// The metrics.
pub(crate) fn metrics(server: &Server) -> Reply {
    let figures = &server.figures;
    let status = Status::of(&server.slot.state());
    figures.percent.set(status.percent.unwrap_or(0.0));
    figures.speed.set(status.bytes_per_second as f64);
    figures.held.set(memory::in_use() as f64);
    for (stage, gauge) in &figures.stages {
        gauge.set(if *stage == status.state { 1.0 } else { 0.0 });
    }
    if let Some(job) = server.slot.job() {
        figures.catch_up(&job);
    }
    let text = figures.registry.encode();
    reply::typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stay_in_their_bounds() {
        assert!((percent(1, 3) - 33.33).abs() < 1e-9);
        assert!((percent(3, 3) - 100.0).abs() < 1e-9);
        assert!((percent(0, 0) - 100.0).abs() < 1e-9);
        assert_eq!(per_second(10, 2.0), 5);
        assert_eq!(per_second(u64::MAX, 0.0), u64::MAX);
    }

    #[test]
    fn states_have_series() {
        let figures = Figures::default();
        let text = figures.registry.encode();
        let idle = Status::of(&State::Idle).state;
        let series = format!("cdi_uploadserver_stage{{stage=\"{idle}\"}}");
        assert!(text.contains(&series), "{text}");
    }
}
