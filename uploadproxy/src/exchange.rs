//! One request with a valid token, from its admission until both of its bodies have ended: what the log and the
//! metrics say about it.

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

/// A request in progress. Writes its line when it is dropped.
#[derive(Debug)]
pub(crate) struct UploadExchange {
    grant: UploadGrant,
    peer: SocketAddr,
    /// Its connection is not closed for another one.
    pub(crate) engagement: ActiveGuard,
    method: Method,
    path: String,
    began: Instant,
    bytes: AtomicU64,
    /// 0 until there is one.
    status: AtomicU16,
    outcome: Mutex<Option<RequestOutcome>>,
    figures: ProxyMetrics,
    /// Uploads count, questions about them do not.
    pub(crate) permit: Option<UploadPermit>,
    _entry: ClaimRequestGuard,
}

impl UploadExchange {
    /// Begins now.
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

    /// The grant that admitted it.
    pub(crate) fn grant(&self) -> &UploadGrant {
        &self.grant
    }

    /// Bytes of the client's body have passed; the next ones may pass at `next`.
    pub(crate) fn add_bytes(&self, bytes: usize, next: Instant) {
        let bytes = bytes.try_into().unwrap_or(u64::MAX);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.figures.bytes.add(bytes);
        if let Some(permit) = &self.permit {
            permit.progress.advance_to(next);
        }
    }

    /// All of the client's body has passed.
    pub(crate) fn note_sent(&self) {
        if let Some(permit) = &self.permit {
            permit.progress.set_complete();
        }
    }

    /// Cancelled when this has to make room for another upload.
    pub(crate) fn give_up(&self) -> CancellationToken {
        let progress = self.permit.as_ref().map(|permit| &permit.progress);
        progress.map_or_else(CancellationToken::new, |progress| progress.give_up.clone())
    }

    /// The client is answered with `status`, if it is still there.
    pub(crate) fn note_answer(&self, status: StatusCode, outcome: RequestOutcome) {
        if self.set_outcome(outcome) {
            self.status.store(status.as_u16(), Ordering::Relaxed);
        }
    }

    /// The client is answered with what the upload server said.
    pub(crate) fn passed_on(&self, status: StatusCode) {
        self.note_answer(status, RequestOutcome::from_status(status));
    }

    /// Notes the outcome of the exchange, of which the first counts; false if there was one before.
    fn set_outcome(&self, outcome: RequestOutcome) -> bool {
        let mut known = self.outcome.lock();
        let is_first = known.is_none();
        known.get_or_insert(outcome);
        is_first
    }

    /// The client has broken off: an answer would not be seen.
    pub(crate) fn note_abandoned(&self) {
        self.set_outcome(RequestOutcome::ClientGone);
    }
}

impl Drop for UploadExchange {
    fn drop(&mut self) {
        self.figures.active.add(-1.0);
        let known = *self.outcome.lock();
        // Without an answer there was no client to get one.
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
        // The line has its names in it, and is the same inside the span of an upload and behind it.
        if self.permit.is_some() {
            tracing::info!(parent: None, "upload {line}");
        } else {
            tracing::debug!(parent: None, "question {line}");
        }
    }
}
