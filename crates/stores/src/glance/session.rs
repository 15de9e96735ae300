//! A session with a cloud, which exchanges credentials for a token.

use std::sync::Arc;

use async_trait::async_trait;
use fetch::Network;
use fetch::error::invalid_error;
use fetch::http::{
    AgentResponse, HttpAgent, RefusalVerdict, RefusedRequest, ServerDialect, USER_AGENT,
    keeps_promise,
};
use fetch::messages::{plain_line, status_text};
use http::{HeaderValue, Method, StatusCode, header};
use program::secret::Secret;
use serde::Deserialize;
use stream::error::{SourceError, SourceErrorKind};
use tokio::sync::Mutex;
use url::Url;

use super::access::GlanceAccess;
use super::catalog::TokenDocument;
use super::image::GlanceImage;

/// Largest document that is accepted, in bytes. A catalogue with a hundred services in ten regions
/// takes 300 KiB.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// Header with the token that authorises a request (Keystone).
const TOKEN: &str = "x-auth-token";

/// Header with the token that a response, or a request to Keystone, refers to.
const SUBJECT: &str = "x-subject-token";

/// A session of one user with one cloud.
pub(super) struct GlanceSession {
    agent: HttpAgent,
    network: Arc<Network>,
    /// The URL for tokens: `…/v3/auth/tokens`.
    tokens: Url,
    access: GlanceAccess,
    /// The current token; `None` after it was refused.
    token: Mutex<Option<HeaderValue>>,
}

impl GlanceSession {
    /// Creates a session that is not logged in yet.
    pub(super) fn new(
        tokens: Url,
        access: GlanceAccess,
        network: &Arc<Network>,
    ) -> Result<Self, SourceError> {
        Ok(Self {
            agent: HttpAgent::new(network, USER_AGENT)?,
            network: Arc::clone(network),
            tokens,
            access,
            token: Mutex::default(),
        })
    }

    /// Gets the first token and returns the endpoint of the image service.
    pub(super) async fn log_in(&self) -> Result<Url, SourceError> {
        let (token, granted) = self.ask_for_token().await?;
        *self.token.lock().await = Some(token);
        let endpoint = granted.image_service(&self.access)?;
        keeps_promise(&self.tokens, &endpoint, self.network.is_checked)?.warn_downgrade();
        Ok(endpoint)
    }

    /// Fetches the description of the image at `url`.
    pub(super) async fn fetch_image(&self, url: Url) -> Result<GlanceImage, SourceError> {
        let token = self.token_for(&url).await?;
        let make = || {
            let request = self.agent.build_request(Method::GET, url.clone());
            request.header(TOKEN, token.clone())
        };
        let answer = self.agent.send_patiently(make, MAX_DOCUMENT_BYTES).await?;
        let does = match answer.status {
            StatusCode::OK => return GlanceImage::parse(&answer.body),
            StatusCode::NOT_FOUND => "has no such image, or does not show it to this project",
            _ => "does not describe the image",
        };
        Err(response_error("image", does, &answer, self.access.named_secret().1))
    }

    /// Returns the token if it may be sent to `url`. Gets a new one if the last one was refused.
    async fn token_for(&self, url: &Url) -> Result<HeaderValue, SourceError> {
        self.network.policy.check_secret_target("the token of OpenStack", url)?;
        // The lock is held while a new token is requested, so that parallel requests share one
        // token.
        let mut token = self.token.lock().await;
        match &*token {
            Some(token) => Ok(token.clone()),
            None => {
                let (renewed, _) = self.ask_for_token().await?;
                *token = Some(renewed.clone());
                Ok(renewed)
            }
        }
    }

    async fn ask_for_token(&self) -> Result<(HeaderValue, TokenDocument), SourceError> {
        let (noun, secret) = self.access.named_secret();
        self.network.policy.check_secret_target(&format!("{noun} of OpenStack"), &self.tokens)?;
        let wanted = self.access.token_request();
        let given = match wanted {
            Some(_) => None,
            None => Some(header_value(secret.expose().as_bytes()).ok_or_else(|| {
                invalid_error("the OpenStack token contains an invalid character")
            })?),
        };
        let document = wanted.map(|document| document.to_string()).unwrap_or_default();
        let tokens = || self.tokens.clone();
        let make = || match &given {
            // Keystone is asked whether an existing token is valid, and what it is for.
            Some(token) => {
                let request = self.agent.build_request(Method::GET, tokens());
                request.header(TOKEN, token).header(SUBJECT, token)
            }
            None => {
                let request = self.agent.build_request(Method::POST, tokens());
                let request = request.header(header::CONTENT_TYPE, "application/json");
                request.body(document.clone())
            }
        };
        let answer = self.agent.send_patiently(make, MAX_DOCUMENT_BYTES).await?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => {}
            StatusCode::UNAUTHORIZED => {
                let does = format!("refuses {noun}");
                return Err(response_error("identity", &does, &answer, secret));
            }
            _ => return Err(response_error("identity", "gives no token", &answer, secret)),
        }
        let unusable = || {
            invalid_error(format!("{} returns no usable token", service_name("identity", &answer)))
        };
        let told = || header_value(answer.headers.get(SUBJECT)?.as_bytes());
        let token = given.or_else(told).ok_or_else(unusable)?;
        // The message does not repeat the service's own text, which may contain parts of the
        // document with the password.
        let granted =
            serde_json::from_slice(&answer.body).map_err(|error| unusable().with_cause(error))?;
        Ok((token, granted))
    }
}

/// Adds the token to requests, and gets a new one when the image service no longer accepts it.
#[async_trait]
impl ServerDialect for GlanceSession {
    async fn authorize(&self, request: &mut reqwest::Request) -> Result<(), SourceError> {
        let token = self.token_for(request.url()).await?;
        request.headers_mut().insert(TOKEN, token);
        Ok(())
    }

    async fn judge_refusal(&self, refusal: RefusedRequest<'_>) -> RefusalVerdict {
        if refusal.status != StatusCode::UNAUTHORIZED {
            return RefusalVerdict::Plain;
        }
        *self.token.lock().await = None;
        RefusalVerdict::Again(None)
    }
}

/// Creates the error for an unexpected response. The message of the service is left out if it
/// repeats the `secret`.
fn response_error(kind: &str, does: &str, answer: &AgentResponse, secret: &Secret) -> SourceError {
    #[derive(Deserialize)]
    struct KeystoneErrorDocument {
        error: KeystoneErrorDetail,
    }
    #[derive(Deserialize)]
    struct KeystoneErrorDetail {
        message: String,
    }
    let said = serde_json::from_slice(&answer.body)
        .map(|document: KeystoneErrorDocument| document.error.message);
    let said = said.ok().filter(|said| !said.contains(secret.expose()));
    let said = said.map(|said| format!(": {}", plain_line(&said))).unwrap_or_default();
    let message =
        format!("{} {does}: {}{said}", service_name(kind, answer), status_text(answer.status));
    SourceError::new(SourceErrorKind::Status(answer.status.as_u16()), message)
}

/// Formats the name of a service: `the identity service keystone.example`.
fn service_name(kind: &str, answer: &AgentResponse) -> String {
    format!("the {kind} service {}", answer.url.host_str().unwrap_or_default())
}

/// Converts a token to the value of a header; `None` if it is empty or not valid in a header.
fn header_value(token: &[u8]) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(token).ok().filter(|value| !value.is_empty())?;
    // Mark the value as sensitive, so that HTTP libraries leave it out of their debug output.
    value.set_sensitive(true);
    Some(value)
}
