//! Single requests: their headers, and which responses count as failures.

mod redirect;

use std::collections::HashSet;
use std::sync::{Arc, Once};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use reqwest::Response;
use stream::error::{SourceError, SourceErrorKind};
use url::{Origin, Url};

use crate::address::{printable_url, url_origin};
use crate::credentials::BasicCredentials;
use crate::http::agent;
use crate::http::cause::{RequestRoute, transport_failure};
use crate::http::config::HttpConfig;
use crate::http::dialect::{self, RefusalVerdict, ServerDialect};
use crate::http::headers::ExtraHeader;
use crate::http::promise::{IntegrityGuarantee, keeps_promise};
use crate::messages::status_text;
use crate::network::Network;
use crate::retry::AttemptError;

/// Headers that determine how the response is framed or which bytes it contains. The importer sets
/// them itself.
const RESERVED: [HeaderName; 10] = [
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Headers whose values are always secret, even if the user does not mark them so.
const SECRET: [HeaderName; 3] =
    [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE];

/// Sends requests on behalf of one import.
pub(super) struct ObjectClient {
    http: reqwest::Client,
    start: Url,
    credentials: Option<BasicCredentials>,
    headers: HeaderMap,
    dialect: Option<Arc<dyn ServerDialect>>,
    network: Arc<Network>,
    is_named: bool,
    is_checked: bool,
    /// Limits the warning that TLS does not protect the bytes to one log line.
    is_warned: Once,
    /// Origins whose requests the dialect signs: the first one, and those that it has named.
    acquainted: Mutex<HashSet<Origin>>,
}

/// The range of an object that a request asks for.
#[derive(Debug, Clone)]
pub(super) struct ObjectRange {
    /// Offset of the first byte.
    pub(super) start: u64,
    /// Offset after the last byte; `None` means the end of the object.
    pub(super) end: Option<u64>,
    /// Header with the validator that the object must still match.
    pub(super) condition: Option<(HeaderName, HeaderValue)>,
}

impl ObjectClient {
    pub(super) fn new(config: &HttpConfig) -> Result<Self, SourceError> {
        let headers = extra_headers(&config.headers);
        let http = agent::build_client(&config.network, &config.user_agent)?;
        let mut start = config.url.clone();
        let credentials = config.credentials.clone().or_else(|| BasicCredentials::of_url(&start));
        strip_user_info(&mut start);
        if let Some(secret) = secret_of(credentials.as_ref(), &headers) {
            config.network.policy.check_secret_target(&secret, &start)?;
        }
        start.set_fragment(None);
        Ok(Self {
            http,
            acquainted: Mutex::new(HashSet::from([start.origin()])),
            start,
            credentials,
            headers,
            dialect: config.dialect.clone(),
            network: Arc::clone(&config.network),
            is_named: config.name.is_some(),
            is_checked: config.is_checked,
            is_warned: Once::new(),
        })
    }

    /// Returns the settings for reaching servers.
    pub(super) fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the URL at which the import began, before any redirect.
    pub(super) fn start_url(&self) -> &Url {
        &self.start
    }

    /// Describes the request to `url` for messages about its failure.
    pub(super) fn request_route(&self, url: &Url) -> RequestRoute {
        let mut shown = self.display_url(url);
        if *url != self.start {
            shown.push_str(&format!(" (reached from {})", self.display_url(&self.start)));
        }
        RequestRoute::new(url, shown, &self.network.proxy)
    }

    /// Explains a status received from `url`, and what to do about it.
    pub(super) fn describe_refusal(&self, status: StatusCode, url: &Url) -> String {
        let has_login = self.has_login();
        self.request_route(url).describe_refusal(status, url.scheme(), has_login)
    }

    /// True if a response with this status asks for a user name, and none was sent.
    pub(super) fn needs_login(&self, status: StatusCode) -> bool {
        status == StatusCode::UNAUTHORIZED && !self.has_login()
    }

    fn has_login(&self) -> bool {
        self.credentials.is_some() || self.headers.contains_key(header::AUTHORIZATION)
    }

    /// Adds the URL to the error about a silent server. Other errors already name their server.
    pub(super) fn name_silence(&self, failure: AttemptError) -> AttemptError {
        match failure.error_kind() {
            SourceErrorKind::Stalled => failure.with_context(&self.display_url(&self.start)),
            _ => failure,
        }
    }

    /// Formats a URL for messages. If the source has its own name, the path is left out: it adds
    /// nothing or is secret.
    fn display_url(&self, url: &Url) -> String {
        if self.is_named { url_origin(url) } else { printable_url(url) }
    }

    /// Sends a request with the dialect's authorisation, and repeats it if the dialect requests
    /// that. Returns the response and the URL that it came from.
    async fn send_authorized(
        &self,
        url: &Url,
        part: Option<&ObjectRange>,
    ) -> Result<(Response, Url), AttemptError> {
        let mut url = url.clone();
        let mut is_first = true;
        loop {
            let dialect = self.dialect.as_deref().filter(|_| self.is_acquainted(&url));
            let response = self.send_once(&url, part, dialect).await?;
            let Some(dialect) = dialect.filter(|_| dialect::is_refusal(&response)) else {
                return Ok((response, url));
            };
            match dialect::judge_response(dialect, &url, response, &self.request_route(&url))
                .await?
            {
                // The request is repeated only once: a server that rejects every new token or
                // region would otherwise be asked forever.
                (RefusalVerdict::Again(elsewhere), _) if is_first => {
                    if let Some(elsewhere) = elsewhere {
                        self.get_acquainted(&elsewhere);
                        url = elsewhere;
                    }
                    is_first = false;
                }
                (RefusalVerdict::Described { text, transient, advice }, response) => {
                    let kind = SourceErrorKind::Status(response.status().as_u16());
                    let error = SourceError::new(kind, text).with_advice(advice);
                    return Err(AttemptError::from_response(error, transient, response.headers()));
                }
                (RefusalVerdict::Plain | RefusalVerdict::Again(_), response) => {
                    return Ok((response, url));
                }
            }
        }
    }

    async fn send_once(
        &self,
        url: &Url,
        part: Option<&ObjectRange>,
        dialect: Option<&dyn ServerDialect>,
    ) -> Result<Response, AttemptError> {
        // This is checked here and not where redirects are read, because resumed and relocated
        // requests pass through here as well.
        self.network.policy.check_url(url).map_err(AttemptError::Final)?;
        let promise =
            keeps_promise(&self.start, url, self.is_checked).map_err(AttemptError::Final)?;
        if promise != IntegrityGuarantee::Kept {
            self.is_warned.call_once(|| promise.warn_downgrade());
        }
        let mut target = url.clone();
        strip_user_info(&mut target);
        let mut request = self.http.get(target).headers(self.headers_for(url, part));
        if let Some(credentials) = self.credentials_for(url) {
            request = request.basic_auth(credentials.user(), Some(credentials.password()));
        }
        let failed = |error| transport_failure(error, &self.request_route(url));
        let mut request = request.build().map_err(failed)?;
        if let Some(dialect) = dialect {
            dialect.authorize(&mut request).await.map_err(AttemptError::from_error)?;
        }
        let response = self.http.execute(request).await.map_err(failed)?;
        self.log_response(url, part, &response);
        Ok(response)
    }

    /// Logs a request and its response. Requests for ranges are logged at debug level, because
    /// there may be thousands.
    fn log_response(&self, url: &Url, part: Option<&ObjectRange>, response: &Response) {
        let shown = self.display_url(url);
        let status = status_text(response.status());
        let address = response.remote_addr().map(tracing::field::display);
        let proxy = self.network.proxy.proxy_for(url).map(url_origin);
        match part {
            None => tracing::info!(status, address, proxy, "GET {shown}"),
            Some(ObjectRange { start, end, .. }) => {
                tracing::debug!(status, address, proxy, start, end, "GET {shown}");
            }
        }
    }

    fn headers_for(&self, url: &Url, part: Option<&ObjectRange>) -> HeaderMap {
        let mut headers = self.own_headers(url);
        // Request no compression: progress, checksum and ranges all count the object's stored
        // bytes.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(part) = part {
            let last = part.end.map(|end| end.saturating_sub(1).to_string()).unwrap_or_default();
            if let Ok(range) = HeaderValue::try_from(format!("bytes={}-{last}", part.start)) {
                headers.insert(header::RANGE, range);
            }
            headers.extend(part.condition.clone());
        }
        headers
    }
}

fn strip_user_info(url: &mut Url) {
    // Both calls fail only for URLs without a host, which the configuration has rejected.
    url.set_username("").ok();
    url.set_password(None).ok();
}

/// Describes the secret, if any, that is sent to the first origin with each request.
fn secret_of(credentials: Option<&BasicCredentials>, headers: &HeaderMap) -> Option<String> {
    let is_secret =
        |name: &HeaderName, value: &HeaderValue| value.is_sensitive() || SECRET.contains(name);
    let header = headers.iter().find(|(name, value)| is_secret(name, value));
    match (credentials, header) {
        (_, Some((name, _))) => Some(format!("the header {name}")),
        (Some(_), None) => Some("the password".to_owned()),
        (None, None) => None,
    }
}

fn extra_headers(extras: &[ExtraHeader]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for extra in extras {
        if RESERVED.contains(&extra.name) {
            tracing::warn!("extra header {} is ignored: the importer sets it itself", extra.name);
        } else {
            headers.append(&extra.name, extra.value.clone());
        }
    }
    headers
}
