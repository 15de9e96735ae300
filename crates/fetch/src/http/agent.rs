//! A client for small documents over HTTP: tokens, manifests, the XML of an engine.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use reqwest::RequestBuilder;
use rustls::ClientConfig;
use stream::error::{SourceError, SourceErrorKind};
use url::Url;

use super::cause::{CONNECT_LIMIT, RequestRoute, plain_cause, transport_failure};
use crate::address::url_origin;
use crate::error::invalid_error;
use crate::messages::status_text;
use crate::network::Network;
use crate::retry::{AttemptError, FirstContact};

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
        self.attempt(request, limit).await.map_err(AttemptError::into_error)
    }

    /// Like [`HttpAgent::send`], but the error says whether another attempt may succeed.
    pub async fn attempt(
        &self,
        request: RequestBuilder,
        limit: usize,
    ) -> Result<AgentResponse, AttemptError> {
        let (http, request) = request.build_split();
        let request = request.map_err(|error| {
            let message = format!("cannot build a request: {}", plain_cause(error));
            AttemptError::Final(invalid_error(message))
        })?;
        self.network.policy.check_url(request.url()).map_err(AttemptError::Final)?;
        let origin = url_origin(request.url());
        let (method, shown) = (request.method().clone(), origin.clone());
        let route = RequestRoute::new(request.url(), origin, &self.network.proxy);
        let received =
            tokio::time::timeout(ANSWER_LIMIT, receive_response(&http, request, limit, &route))
                .await;
        let answer = received
            .unwrap_or_else(|_| Err(AttemptError::Final(route.incomplete_error(ANSWER_LIMIT))))?;
        // The path is not logged, because it may contain a name or a token.
        tracing::debug!(
            status = status_text(answer.status),
            bytes = answer.body.len(),
            "{method} {shown}"
        );
        Ok(answer)
    }

    /// Like [`HttpAgent::send`], but retries as at a first contact: while no server answers, or it
    /// asks to wait. The response at the end may still ask for that.
    pub async fn send_patiently(
        &self,
        make: impl Fn() -> RequestBuilder,
        limit: usize,
    ) -> Result<AgentResponse, SourceError> {
        let mut contact = self.network.first_contact();
        loop {
            let sent = self.attempt(make(), limit).await;
            if let Some(answer) = accept_answer(sent, &mut contact).await? {
                return Ok(answer);
            }
        }
    }
}

/// Returns the response of an attempt, or pauses and returns `None` if the request should be sent
/// again.
pub async fn accept_answer(
    sent: Result<AgentResponse, AttemptError>,
    contact: &mut FirstContact<'_>,
) -> Result<Option<AgentResponse>, SourceError> {
    let (answer, failure) = match sent {
        Ok(answer) if is_passing(answer.status) => {
            let failure = AttemptError::from_status(200, answer.status, &answer.headers);
            (Some(answer), failure)
        }
        Ok(answer) => return Ok(Some(answer)),
        Err(failure) => (None, failure),
    };
    match (contact.pause_after(failure).await, answer) {
        (Ok(()), _) => Ok(None),
        // Callers explain a status in their own words.
        (Err(error), Some(answer)) if error.kind() != SourceErrorKind::Stopped => Ok(Some(answer)),
        (Err(error), _) => Err(error),
    }
}

/// True for a status after which the same document is requested again. 500 is left out: SOAP uses
/// it for every fault (SOAP 1.1 §6.2), such as a wrong password.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 502..=504)
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
