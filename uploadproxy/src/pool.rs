//! Connections to upload servers, and which of them can be used once more.
//!
//! A connection is kept for a moment after an exchange that ended well, for the next request to the same upload server:
//! virtctl asks before it sends, and a resumable upload is several requests. It is never kept for long, because the pod
//! behind a service may be another one soon, and never when the certificates have changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use https::reply::LINGER;
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use crate::request_body::RequestBody;
use crate::volumes::UpstreamAddress;

/// Time for which a connection without a request is kept.
const IDLE: Duration = Duration::from_secs(5);

/// Connections that are kept for one upload server.
const MOST_IDLE: usize = 2;

/// A connection, which is closed when this is dropped.
pub(crate) struct UpstreamConnection {
    pub(crate) sender: SendRequest<RequestBody>,
    task: AbortHandle,
    /// The configuration that the connection was made with.
    tls: Arc<ClientConfig>,
    /// The thread that carries it.
    thread: ThreadId,
}

/// Connections without a request.
#[derive(Default)]
pub(crate) struct ConnectionPool(Mutex<HashMap<UpstreamAddress, Vec<IdleConnection>>>);

struct IdleConnection {
    connection: UpstreamConnection,
    since: Instant,
}

/// A connection with a request in progress.
pub(crate) struct ConnectionLease {
    connection: UpstreamConnection,
    place: UpstreamAddress,
    pool: Arc<ConnectionPool>,
}

impl UpstreamConnection {
    pub(crate) fn new(sender: SendRequest<RequestBody>, task: AbortHandle, tls: Arc<ClientConfig>) -> Self {
        Self { sender, task, tls, thread: thread::current().id() }
    }
}

impl Drop for UpstreamConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ConnectionPool {
    /// A connection to `place` that was made with `tls` and is still good, of this thread if there is one: an upload that two threads
    /// carry costs half as much again.
    pub(crate) fn take_idle(
        &self,
        place: &UpstreamAddress,
        tls: &Arc<ClientConfig>,
    ) -> Option<UpstreamConnection> {
        let mut idle = self.0.lock();
        let waiting = idle.get_mut(place)?;
        waiting.retain(|IdleConnection { connection, since }| {
            since.elapsed() < IDLE && connection.sender.is_ready() && Arc::ptr_eq(&connection.tls, tls)
        });
        let here = thread::current().id();
        waiting.sort_by_key(|idle| idle.connection.thread == here);
        let found = waiting.pop().map(|idle| idle.connection);
        if waiting.is_empty() {
            idle.remove(place);
        }
        found
    }

    fn put_idle(&self, place: UpstreamAddress, connection: UpstreamConnection) {
        let mut idle = self.0.lock();
        let waiting = idle.entry(place).or_default();
        if waiting.len() < MOST_IDLE {
            waiting.push(IdleConnection { connection, since: Instant::now() });
        }
    }

    /// Closes what was not used in time.
    fn sweep_idle(&self) {
        self.0.lock().retain(|_, waiting| {
            waiting.retain(|idle| idle.since.elapsed() < IDLE && !idle.connection.sender.is_closed());
            !waiting.is_empty()
        });
    }
}

impl ConnectionLease {
    pub(crate) fn new(
        connection: UpstreamConnection,
        place: UpstreamAddress,
        pool: Arc<ConnectionPool>,
    ) -> Self {
        Self { connection, place, pool }
    }

    /// The answer has ended. The request's body may not have; when it has, the connection waits for another request.
    pub(crate) fn give_back(self) {
        tokio::spawn(async move {
            let Self { mut connection, place, pool } = self;
            if let Ok(Ok(())) = timeout(LINGER, connection.sender.ready()).await {
                pool.put_idle(place, connection);
                tokio::time::sleep(IDLE).await;
                pool.sweep_idle();
            }
        });
    }
}
