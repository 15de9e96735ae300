//! Settings of an HTTP import: URL, credentials, headers and dialect.

use std::fmt;
use std::sync::Arc;

use stream::error::SourceError;
use url::Url;

use super::dialect::ServerDialect;
use super::headers::ExtraHeader;
use crate::credentials::BasicCredentials;
use crate::engine::ObjectRegions;
use crate::error::invalid_error;
use crate::network::Network;

/// User agent that identifies CDI's importer to servers and proxies.
pub const USER_AGENT: &str = "cdi-golang-importer";

/// Method to prove that two parts belong to the same version of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContinuityProof {
    /// A validator in `If-Range`: a changed object is sent from its beginning (RFC 9110 §13.1.5).
    #[default]
    IfRange,
    /// A validator in `If-Match` or `If-Unmodified-Since`: the server refuses a changed object
    /// (RFC 9110 §13.1.1, §13.1.4).
    IfMatch,
    /// The name of the object: it is addressed by its digest, which is verified. Validators are
    /// neither needed nor compared.
    Immutable,
    /// None: the server sends the object once, so a broken transfer is not resumed.
    Once,
}

/// Settings of an [`HttpSource`](super::HttpSource).
#[derive(Clone)]
pub struct HttpConfig {
    /// Settings for reaching the server. Its credentials are not sent unless they are also in
    /// `credentials`.
    pub network: Arc<Network>,
    /// The URL of the object; user-info in it is used for basic authentication and never printed.
    pub url: Url,
    /// User and password for basic authentication; override the user-info in the URL.
    pub credentials: Option<BasicCredentials>,
    /// Extra request headers, sent only to the origin of `url`.
    pub headers: Vec<ExtraHeader>,
    /// Value of `User-Agent`, unless an extra header of that name is given.
    pub user_agent: String,
    /// True if the digest of the whole object is known and verified. A transfer may then resume
    /// without a validator, and a server with TLS may redirect to a server without TLS.
    pub is_checked: bool,
    /// The rules of this kind of server, if they differ from plain HTTP.
    pub dialect: Option<Arc<dyn ServerDialect>>,
    /// How to prove that two parts belong together.
    pub continuity: ContinuityProof,
    /// Name of the source in logs; with `None`, its URL is used.
    pub name: Option<String>,
    /// False for a document beside an image, which may well be text.
    pub is_image: bool,
    /// Ranges in which the object contains data, if they are known. If the server supports ranges,
    /// nothing else is requested.
    pub regions: Option<ObjectRegions>,
}

impl HttpConfig {
    /// Returns the default settings for `endpoint`, which must be an absolute HTTP or HTTPS URL.
    pub fn new(endpoint: &str, network: &Arc<Network>) -> Result<Self, SourceError> {
        Ok(Self::from_url(parse_endpoint(endpoint)?, network))
    }

    /// Returns the default settings for `url`, whose scheme is HTTP or HTTPS. They contain no
    /// credentials and no headers; each kind of source adds these itself.
    pub fn from_url(url: Url, network: &Arc<Network>) -> Self {
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
            is_image: true,
            regions: None,
        }
    }
}

/// Parses an absolute HTTP or HTTPS URL.
pub fn parse_endpoint(endpoint: &str) -> Result<Url, SourceError> {
    let refused = |reason: &dyn fmt::Display| {
        let message =
            format!("unable to parse endpoint \"{}\": {reason}", redact_endpoint(endpoint));
        invalid_error(message)
    };
    let url = Url::parse(endpoint).map_err(|error| refused(&error))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => {
            Err(refused(&format!("unsupported protocol scheme \"{other}\", use http or https")))
        }
    }
}

/// Removes everything that could be a password or a signature. The text need not be a valid URL.
pub fn redact_endpoint(endpoint: &str) -> &str {
    let visible = endpoint.split(['?', '#']).next().unwrap_or_default();
    visible.rsplit('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_an_endpoint_are_not_printed() {
        for endpoint in
            ["ftp://u:secret@host/disk?secret", "u:secret@host", "http://u:secret@ho st/"]
        {
            let message = parse_endpoint(endpoint).unwrap_err().to_string();
            assert!(message.starts_with("unable to parse endpoint \""), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
