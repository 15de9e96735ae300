//! The status of the server, as JSON for people and as metrics for Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use program::progress::bytes_per_second;
use serde::Serialize;

use crate::job::UploadJob;
use crate::reply::{self, Reply};
use crate::server::UploadServer;
use crate::slot::ServerState;

/// The status of the server and of the upload in progress.
#[derive(Debug, Default, Serialize)]
struct ServerStatus {
    state: &'static str,
    /// Bytes received over the network.
    received_bytes: u64,
    /// Length of the upload in bytes, if the client stated it.
    total_bytes: Option<u64>,
    percent: Option<f64>,
    /// Bytes written to the target.
    written_bytes: u64,
    /// The phase of the transfer. The field keeps its older name, because clients read it by that
    /// name.
    stage: &'static str,
    /// Average speed since the upload began.
    bytes_per_second: u64,
    /// Time since the upload began.
    seconds: f64,
    /// Time that each part has limited the upload, in seconds; empty without an upload.
    limited_seconds: BTreeMap<&'static str, f64>,
    /// The format of the image, once it is recognized.
    format: Option<String>,
    /// The compression layers around the image.
    layers: Vec<&'static str>,
    /// Size of the disk in bytes, once it is known.
    virtual_size: Option<u64>,
    /// The path for resuming the upload, if it is resumable.
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<String>,
}

impl ServerStatus {
    fn from_state(state: &ServerState) -> Self {
        match state {
            ServerState::Busy(job) => Self::from_job(job),
            ServerState::Idle => Self::at_rest("idle"),
            ServerState::Done(_) => Self::at_rest("done"),
            ServerState::Broken(_) => Self::at_rest("failed"),
        }
    }

    fn at_rest(state: &'static str) -> Self {
        Self { state, stage: "none", ..Self::default() }
    }

    fn from_job(job: &Arc<UploadJob>) -> Self {
        let state = if job.is_verified() {
            "processing"
        } else if job.resumable.waiting_since().is_some() {
            "waiting"
        } else {
            "uploading"
        };
        let progress = &job.progress;
        let time = progress.began.elapsed();
        let received = progress.received_bytes();
        let facts = progress.image_facts();
        Self {
            state,
            received_bytes: received,
            total_bytes: progress.total_bytes(),
            percent: progress.total_bytes().map(|total| percent_of(received, total)),
            written_bytes: progress.written_bytes(),
            stage: progress.counted.current_phase().name(),
            bytes_per_second: bytes_per_second(received, time),
            seconds: time.as_secs_f64(),
            limited_seconds: progress.counted.times().limited_seconds(),
            format: facts.map(|facts| facts.format.to_string()),
            layers: facts.map(|facts| facts.layers.clone()).unwrap_or_default(),
            virtual_size: facts.and_then(|facts| facts.virtual_size),
            resume: job
                .plan
                .is_resumable()
                .then(|| format!("{}/{}", program::cdi::RESUMABLE, job.id)),
        }
    }
}

/// Returns `part` as a percentage of `whole`, with two decimals. An empty upload is complete.
fn percent_of(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 100.0;
    }
    (part as f64 / whole as f64 * 10_000.0).floor() / 100.0
}

/// Returns the status as JSON.
pub(crate) fn status_reply(server: &UploadServer) -> Reply {
    let status = ServerStatus::from_state(&server.slot.state());
    let text =
        serde_json::to_string(&status).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
    let mut reply = reply::typed_reply(StatusCode::OK, "application/json", text + "\n");
    let no_store = HeaderValue::from_static("no-store");
    reply.headers_mut().insert(header::CACHE_CONTROL, no_store);
    reply
}

/// Returns the metrics page.
pub(crate) fn metrics_reply(server: &UploadServer) -> Reply {
    if let Some(job) = server.slot.current_job() {
        job.progress.count_received();
    }
    let status = ServerStatus::from_state(&server.slot.state());
    let text = server.figures.encode_metrics(status.state, status.percent, status.bytes_per_second);
    reply::typed_reply(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_and_rates_stay_within_bounds() {
        assert!((percent_of(1, 3) - 33.33).abs() < 1e-9);
        assert!((percent_of(3, 3) - 100.0).abs() < 1e-9);
        assert!((percent_of(0, 0) - 100.0).abs() < 1e-9);
    }
}
