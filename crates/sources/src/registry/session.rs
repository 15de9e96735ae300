//! The party that asks: none, a user with a password, or the holder of a token that has to be renewed now and then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use datapath::error::{SourceError, SourceErrorKind};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

use super::USER_AGENT;
use super::challenge::{AuthChallenge, choose_challenge};
use super::refusal::error_summary;
use crate::credentials::BasicCredentials;
use crate::error::invalid_error;
use crate::http::HttpAgent;
use crate::network::Network;

/// The largest answer of a token service; tokens with many rights have some KiB.
const MAX_TOKEN_BYTES: usize = 256 << 10;

/// Life of a token whose service does not say, and the shortest life that is believed (distribution specification,
/// "Token Authentication").
const DEFAULT_LIFE: Duration = Duration::from_secs(60);

/// The longest life that is believed: no import takes longer.
const MAX_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The rights of one import towards one registry.
pub(super) struct RegistrySession {
    agent: HttpAgent,
    network: Arc<Network>,
    /// `repository:<name>:pull`
    scope: String,
    registry: Url,
    state: Mutex<SessionState>,
}

#[derive(Default)]
struct SessionState {
    challenge: Option<AuthChallenge>,
    token: Option<BearerToken>,
    /// The registry has accepted something: what it refuses later has expired.
    is_proven: bool,
}

struct BearerToken {
    value: HeaderValue,
    renew_at: Instant,
}

/// The answer of a token service.
#[derive(Deserialize)]
struct RegistryTokenReply {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl RegistrySession {
    /// Rights to pull `repository`.
    pub(super) fn new(agent: HttpAgent, network: Arc<Network>, repository: &str, registry: Url) -> Self {
        Self {
            agent,
            network,
            scope: format!("repository:{repository}:pull"),
            registry,
            state: Mutex::default(),
        }
    }

    /// The value of `Authorization`, if there is to be one.
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
                let is_due = state.token.as_ref().is_none_or(|token| Instant::now() >= token.renew_at);
                if is_due {
                    state.token = Some(self.ask_for_token(&realm, service.as_deref()).await?);
                }
                Ok(state.token.as_ref().map(|token| token.value.clone()))
            }
        }
    }

    /// Tells if `secret` may go to the registry. A token that is had without a password is no secret.
    fn check_secret_target(&self, secret: &str) -> Result<(), SourceError> {
        match &self.network.credentials {
            Some(_) => self.network.policy.check_secret_target(secret, &self.registry),
            None => Ok(()),
        }
    }

    /// Notes that the registry accepts the credentials or the token.
    pub(super) async fn mark_accepted(&self) {
        self.state.lock().await.is_proven = true;
    }

    /// 401 with these headers: true if asking once more may help, since a token has expired or none was asked for.
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

    async fn ask_for_token(&self, realm: &str, service: Option<&str>) -> Result<BearerToken, SourceError> {
        let url = self.token_url(realm, service)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let refused = |kind, reason: &str| {
            SourceError::new(kind, format!("the token service {host} of the registry {reason}"))
        };
        let password = self.network.credentials.as_ref().map(basic_header).transpose()?;
        // Anonymous tokens are asked for anywhere: the question gives nothing away.
        if password.is_some() {
            self.network.policy.check_token_service(&self.registry, &url)?;
        }
        let make = || {
            let request = self.agent.build_request(Method::GET, url.clone());
            let request = request.header(header::USER_AGENT, USER_AGENT);
            match &password {
                Some(password) => request.header(header::AUTHORIZATION, password.clone()),
                None => request,
            }
        };
        let answer = self.agent.send_patiently(make, MAX_TOKEN_BYTES).await?;
        if answer.status != StatusCode::OK {
            let kind = SourceErrorKind::Status(answer.status.as_u16());
            let reason = format!("answers {}{}", answer.status, error_summary(&answer.body));
            return Err(refused(kind, &reason));
        }
        let unusable = || refused(SourceErrorKind::Io, "gives no usable token");
        let grant: RegistryTokenReply = serde_json::from_slice(&answer.body).map_err(|_| unusable())?;
        grant.into_token().ok_or_else(unusable)
    }

    fn token_url(&self, realm: &str, service: Option<&str>) -> Result<Url, SourceError> {
        let url = Url::parse(realm).ok();
        let usable = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        let mut url = usable.ok_or_else(|| {
            invalid_error("the registry names a token service that is no URL of http or https")
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
        let text = [self.token, self.access_token].into_iter().flatten().find(|text| !text.is_empty())?;
        let mut value = HeaderValue::try_from(format!("Bearer {text}")).ok()?;
        value.set_sensitive(true);
        let life = Duration::from_secs(self.expires_in.unwrap_or(0)).clamp(DEFAULT_LIFE, MAX_LIFE);
        Some(BearerToken {
            value,
            // Not at the last moment: clocks differ, and requests take time.
            renew_at: Instant::now() + (life - life / 10),
        })
    }
}

/// RFC 7617.
fn basic_header(credentials: &BasicCredentials) -> Result<HeaderValue, SourceError> {
    let pair = format!("{}:{}", credentials.user(), credentials.password());
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))
        .map_err(|_| invalid_error("user and password make no header"))?;
    value.set_sensitive(true);
    Ok(value)
}
