//! Authentication at a registry: anonymous, with a password, or with a token that has to be
//! renewed now and then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fetch::BasicCredentials;
use fetch::Network;
use fetch::error::invalid_error;
use fetch::http::HttpAgent;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use stream::error::{SourceError, SourceErrorKind};
use tokio::sync::Mutex;
use url::Url;

use super::USER_AGENT;
use super::challenge::{AuthChallenge, choose_challenge};
use super::refusal::error_summary;

/// Longest response of a token service, in bytes. Tokens with many rights have some KiB.
const MAX_TOKEN_BYTES: usize = 256 << 10;

/// Lifetime of a token whose service announces none, and the shortest lifetime that is accepted
/// (distribution specification, "Token Authentication").
const DEFAULT_LIFE: Duration = Duration::from_secs(60);

/// Longest lifetime that is accepted; no import takes longer.
const MAX_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The authorisation of one import at one registry.
pub(super) struct RegistrySession {
    agent: HttpAgent,
    network: Arc<Network>,
    /// The scope of tokens: `repository:<name>:pull`.
    scope: String,
    registry: Url,
    state: Mutex<SessionState>,
}

#[derive(Default)]
struct SessionState {
    challenge: Option<AuthChallenge>,
    token: Option<BearerToken>,
    /// True if the registry has accepted the credentials or the token before. A later refusal then
    /// means that they have expired.
    is_proven: bool,
}

struct BearerToken {
    value: HeaderValue,
    renew_at: Instant,
}

/// The response of a token service.
#[derive(Deserialize)]
struct RegistryTokenReply {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl RegistrySession {
    /// Creates a session with the right to pull `repository`.
    pub(super) fn new(
        agent: HttpAgent,
        network: Arc<Network>,
        repository: &str,
        registry: Url,
    ) -> Self {
        Self {
            agent,
            network,
            scope: format!("repository:{repository}:pull"),
            registry,
            state: Mutex::default(),
        }
    }

    /// Returns the value of `Authorization`, if the registry requires the header.
    pub(super) async fn authorization_header(&self) -> Result<Option<HeaderValue>, SourceError> {
        let mut state = self.state.lock().await;
        match state.challenge.clone() {
            None => Ok(None),
            Some(AuthChallenge::Basic) => {
                self.check_secret_target("the password of the registry")?;
                self.network.credentials.as_ref().map(basic_header).transpose()
            }
            Some(AuthChallenge::Bearer { realm, service }) => {
                self.check_secret_target("the token of the registry")?;
                let is_due =
                    state.token.as_ref().is_none_or(|token| Instant::now() >= token.renew_at);
                if is_due {
                    state.token = Some(self.ask_for_token(&realm, service.as_deref()).await?);
                }
                Ok(state.token.as_ref().map(|token| token.value.clone()))
            }
        }
    }

    /// Checks whether `secret` may be sent to the registry. A token that was obtained without a
    /// password is not a secret.
    fn check_secret_target(&self, secret: &str) -> Result<(), SourceError> {
        match &self.network.credentials {
            Some(_) => self.network.policy.check_secret_target(secret, &self.registry),
            None => Ok(()),
        }
    }

    /// Records that the registry accepts the credentials or the token.
    pub(super) async fn mark_accepted(&self) {
        self.state.lock().await.is_proven = true;
    }

    /// Handles a 401 with these headers. Returns true if another attempt may help, because a token
    /// has expired or was not requested yet.
    pub(super) async fn handle_challenge(&self, headers: &HeaderMap) -> bool {
        let mut state = self.state.lock().await;
        let Some(offer) = choose_challenge(headers) else {
            return false;
        };
        let is_new = state.challenge.as_ref() != Some(&offer);
        state.challenge = Some(offer);
        state.token = None;
        is_new || state.is_proven
    }

    async fn ask_for_token(
        &self,
        realm: &str,
        service: Option<&str>,
    ) -> Result<BearerToken, SourceError> {
        let url = self.token_url(realm, service)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let refused = |kind, reason: &str| {
            SourceError::new(kind, format!("the token service {host} of the registry {reason}"))
        };
        let request = self.agent.build_request(Method::GET, url.clone());
        let mut request = request.header(header::USER_AGENT, USER_AGENT);
        // Anonymous tokens may be requested from any server, because the request holds no secret.
        if let Some(credentials) = &self.network.credentials {
            self.network.policy.check_token_service(&self.registry, &url)?;
            request = request.basic_auth(credentials.user(), Some(credentials.password()));
        }
        // Not retried here, because the request that needs the token is.
        let answer = self.agent.send(request, MAX_TOKEN_BYTES).await?;
        if answer.status != StatusCode::OK {
            let kind = SourceErrorKind::Status(answer.status.as_u16());
            let (words, advice) = error_summary(&answer.body);
            let reason = format!("answers {}{words}", answer.status);
            return Err(refused(kind, &reason).with_advice(advice));
        }
        let unusable = || refused(SourceErrorKind::Io, "gives no usable token");
        let grant: RegistryTokenReply =
            serde_json::from_slice(&answer.body).map_err(|_| unusable())?;
        grant.into_token().ok_or_else(unusable)
    }

    fn token_url(&self, realm: &str, service: Option<&str>) -> Result<Url, SourceError> {
        let url = Url::parse(realm).ok();
        let usable = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        let mut url = usable.ok_or_else(|| {
            invalid_error("the registry names a token service that is not an http or https URL")
        })?;
        let mut query = url.query_pairs_mut();
        if let Some(credentials) = &self.network.credentials {
            query.append_pair("account", credentials.user());
        }
        query.append_pair("scope", &self.scope);
        query.extend_pairs(service.map(|service| ("service", service)));
        drop(query);
        Ok(url)
    }
}

impl RegistryTokenReply {
    fn into_token(self) -> Option<BearerToken> {
        let text =
            [self.token, self.access_token].into_iter().flatten().find(|text| !text.is_empty())?;
        let mut value = HeaderValue::try_from(format!("Bearer {text}")).ok()?;
        value.set_sensitive(true);
        let life = Duration::from_secs(self.expires_in.unwrap_or(0)).clamp(DEFAULT_LIFE, MAX_LIFE);
        Some(BearerToken {
            value,
            // Renewed before the last moment, because clocks differ and requests take time.
            renew_at: Instant::now() + (life - life / 10),
        })
    }
}

/// Formats the header for basic authentication (RFC 7617).
fn basic_header(credentials: &BasicCredentials) -> Result<HeaderValue, SourceError> {
    let pair = format!("{}:{}", credentials.user(), credentials.password());
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))
        .map_err(|_| invalid_error("user and password cannot be sent in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}
