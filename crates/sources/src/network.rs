//! The way to servers, and the identity that asks: one value, which every source is opened with and keeps.

use std::num::NonZeroUsize;
use std::sync::Arc;

use datapath::error::{SourceError, SourceErrorKind};
use datapath::observe::{NoObserver, Observer};
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::credentials::BasicCredentials;
use crate::policy::ImportPolicy;
use crate::proxy::ProxyConfig;
use crate::retry::{AttemptError, RetryAttempts, RetryPolicy};

/// Bytes between the network and the data path, unless told otherwise.
const BRIDGE_BYTES: usize = 4 << 20;

/// The way to servers: identity, trust, route, patience.
#[derive(Debug, Clone)]
pub struct Network {
    /// The runtime that moves the bytes.
    pub handle: Handle,
    /// Ends every wait, now and later.
    pub stop: CancellationToken,
    /// User and password, or access key and secret key.
    pub credentials: Option<BasicCredentials>,
    /// Trust anchors and verification.
    pub tls: Arc<ClientConfig>,
    /// True if certificates are not verified; some sources then do without TLS as well.
    pub insecure: bool,
    /// Rules for the choice of a proxy.
    pub proxy: ProxyConfig,
    /// Rules for what may be told to which server.
    pub policy: ImportPolicy,
    /// Connections that a body is read over at once, where that works; `None` leaves it to the kind of source.
    pub connections: Option<NonZeroUsize>,
    /// Limits of trying again and of waiting.
    pub patience: RetryPolicy,
    /// Bytes in flight between the network and the data path.
    pub bridge_bytes: usize,
    /// A digest of the whole object was given with the import, and is verified.
    pub is_checked: bool,
    /// Hears of attempts that failed and are made again, from the first request on.
    pub observer: Arc<dyn Observer>,
    /// The source that is asked, for the lines of the log.
    pub span: Span,
}

impl Network {
    /// The strictest network, without secrets and proxies; the tasks run on `handle`, until `stop`.
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
            patience: RetryPolicy::default(),
            bridge_bytes: BRIDGE_BYTES,
            is_checked: false,
            observer: NoObserver::new_shared(),
            span: Span::none(),
        }
    }

    /// A copy of this network, changed by `change`.
    pub(crate) fn clone_with(&self, change: impl FnOnce(&mut Self)) -> Arc<Self> {
        let mut changed = self.clone();
        change(&mut changed);
        Arc::new(changed)
    }

    /// The attempts to get one more byte.
    pub(crate) fn retry_attempts(&self) -> RetryAttempts<'_> {
        RetryAttempts::new(&self.patience, &*self.observer)
    }

    /// The result of `attempt`, tried again after what looks like a server that is just not there yet; `passes` tells by the error.
    pub(crate) async fn retry_first_request<T>(
        &self,
        passes: impl Fn(&SourceError) -> bool,
        attempt: impl AsyncFnMut() -> Result<T, AttemptError>,
    ) -> Result<T, SourceError> {
        self.patience.retry_first_request(&*self.observer, passes, attempt).await
    }

    /// Waits for `work`, unless stopped before.
    pub(crate) async fn unless_stopped<T>(
        &self,
        work: impl Future<Output = Result<T, SourceError>>,
    ) -> Result<T, SourceError> {
        self.stop
            .run_until_cancelled(work.instrument(self.span.clone()))
            .await
            .unwrap_or_else(|| Err(stopped_error()))
    }

    /// Waits for `work` like [`Network::unless_stopped`], on this thread, which must not be one of the runtime.
    pub(crate) fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, SourceError>>,
    ) -> Result<T, SourceError> {
        self.handle.block_on(self.unless_stopped(work))
    }
}

/// The error of every wait that the stop token ended.
pub(crate) fn stopped_error() -> SourceError {
    SourceError::new(SourceErrorKind::Stopped, "stopped while reading the source")
}
