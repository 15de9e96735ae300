//! A client for small documents over HTTP: tokens, manifests, the XML of an engine.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use datapath::error::{SourceError, SourceErrorKind};
use http::{HeaderMap, Method, StatusCode};
use reqwest::RequestBuilder;
use rustls::ClientConfig;
use url::Url;

use super::cause::{RequestRoute, plain_cause, transport_failure};
use super::status::{passes_soon, retry_after_now};
use crate::address::url_origin;
use crate::error::invalid_error;
use crate::messages::status_text;
use crate::network::Network;
use crate::retry::{AttemptError, RetryPolicy, WaitReport, short_cause};

/// Timeout for one connection attempt, TLS handshake included.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Timeout for a whole document.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Requests documents. Clones share their connections.
#[derive(Debug, Clone)]
pub struct HttpAgent {
    http: reqwest::Client,
    network: Arc<Network>,
}

/// A complete response, whatever its status.
#[derive(Debug, Clone)]
pub struct AgentResponse {
    /// The URL that was requested.
    pub url: Url,
    /// The status of the response.
    pub status: StatusCode,
    /// The headers of the response.
    pub headers: HeaderMap,
    /// The complete body.
    pub body: Bytes,
}

impl HttpAgent {
    /// Creates an agent that sends `user_agent` as its `User-Agent`.
    pub fn new(network: &Arc<Network>, user_agent: &str) -> Result<Self, SourceError> {
        Ok(Self { http: build_client(network, user_agent)?, network: Arc::clone(network) })
    }

    /// Starts a request, which the caller completes and sends.
    pub fn build_request(&self, method: Method, url: Url) -> RequestBuilder {
        self.http.request(method, url)
    }

    /// Sends one request and reads the response, whose body may have at most `limit` bytes.
    /// Redirects are returned, not followed.
    pub async fn send(
        &self,
        request: RequestBuilder,
        limit: usize,
    ) -> Result<AgentResponse, SourceError> {
        let (http, request) = request.build_split();
        let request = request.map_err(|error| {
            invalid_error(format!("cannot build a request: {}", plain_cause(error)))
        })?;
        self.network.policy.check_url(request.url())?;
        let origin = url_origin(request.url());
        let (method, shown) = (request.method().clone(), origin.clone());
        let route = RequestRoute::new(request.url(), origin, &self.network.proxy);
        let received =
            tokio::time::timeout(ANSWER_LIMIT, receive_response(&http, request, limit, &route))
                .await;
        let answer = received.map_or_else(
            |_| Err(route.incomplete_error(ANSWER_LIMIT)),
            |received| received.map_err(AttemptError::into_error),
        )?;
        // The path is not logged, because it may contain a name or a token.
        tracing::debug!(
            status = status_text(answer.status),
            bytes = answer.body.len(),
            "{method} {shown}"
        );
        Ok(answer)
    }

    /// Like [`HttpAgent::send`], but retries while no server answers or the server asks to wait.
    pub async fn send_patiently(
        &self,
        make: impl Fn() -> RequestBuilder,
        limit: usize,
    ) -> Result<AgentResponse, SourceError> {
        // The limits of a download apply to these requests only if they apply to the first request
        // too.
        let own = &self.network.patience;
        let policy =
            if own.first_attempts.is_none() { own.clone() } else { RetryPolicy::default() };
        let mut contact = policy.first_contact();
        let mut waiting = WaitReport::new(&*self.network.observer);
        loop {
            let result = self.send(make(), limit).await;
            let (kind, cause, asked) = match &result {
                Ok(answer) if is_passing(answer.status) => (
                    SourceErrorKind::Status(answer.status.as_u16()),
                    format!("HTTP {}", status_text(answer.status)),
                    retry_after_now(&answer.headers).unwrap_or_default(),
                ),
                Err(error) if passes_soon(error) => {
                    (error.kind(), short_cause(error), Duration::ZERO)
                }
                _ => return result,
            };
            let Some(pause) = contact.next_pause(asked) else {
                return result;
            };
            self.network.observer.record_retry(kind);
            waiting.begin(&cause, contact.failures, pause);
            tokio::time::sleep(pause).await;
        }
    }
}

fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

async fn receive_response(
    http: &reqwest::Client,
    request: reqwest::Request,
    limit: usize,
    route: &RequestRoute,
) -> Result<AgentResponse, AttemptError> {
    let failed = |error| transport_failure(error, route);
    let mut response = http.execute(request).await.map_err(failed)?;
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        // The limit is checked while the body arrives: a chunked response announces no length, and
        // an announced length may be wrong.
        if body.len() + chunk.len() > limit {
            let message =
                format!("the answer is larger than the {limit} bytes allowed for a document");
            return Err(AttemptError::new_final(SourceErrorKind::Length, message));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(AgentResponse {
        url: response.url().clone(),
        status: response.status(),
        headers: std::mem::take(response.headers_mut()),
        body: body.freeze(),
    })
}

/// Builds the HTTP client for documents and downloads: HTTP/1.1, our trust anchors, our proxy
/// rules, and no automatic redirects.
pub(super) fn build_client(
    network: &Network,
    user_agent: &str,
) -> Result<reqwest::Client, SourceError> {
    let mut tls = ClientConfig::clone(&network.tls);
    let proxy = network.proxy.clone();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    reqwest::Client::builder()
        .dns_resolver(network.policy.dns_resolver())
        // HTTP/1.1 only: on a shared HTTP/2 connection, an unread body would block the requests
        // for tables.
        .http1_only()
        .tls_backend_preconfigured(tls)
        // Proxies see this value in CONNECT, too. An extra header of the same name overrides it.
        .user_agent(user_agent)
        // Redirects are followed by our own code, which checks each target: TLS, secrets,
        // addresses.
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_LIMIT)
        // The client's own rules for proxy variables are turned off, because Go's rules apply
        // (contract §1.2).
        .no_proxy()
        .proxy(reqwest::Proxy::custom(move |url| proxy.proxy_for(url).cloned()))
        .build()
        .map_err(|error| {
            invalid_error(format!("Error creating http client: {}", plain_cause(error)))
        })
}
