//! Connects the library that finds credentials with the services that issue them, through our HTTP
//! client, our trust anchors and our proxies.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use stream::error::{SourceError, SourceErrorKind};
use url::Url;

use fetch::Network;
use fetch::http::{HttpAgent, USER_AGENT};
use fetch::messages::plain_line;
use fetch::proxy::ProxyConfig;

/// Maximum size of a credentials document in bytes; real ones are a few kilobytes.
const MAX_DOCUMENT_BYTES: usize = 256 << 10;

/// Longest wait for the credentials of a machine. Where no such service exists, its address may
/// never respond.
pub(crate) const MACHINE_LIMIT: Duration = Duration::from_secs(3);

/// An HTTP connector that lets the library send its requests through an [`HttpAgent`].
#[derive(Debug, Clone)]
pub(crate) struct AgentConnector(HttpAgent);

impl AgentConnector {
    pub(crate) fn new(network: &Arc<Network>) -> Result<Self, SourceError> {
        HttpAgent::new(network, USER_AGENT).map(Self)
    }
}

impl HttpConnector for AgentConnector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for AgentConnector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let url = Url::parse(&head.uri.to_string())
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let body = body.as_bytes().cloned().unwrap_or_default();
        let request = self.0.build_request(head.method, url).headers(head.headers).body(body);
        let answer = self
            .0
            .send(request, MAX_DOCUMENT_BYTES)
            .await
            .map_err(|error| HttpError::new(kind_of(&error), error))?;
        let mut response = HttpResponse::new(HttpResponseBody::from(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

fn kind_of(error: &SourceError) -> HttpErrorKind {
    match error.kind() {
        SourceErrorKind::Connect => HttpErrorKind::Connect,
        SourceErrorKind::Io => HttpErrorKind::Request,
        SourceErrorKind::Stalled => HttpErrorKind::Timeout,
        _ => HttpErrorKind::Unknown,
    }
}

/// Allows two retries within a few seconds, because an import makes no progress while it waits for
/// credentials.
pub(crate) fn retry_config() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 2,
        retry_timeout: Duration::from_secs(30),
    }
}

/// Returns `network` without proxies. It is for services of the machine itself, whose addresses no
/// proxy can reach.
pub(crate) fn take_no_proxy(network: &Network) -> Arc<Network> {
    network.clone_with(|network| network.proxy = ProxyConfig::default())
}

/// Creates the error for missing credentials. A retry may help if no service answered.
pub(crate) fn credential_failure(error: object_store::Error) -> SourceError {
    let kind = if is_silence(&error) { SourceErrorKind::Io } else { SourceErrorKind::Invalid };
    let sentence = format!("no credentials: {}", plain_line(&error.to_string()));
    SourceError::new(kind, sentence).with_cause(error)
}

fn is_silence(error: &(dyn Error + 'static)) -> bool {
    error.is::<HttpError>() || error.source().is_some_and(is_silence)
}
