//! HTTP and HTTPS sources. The response to one GET describes the object; ranges and a validator
//! make the transfer resumable.
//!
//! ```text
//!  HttpSource ── open: GET ──► HttpObject: identity (length, validator) + the first response
//!     │
//!     │  one long read, resumed after each failure, or segments over several connections:
//!     ├─ open_body() ─► engine ─► HttpObject::read_ranges ─► HttpDownload ─► ObjectClient
//!     │
//!     │  short reads beside it, on other connections:
//!     └─ read_range() ─────────────────────────────────────► HttpDownload ─► ObjectClient
//! ```
//!
//! No HEAD is sent: some servers refuse it or answer it differently, and the response to the GET
//! has to be checked in any case. Ranges are tested by requesting one byte. They also need a known
//! length and a strong validator, because parts of two objects must never be joined. Without a
//! validator, an object is read in order, and samples are compared before a broken body is resumed.
//!
//! HTTP/2 is not used: a single body gains nothing from a shared connection, and while it is open
//! but not read, it would fill the flow-control window of the connection and starve the short
//! reads of an image's tables beside it. The client does not decode: a `Content-Encoding` stays on
//! the bytes, so that length, ranges, progress and checksum all count the same bytes.

mod agent;
mod body;
mod cause;
mod client;
mod config;
mod dialect;
mod download;
mod headers;
mod identity;
mod object;
mod promise;
mod sample;
mod status;

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use codec::decode::CONTENT_CODINGS;
use http::header::AsHeaderName;
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;
use reqwest::Response;
use stream::error::{SourceAdvice, SourceError};
use stream::observe::LimitingPart;
use stream::source::{Source, SourceBody};
use url::Url;

pub use self::agent::accept_answer;
pub use self::agent::{AgentResponse, HttpAgent};
use self::client::ObjectClient;
pub use self::config::{ContinuityProof, HttpConfig, USER_AGENT};
pub use self::config::{parse_endpoint, redact_endpoint};
pub use self::dialect::{RefusalVerdict, RefusedRequest, ServerDialect};
use self::download::HttpDownload;
pub use self::headers::{ExtraHeader, parse_header, read_secret_headers};
pub use self::identity::ContentRange;
use self::identity::ObjectIdentity;
use self::object::HttpObject;
pub use self::promise::keeps_promise;
pub use self::status::is_transient_status;
use super::address::printable_url;
use super::engine::{RemoteBody, RemoteObject, check_range, collect_chunks};
use super::retry::{AttemptError, with_time_limit};
use crate::error::invalid_error;

/// Longest wait for the response that shows whether ranges work. A server that serves one
/// connection at a time cannot respond while the body is open; its object is then simply read in
/// order.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// An object on an HTTP server, with its first response open. All methods block, so they must not
/// be called inside an asynchronous task.
pub struct HttpSource {
    object: Arc<HttpObject>,
    name: String,
    headers: HeaderMap,
    first: Mutex<Option<Response>>,
    is_ranged: OnceLock<bool>,
}

impl HttpSource {
    /// Sends the GET and checks the response: the status must be 200, and the content encoding
    /// supported.
    pub fn open(config: HttpConfig) -> Result<Self, SourceError> {
        let name = config.name.clone().unwrap_or_else(|| printable_url(&config.url));
        let client = ObjectClient::new(&config)?;
        let network = Arc::clone(&config.network);
        let (response, location) = network.block_on(send_first_request(&client))?;
        let identity = ObjectIdentity::from_headers(response.headers(), response.content_length());
        check_encoding(&identity)?;
        warn_about(&response, &identity, config.is_image);
        Ok(Self {
            object: Arc::new(HttpObject::new(config, client, identity, location)),
            name,
            headers: response.headers().clone(),
            first: Mutex::new(Some(response)),
            is_ranged: OnceLock::new(),
        })
    }

    /// Opens like [`Self::open`] after a login, and counts the time until the response as limited
    /// by the source. The time of the login is not counted.
    pub fn open_after_login(config: HttpConfig) -> Result<Self, SourceError> {
        let (network, began) = (Arc::clone(&config.network), Instant::now());
        let opened = Self::open(config);
        network.observer.record_limit(LimitingPart::Source, began.elapsed());
        opened
    }

    /// Returns the headers of the first response.
    pub fn response_headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the URL at which the redirects ended.
    pub fn location(&self) -> Url {
        self.object.location()
    }

    /// Returns the content coding that the bytes still have; `None` for `identity`.
    pub fn content_encoding(&self) -> Option<&str> {
        self.object.identity.encoding()
    }

    /// False if it is known, without a request, that ranges cannot be used.
    fn may_be_ranged(&self) -> bool {
        // A missing header does not rule out ranges: the server may support them (RFC 9110 §14.3).
        let refused = header_text(&self.headers, header::ACCEPT_RANGES)
            .is_some_and(|units| !units.eq_ignore_ascii_case("bytes"));
        let object = &self.object;
        !refused
            && object.is_recognizable()
            && object.identity.length.is_some_and(|length| length > 0)
            && self.is_ranged.get() != Some(&false)
    }

