//! One request with a valid token, from its admission until both of its bodies have ended. It
//! collects the data about the request for the log and the metrics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use http::{Method, StatusCode};
use https::listener::{ActiveGuard, Peer};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::figures::ProxyMetrics;
use crate::limits::{ClaimRequestGuard, UploadPermit};
use crate::outcome::RequestOutcome;
use crate::token::UploadGrant;

/// A request in progress. Its log line is written when it is dropped.
#[derive(Debug)]
pub(crate) struct UploadExchange {
    grant: UploadGrant,
    peer: SocketAddr,
    /// Protects the client's connection from eviction.
    pub(crate) engagement: ActiveGuard,
    method: Method,
    path: String,
    began: Instant,
    bytes: AtomicU64,
    /// Status of the response; 0 until there is a response.
    status: AtomicU16,
    outcome: Mutex<Option<RequestOutcome>>,
    figures: ProxyMetrics,
    /// The permit of an upload. It is `None` for requests that only ask about an upload, which
    /// need no permit.
    pub(crate) permit: Option<UploadPermit>,
    _entry: ClaimRequestGuard,
}

impl UploadExchange {
    /// Begins an exchange at the current time.
    pub(crate) fn begin_exchange(
        grant: UploadGrant,
        peer: &Peer,
        (method, path): (Method, String),
        figures: ProxyMetrics,
        (permit, entry): (Option<UploadPermit>, ClaimRequestGuard),
    ) -> Arc<Self> {
        figures.active.add(1.0);
        Arc::new(Self {
            grant,
            peer: peer.address,
            engagement: peer.hold_active(),
            method,
            path,
            began: Instant::now(),
            bytes: AtomicU64::new(0),
            status: AtomicU16::new(0),
            outcome: Mutex::default(),
            figures,
            permit,
            _entry: entry,
        })
    }

    /// Returns the grant that admitted the request.
    pub(crate) fn grant(&self) -> &UploadGrant {
        &self.grant
    }

    /// Records that bytes of the client's body have been forwarded; the next ones may be forwarded
    /// at `next`.
    pub(crate) fn add_bytes(&self, bytes: usize, next: Instant) {
        let bytes = bytes.try_into().unwrap_or(u64::MAX);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.figures.bytes.add(bytes);
        if let Some(permit) = &self.permit {
            permit.progress.advance_to(next);
        }
    }

    /// Records that all of the client's body has been forwarded.
    pub(crate) fn note_sent(&self) {
        if let Some(permit) = &self.permit {
            permit.progress.set_complete();
        }
    }

    /// Returns the token that is cancelled when this upload has to make room for another one.
    pub(crate) fn give_up(&self) -> CancellationToken {
        let progress = self.permit.as_ref().map(|permit| &permit.progress);
        progress.map_or_else(CancellationToken::new, |progress| progress.give_up.clone())
    }

    /// Records the status and the outcome of the response. An outcome that is already known, for
    /// example that the client is gone, is not replaced.
    pub(crate) fn note_answer(&self, status: StatusCode, outcome: RequestOutcome) {
        if self.set_outcome(outcome) {
            self.status.store(status.as_u16(), Ordering::Relaxed);
        }
    }

    /// Records that the upload server's response is passed on to the client.
    pub(crate) fn passed_on(&self, status: StatusCode) {
        self.note_answer(status, RequestOutcome::from_status(status));
    }

    /// Records the outcome, unless one is already known. Returns true if it was recorded.
    fn set_outcome(&self, outcome: RequestOutcome) -> bool {
        let mut known = self.outcome.lock();
        let is_first = known.is_none();
        known.get_or_insert(outcome);
        is_first
    }

    /// Records that the client has disconnected, so that it cannot receive a response.
    pub(crate) fn note_abandoned(&self) {
        self.set_outcome(RequestOutcome::ClientGone);
    }
}

impl Drop for UploadExchange {
    fn drop(&mut self) {
        self.figures.active.add(-1.0);
        let known = *self.outcome.lock();
        // An exchange ends without a response only if the client is gone.
        let outcome = known.unwrap_or(RequestOutcome::ClientGone);
        self.figures.count_outcome(outcome);
        let time = self.began.elapsed();
        self.figures.record_request(time, self.bytes.load(Ordering::Relaxed));
        let line = format!(
            "pvc={} namespace={} peer={} method={} path={} status={} bytes={} seconds={:.3} outcome={outcome}",
            self.grant.pvc,
            self.grant.namespace,
            self.peer,
            self.method,
            self.path,
            self.status.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
            time.as_secs_f64(),
        );
        // The line contains all names itself. Because it has no parent span, it is the same
        // whether it is written inside or outside the span of the upload.
        if self.permit.is_some() {
            tracing::info!(parent: None, "upload {line}");
        } else {
            tracing::debug!(parent: None, "question {line}");
        }
    }
}
