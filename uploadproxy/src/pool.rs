//! The pool of idle connections to upload servers.
//!
//! A connection is kept for a short time after a successful exchange, for the next request to the
//! same upload server: virtctl sends a query before the upload, and a resumable upload consists of
//! several requests. It is not kept for long, because another pod may soon be behind the same
//! Service. After the certificates have changed, it is not used again.

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

/// Time for which an idle connection is kept.
const IDLE: Duration = Duration::from_secs(5);

/// Maximum number of idle connections to one upload server.
const MOST_IDLE: usize = 2;

/// A connection to an upload server. Dropping it closes the connection.
pub(crate) struct UpstreamConnection {
    pub(crate) sender: SendRequest<RequestBody>,
    task: AbortHandle,
    /// The TLS configuration with which the connection was established.
    tls: Arc<ClientConfig>,
    /// The thread that drives the connection.
    thread: ThreadId,
}

/// The idle connections to all upload servers.
#[derive(Default)]
pub(crate) struct ConnectionPool(Mutex<HashMap<UpstreamAddress, Vec<IdleConnection>>>);

struct IdleConnection {
    connection: UpstreamConnection,
    since: Instant,
}

/// A connection that a request in progress is using.
pub(crate) struct ConnectionLease {
    connection: UpstreamConnection,
    place: UpstreamAddress,
    pool: Arc<ConnectionPool>,
}

impl UpstreamConnection {
    pub(crate) fn new(
        sender: SendRequest<RequestBody>,
        task: AbortHandle,
        tls: Arc<ClientConfig>,
    ) -> Self {
        Self { sender, task, tls, thread: thread::current().id() }
    }
}

impl Drop for UpstreamConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ConnectionPool {
    /// Takes an idle connection to `place` that was established with `tls` and can still be used.
    /// A connection that the current thread drives is preferred: an upload that is spread over two
    /// threads costs 1.5 times the CPU time.
    pub(crate) fn take_idle(
        &self,
        place: &UpstreamAddress,
        tls: &Arc<ClientConfig>,
    ) -> Option<UpstreamConnection> {
        let mut idle = self.0.lock();
        let waiting = idle.get_mut(place)?;
        waiting.retain(|IdleConnection { connection, since }| {
            since.elapsed() < IDLE
                && connection.sender.is_ready()
                && Arc::ptr_eq(&connection.tls, tls)
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

    /// Closes connections that were idle for too long.
    fn sweep_idle(&self) {
        self.0.lock().retain(|_, waiting| {
            waiting
                .retain(|idle| idle.since.elapsed() < IDLE && !idle.connection.sender.is_closed());
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

    /// Returns the connection to the pool after the end of the response. If the request's body has
    /// not ended, a task first waits for its end, for at most [`LINGER`].
    pub(crate) fn give_back(self) {
        tokio::spawn(async move {
            let Self { mut connection, place, pool } = self;
            if let Ok(Ok(())) = timeout(LINGER, connection.sender.ready()).await {
                pool.put_idle(place, connection);
                tokio::time::sleep(IDLE).await;
                // The pool has no task of its own, so connections that are too old are closed
                // whenever a connection is returned.
                pool.sweep_idle();
            }
        });
    }
}
