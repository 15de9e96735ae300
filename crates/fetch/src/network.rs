//! Settings for reaching servers and for authentication. Every source is opened with one
//! [`Network`] value and keeps it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use rustls::ClientConfig;
use stream::error::SourceError;
use stream::observe::{NoObserver, Observer};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::credentials::BasicCredentials;
use crate::error::stopped_error;
use crate::policy::ImportPolicy;
use crate::proxy::ProxyConfig;
use crate::retry::{FirstContact, RetryAttempts, RetryPolicy};

/// Default limit of the bytes buffered between the network and the data path.
const BRIDGE_BYTES: usize = 4 << 20;

/// Settings for reaching servers: credentials, TLS, proxies, rules and limits.
#[derive(Debug, Clone)]
pub struct Network {
    /// The runtime that the network tasks run on.
    pub handle: Handle,
    /// Cancels every wait, also those that begin later.
    pub stop: CancellationToken,
    /// User and password, or access key and secret key.
    pub credentials: Option<BasicCredentials>,
    /// Trust anchors, and whether certificates are verified.
    pub tls: Arc<ClientConfig>,
    /// True if certificates are not verified. Some sources then also accept connections without
    /// TLS.
    pub insecure: bool,
    /// Rules for choosing a proxy.
    pub proxy: ProxyConfig,
    /// Rules for which secrets may be sent to which server.
    pub policy: ImportPolicy,
    /// Number of parallel connections for one body, if the server allows several. With `None`, a
    /// body over HTTP begins with one, and others are added while they make it faster.
    pub connections: Option<NonZeroUsize>,
    /// Limits for retries and timeouts.
    pub retry_policy: RetryPolicy,
    /// Limit of the bytes buffered between the network and the data path.
    pub bridge_bytes: usize,
    /// True if the import specifies a digest of the whole object, which is then verified.
    pub is_checked: bool,
    /// Notified of failed attempts that are retried, beginning with the first request.
    pub observer: Arc<dyn Observer>,
    /// Tracing span that names the source in log lines.
    pub span: Span,
}

impl Network {
    /// Creates the strictest settings, without credentials and proxies. Tasks run on `handle`
    /// until `stop` is cancelled.
    pub fn new(handle: Handle, stop: CancellationToken, tls: Arc<ClientConfig>) -> Self {
        Self {
            handle,
            stop,
            credentials: None,
            tls,
            insecure: false,
            proxy: ProxyConfig::default(),
            policy: ImportPolicy::default(),
            connections: None,
            retry_policy: RetryPolicy::default(),
            bridge_bytes: BRIDGE_BYTES,
            is_checked: false,
            observer: NoObserver::new_shared(),
            span: Span::none(),
        }
    }

    /// Returns a copy of these settings after applying `change` to it.
    pub fn clone_with(&self, change: impl FnOnce(&mut Self)) -> Arc<Self> {
        let mut changed = self.clone();
        change(&mut changed);
        Arc::new(changed)
    }

    /// Starts counting the attempts to read one more byte.
    pub fn retry_attempts(&self) -> RetryAttempts<'_> {
        RetryAttempts::new(&self.retry_policy, &*self.observer)
    }

    /// Starts counting the attempts of a first contact with a server.
    pub fn first_contact(&self) -> FirstContact<'_> {
        FirstContact::new(&self.retry_policy, &*self.observer, &self.stop)
    }

    /// Waits for `work`. Fails if the import is stopped first.
    pub async fn unless_stopped<T>(
        &self,
        work: impl Future<Output = Result<T, SourceError>>,
    ) -> Result<T, SourceError> {
        self.stop
            .run_until_cancelled(work.instrument(self.span.clone()))
            .await
            .unwrap_or_else(|| Err(stopped_error()))
    }

    /// Waits for `work` like [`Network::unless_stopped`], but blocks the current thread, which
    /// must not be a thread of the runtime.
    pub fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, SourceError>>,
    ) -> Result<T, SourceError> {
        self.handle.block_on(self.unless_stopped(work))
    }
}
