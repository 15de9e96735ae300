//! A session with the engine: a token obtained with a password, and requests in XML that carry it.

use std::sync::Arc;

use fetch::BasicCredentials;
use fetch::Network;
use fetch::error::invalid_error;
use fetch::http::{AgentResponse, HttpAgent, USER_AGENT};
use fetch::messages::{plain_line, status_text};
use http::{Method, StatusCode, header};
use parking_lot::Mutex;
use stream::error::{SourceError, SourceErrorKind};
use url::{Url, form_urlencoded};

use crate::xml::{XmlElement, escape_text};

/// Longest document of the engine, in bytes. A list of a thousand snapshots takes one megabyte.
const MAX_DOCUMENT_BYTES: usize = 8 << 20;

/// Longest identifier, in bytes; a UUID has 36.
const MAX_ID_BYTES: usize = 255;

/// Scope of tokens for the engine's API (oVirt, "Authentication").
const SCOPE: &str = "ovirt-app-api";

/// A session of one user with one engine.
#[derive(Debug)]
pub(super) struct OvirtSession {
    agent: HttpAgent,
    api: Url,
    credentials: BasicCredentials,
    token: Mutex<String>,
}

/// A response of the engine that reports a failure.
#[derive(Debug)]
pub(super) struct OvirtError {
    pub(super) status: StatusCode,
    /// `reason: detail`, or the status if the engine gives neither.
    pub(super) text: String,
}

impl From<OvirtError> for SourceError {
    fn from(fault: OvirtError) -> Self {
        Self::new(SourceErrorKind::Status(fault.status.as_u16()), fault.text)
    }
}

/// Returns the credentials, or an error if there are none: oVirt rejects anonymous requests.
pub fn require_credentials(
    given: Option<&BasicCredentials>,
) -> Result<&BasicCredentials, SourceError> {
    given.ok_or_else(|| {
        invalid_error("oVirt needs a user name and a password, such as admin@internal")
    })
}

impl OvirtSession {
    /// Exchanges user and password for a token.
    pub(super) async fn open(api: &Url, network: &Arc<Network>) -> Result<Self, SourceError> {
        let mut api = api.clone();
        if !api.path().ends_with('/') {
            api.set_path(&format!("{}/", api.path()));
        }
        let credentials = require_credentials(network.credentials.as_ref())?.clone();
        network.policy.check_secret_target("the password of the oVirt engine", &api)?;
        let session = Self {
            token: Mutex::default(),
            agent: HttpAgent::new(network, USER_AGENT)?,
            api,
            credentials,
        };
        session.log_in().await?;
        Ok(session)
    }

    fn access_token(&self) -> String {
        self.token.lock().clone()
    }

    async fn log_in(&self) -> Result<(), SourceError> {
        #[derive(Default, serde::Deserialize)]
        struct SsoToken {
            access_token: Option<String>,
            error: Option<String>,
            error_code: Option<String>,
        }
        let form = encode_form(&[
            ("grant_type", "password"),
            ("scope", SCOPE),
            ("username", self.credentials.user()),
            ("password", self.credentials.password()),
        ]);
        let answer = self.post_form("../sso/oauth/token", &form).await?;
        // A response that is not JSON, such as one from a proxy in between, is reported by its
        // status.
        let token: SsoToken = serde_json::from_slice(&answer.body).unwrap_or_default();
        match token.access_token {
            Some(text) if answer.status.is_success() => {
                *self.token.lock() = text;
                Ok(())
            }
            _ => {
                let reason = token
                    .error
                    .or(token.error_code)
                    .map_or_else(|| status_text(answer.status), |reason| plain_line(&reason));
                let message = format!("the engine rejected the user name or password: {reason}");
                let kind = SourceErrorKind::Status(answer.status.as_u16());
                let host = self.api_url("")?;
                let host = host.host_str().unwrap_or_default();
                let words = match answer.status {
                    StatusCode::NOT_FOUND => {
                        format!("{host} is not an oVirt engine ({reason}): check the address")
                    }
                    _ => format!(
                        "{host}: {message}: check --user (NAME@PROFILE) and --password-file"
                    ),
                };
                Err(SourceError::new(kind, message).with_plain_words(&words))
            }
        }
    }