    /// Tests ranges by requesting one byte, because servers and caches do not always do what they
    /// announce.
    async fn probe_ranges(&self) -> Result<bool, SourceError> {
        let object = &self.object;
        let part = object.range_request(0, Some(1))?;
        let limit = PROBE_LIMIT.min(object.retry_policy().idle_limit());
        let response = with_time_limit(limit, object.get(Some(&part)))
            .await
            .map_err(AttemptError::into_error)?;
        let (answered, total) = ContentRange::from_headers(response.headers())
            .map_or((None, None), |r| (r.part, r.total));
        let later = ObjectIdentity::from_headers(response.headers(), total);
        let is_part = response.status() == StatusCode::PARTIAL_CONTENT && answered == Some(0..1);
        Ok(is_part && object.check_identity(&later).is_ok() && object.is_proven(&response))
    }
}

impl Source for HttpSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn content_type(&self) -> Option<&str> {
        header_text(&self.headers, header::CONTENT_TYPE)
    }

    fn total_bytes(&self) -> Option<u64> {
        self.object.identity.length
    }

    /// True if the length is known, the validator is strong, and a test has shown that ranges
    /// work. The test is made once, when ranges are first needed.
    fn is_ranged(&self) -> bool {
        if !self.may_be_ranged() {
            return false;
        }
        let object = &self.object;
        *self.is_ranged.get_or_init(|| {
            object.network().block_on(self.probe_ranges()).unwrap_or_else(|error| {
                tracing::info!(cause = %error, "the server does not support ranges");
                false
            })
        })
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let first = self.first.lock().take();
        // Several connections and holes need ranges. With one connection, the test can wait until
        // an image needs them.
        let is_ranged = match self.object.connection_count() {
            1 if self.object.data_regions().is_none() => {
                self.is_ranged.get().copied().unwrap_or(false)
            }
            _ => self.is_ranged(),
        };
        let may_grow = self.object.network().connections.is_none()
            && self.may_be_ranged()
            && (is_ranged || self.object.data_regions().is_none());
        let body = RemoteBody::new(Arc::clone(&self.object), first, is_ranged);
        Ok(Box::new(body.with_growth(may_grow)))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        check_range(&range, self.total_bytes().unwrap_or(0))?;
        let length = range.end - range.start;
        let mut download = HttpDownload::from_range(&self.object, range);
        let network = self.object.network();
        network.block_on(collect_chunks(length, async || download.next().await))
    }
}

/// Sends the first request and retries it after transient failures.
async fn send_first_request(client: &ObjectClient) -> Result<(Response, Url), SourceError> {
    let network = client.network();
    let mut contact = network.first_contact();
    loop {
        // The idle limit does not apply yet: a cache may fetch the whole object before it
        // responds.
        let asked = with_time_limit(network.retry_policy.no_progress_limit, ask_once(client)).await;
        match asked {
            Ok(brought) => return Ok(brought),
            Err(failure) => contact.pause_after(client.name_silence(failure)).await?,
        }
    }
}

async fn ask_once(client: &ObjectClient) -> Result<(Response, Url), AttemptError> {
    // GET is used, because some servers refuse HEAD or answer it differently. The body is read
    // later.
    let (response, location) = client.follow_redirects(client.start_url(), None).await?;
    match response.status() {
        _ if HttpObject::is_whole(&response) => Ok((response, location)),
        status => {
            let failure = AttemptError::from_status(200, status, response.headers());
            let sentence = client.describe_refusal(status, &location);
            let advice = client.needs_login(status).then_some(SourceAdvice::GiveLogin);
            Err(failure.map(|error| error.with_plain_words(&sentence).with_advice(advice)))
        }
    }
}

fn check_encoding(identity: &ObjectIdentity) -> Result<(), SourceError> {
    match identity.encoding() {
        Some(coding) if !CONTENT_CODINGS.contains(&coding) => Err(invalid_error(format!(
            "the server answers with Content-Encoding {coding:?} although the object was requested without encoding: serve it without, \
             or with one of {}",
            CONTENT_CODINGS.join(", ")
        ))),
        _ => Ok(()),
    }
}

/// Returns the value of a header if it is present and is text.
pub fn header_text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn warn_about(response: &Response, identity: &ObjectIdentity, is_image: bool) {
    let content_type = header_text(response.headers(), header::CONTENT_TYPE);
    if let Some(content_type) = content_type.filter(|text| is_image && text.starts_with("text/")) {
        tracing::warn!(
            "Unexpected content type '{content_type}'. Content might not be a KubeVirt image."
        );
    }
    if identity.length.is_none() && !response.headers().contains_key(header::TRANSFER_ENCODING) {
        tracing::warn!(
            "the server announces no length: an interrupted transfer looks like a complete one"
        );
    }
}
