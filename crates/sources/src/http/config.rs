//! Settings of an HTTP import: the endpoint, the identity, the manners.

use std::fmt;
use std::sync::Arc;

use datapath::error::SourceError;
use url::Url;

use super::dialect::ServerDialect;
use super::headers::ExtraHeader;
use crate::credentials::BasicCredentials;
use crate::engine::ObjectRegions;
use crate::error::invalid_error;
use crate::network::Network;

/// The name that servers and proxies know CDI's importer by.
pub const USER_AGENT: &str = "cdi-golang-importer";

/// Proof that two parts of an object belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContinuityProof {
    /// A validator in `If-Range`: a changed object is sent from its beginning (RFC 9110 §13.1.5).
    #[default]
    IfRange,
    /// A validator in `If-Match` or `If-Unmodified-Since`: a changed object is refused (RFC 9110 §13.1.1, §13.1.4).
    IfMatch,
    /// Its name: the object is addressed by its digest, which is verified. Validators are neither needed nor compared.
    Immutable,
}

/// Settings of an [`HttpSource`](super::HttpSource) besides the network.
#[derive(Clone)]
pub struct HttpConfig {
    /// The way to the server. Its credentials are not sent unless they are in `credentials`.
    pub network: Arc<Network>,
    /// The endpoint; user-info in it is honored as basic auth and never printed.
    pub url: Url,
    /// Basic auth; wins over user-info in the URL.
    pub credentials: Option<BasicCredentials>,
    /// Extra request headers, sent to the origin of `url` only.
    pub headers: Vec<ExtraHeader>,
    /// Value of `User-Agent`, unless an extra header of that name is given.
    pub user_agent: String,
    /// The digest of the whole object is known and verified: a resume may do without a validator, and a server with TLS may hand
    /// the request on to one without.
    pub is_checked: bool,
    /// The manners of this kind of server, if it has any.
    pub dialect: Option<Arc<dyn ServerDialect>>,
    /// Proof that two parts belong together.
    pub continuity: ContinuityProof,
    /// Name of the source in logs, if not its URL.
    pub name: Option<String>,
    /// Ranges in which the object has data, if they are known: with ranges, nothing else is asked for.
    pub regions: Option<ObjectRegions>,
}

impl HttpConfig {
    /// The defaults for `endpoint`, which must be an absolute HTTP or HTTPS URL.
    pub fn new(endpoint: &str, network: &Arc<Network>) -> Result<Self, SourceError> {
        Ok(Self::from_url(parse_endpoint(endpoint)?, network))
    }

    /// The defaults for `url`, whose scheme is HTTP or HTTPS: no credentials and no headers, which each source adds in its own way.
    pub(crate) fn from_url(url: Url, network: &Arc<Network>) -> Self {
        Self {
            network: Arc::clone(network),
            url,
            credentials: None,
            headers: Vec::new(),
            user_agent: USER_AGENT.to_owned(),
            is_checked: network.is_checked,
            dialect: None,
            continuity: ContinuityProof::default(),
            name: None,
            regions: None,
        }
    }
}

/// An absolute HTTP or HTTPS URL.
pub(crate) fn parse_endpoint(endpoint: &str) -> Result<Url, SourceError> {
    let refused = |reason: &dyn fmt::Display| {
        let message = format!("unable to parse endpoint \"{}\": {reason}", redact_endpoint(endpoint));
        invalid_error(message)
    };
    let url = Url::parse(endpoint).map_err(|error| refused(&error))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(refused(&format!("unsupported protocol scheme \"{other}\", use http or https"))),
    }
}

/// A text that may be no URL at all, without what could be a password or a signature in it.
pub(crate) fn redact_endpoint(endpoint: &str) -> &str {
    let visible = endpoint.split(['?', '#']).next().unwrap_or_default();
    visible.rsplit('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_printed() {
        for endpoint in ["ftp://u:secret@host/disk?secret", "u:secret@host", "http://u:secret@ho st/"] {
            let message = parse_endpoint(endpoint).unwrap_err().to_string();
            assert!(message.starts_with("unable to parse endpoint \""), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