    async fn post_form(&self, path: &str, form: &str) -> Result<AgentResponse, SourceError> {
        let url = self.api_url(path)?;
        let make = || {
            self.agent
                .build_request(Method::POST, url.clone())
                .header(header::ACCEPT, "application/json")
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.to_owned())
        };
        self.agent.send_patiently(make, MAX_DOCUMENT_BYTES).await
    }

    /// Logs out, so that the engine discards the token. A failure is only logged, because tokens
    /// expire.
    pub(super) async fn close(&self) {
        let form = encode_form(&[("scope", SCOPE), ("token", &self.access_token())]);
        if let Err(error) = self.post_form("../services/sso-logout", &form).await {
            tracing::debug!("cannot log out of the engine: {error}");
        }
    }

    /// Sends one request; `path` is relative to the API. A fault of the engine is an error.
    pub(super) async fn call_api(
        &self,
        method: Method,
        path: &str,
        body: Option<&str>,
    ) -> Result<XmlElement, SourceError> {
        self.try_call(method, path, body).await?.map_err(|fault| {
            let error = SourceError::from(fault);
            SourceError::with_context(
                error.kind(),
                format_args!("the engine's answer to {path:?}"),
                error,
            )
        })
    }

    /// Sends one request and leaves a fault of the engine to the caller. A token that has expired,
    /// for example after hours of reading, is replaced.
    pub(super) async fn try_call(
        &self,
        method: Method,
        path: &str,
        body: Option<&str>,
    ) -> Result<Result<XmlElement, OvirtError>, SourceError> {
        match self.call_once(&method, path, body).await? {
            Err(fault) if fault.status == StatusCode::UNAUTHORIZED => {
                self.log_in().await?;
                self.call_once(&method, path, body).await
            }
            other => Ok(other),
        }
    }

    async fn call_once(
        &self,
        method: &Method,
        path: &str,
        body: Option<&str>,
    ) -> Result<Result<XmlElement, OvirtError>, SourceError> {
        let (url, token) = (self.api_url(path)?, self.access_token());
        let make = || {
            let request = self
                .agent
                .build_request(method.clone(), url.clone())
                .header("Version", "4")
                .header(header::ACCEPT, "application/xml")
                .bearer_auth(&token);
            match body {
                Some(xml) => {
                    request.header(header::CONTENT_TYPE, "application/xml").body(xml.to_owned())
                }
                None => request,
            }
        };
        // Other requests are not retried, because a repeated request could take effect twice.
        let answer = if *method == Method::GET {
            self.agent.send_patiently(make, MAX_DOCUMENT_BYTES).await?
        } else {
            self.agent.send(make(), MAX_DOCUMENT_BYTES).await?
        };
        let parsed = XmlElement::parse(&answer.body);
        if !answer.status.is_success() {
            return Ok(Err(parse_fault(answer.status, parsed.ok().as_ref())));
        }
        parsed.map(Ok).map_err(|error| {
            let what = format!("the engine's answer to {path:?} cannot be read");
            SourceError::with_context(SourceErrorKind::Io, what, error)
        })
    }

    fn api_url(&self, path: &str) -> Result<Url, SourceError> {
        self.api.join(path).map_err(|error| {
            let what = format!("cannot build the engine's URL for {path:?}");
            SourceError::with_context(SourceErrorKind::Invalid, what, error)
        })
    }
}

fn parse_fault(status: StatusCode, document: Option<&XmlElement>) -> OvirtError {
    let said = document.map(|fault| (fault.text_of("reason"), fault.text_of("detail")));
    let text = match said {
        Some((Some(reason), Some(detail))) => {
            format!("{}: {}", plain_line(reason), plain_line(detail))
        }
        Some((Some(text), None) | (None, Some(text))) => plain_line(text),
        Some((None, None)) | None => status_text(status),
    };
    OvirtError { status, text }
}

fn encode_form(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// Encodes an identifier as a path segment. Engines use UUIDs; an identifier that would lead to
/// another path is rejected.
pub(super) fn path_segment(id: &str) -> Result<String, SourceError> {
    if matches!(id, "" | "." | "..") || id.len() > MAX_ID_BYTES {
        let message = format!("the engine cannot have an object with the id {:?}", plain_line(id));
        return Err(invalid_error(message));
    }
    Ok(form_urlencoded::byte_serialize(id.as_bytes()).collect())
}

/// Formats `<name>text</name>`, with `text` escaped.
pub(super) fn xml_element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escape_text(text))
}
