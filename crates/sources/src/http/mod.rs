//! HTTP and HTTPS: one GET decides everything, ranges and a validator make it resumable.
//!
//! ```text
//!  HttpSource ── open: GET ──► Object: identity (length, validator) + the first response
//!     │
//!     ├─ body() ─► engine ─► Object::read ─► Download ─► Client   one long read, resumed after each failure,
//!     │                                                           or segments over several connections
//!     └─ read_range() ─────────────────────► Download ─► Client   short reads beside it, on other connections
//! ```
//!
//! No HEAD: some servers refuse it or answer it otherwise, and what the GET answers has to be checked anyway. Ranges
//! are tried by asking for one byte; they also need a length and a strong validator, because parts of two objects
//! must never be joined.
//!
//! No HTTP/2: one body gains nothing from sharing a connection, and held open unread it would fill the window of the
//! connection and starve the requests for tables beside it. No decoding by the client: a `Content-Encoding` stays on
//! the bytes, so that length, ranges, progress and checksum speak of the same bytes.

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
mod status;

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use datapath::decode::CONTENT_CODINGS;
use datapath::error::SourceError;
use datapath::source::{Body, Source};
use http::header::AsHeaderName;
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;
use reqwest::Response;
use url::Url;

pub use self::agent::{Agent, Answer};
use self::client::Client;
pub use self::config::{Continuity, HttpConfig, USER_AGENT};
pub(crate) use self::config::{parse_endpoint, redacted};
pub use self::dialect::{Dialect, RefusedRequest, Verdict};
use self::download::Download;
pub use self::headers::{Header, parse_header, read_secret_headers};
use self::identity::{ContentRange, Identity};
use self::object::Object;
pub(crate) use self::promise::keeps_promise;
use self::status::passes_soon;
pub(crate) use self::status::{passes, status_text};
use super::address::printable;
use super::engine::{Remote, RemoteBody, check_range, collect};
use super::retry::{AttemptFailed, within};
use crate::error::invalid;

/// Longest wait for the answer that tells whether ranges work. A server that serves one connection at a
/// time cannot answer while the body is open; it is then simply read in order.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// An object on an HTTP server whose first response is open. All methods block; do not call them inside
/// an asynchronous task.
pub struct HttpSource {
    object: Arc<Object>,
    name: String,
    headers: HeaderMap,
    first: Mutex<Option<Response>>,
    is_ranged: OnceLock<bool>,
}

impl HttpSource {
    /// Sends the GET and checks its answer: status 200, a content encoding that can be undone.
    pub fn open(config: HttpConfig) -> Result<Self, SourceError> {
        let name = config.name.clone().unwrap_or_else(|| printable(&config.url));
        let client = Client::new(&config)?;
        let network = Arc::clone(&config.network);
        let answer = network.block_on(ask(&client));
        let (response, location) = answer.inspect_err(|error| tracing::debug!("{error}"))?;
        let identity = Identity::of(response.headers(), response.content_length());
        check_encoding(&identity)?;
        warn_about(&response, &identity);
        Ok(Self {
            object: Arc::new(Object::new(config, client, identity, location)),
            name,
            headers: response.headers().clone(),
            first: Mutex::new(Some(response)),
            is_ranged: OnceLock::new(),
        })
    }

    /// `Content-Type` of the answer.
    pub fn content_type(&self) -> Option<&str> {
        text(&self.headers, header::CONTENT_TYPE)
    }

    /// The head of the first answer.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The content coding that is still on the bytes; none for `identity`.
    pub fn content_encoding(&self) -> Option<&str> {
        self.object.identity.encoding()
    }

    /// Asks for one byte: what servers and caches announce is not always what they do.
    async fn probe(&self) -> Result<bool, SourceError> {
        let object = &self.object;
        let part = object.part(0, Some(1))?;
        let limit = PROBE_LIMIT.min(object.patience().idle_limit());
        let response = within(limit, object.get(Some(&part)))
            .await
            .map_err(AttemptFailed::into_error)?;
        let (answered, total) =
            ContentRange::of(response.headers()).map_or((None, None), |r| (r.part, r.total));
        let later = Identity::of(response.headers(), total);
        let is_part = response.status() == StatusCode::PARTIAL_CONTENT && answered == Some(0..1);
        Ok(is_part && object.check(&later).is_ok())
    }
}

impl Source for HttpSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn length(&self) -> Option<u64> {
        self.object.identity.length
    }

    /// Known length, a strong validator, and ranges that were seen to work (asked once, when first needed).
    fn is_ranged(&self) -> bool {
        let refused = text(&self.headers, header::ACCEPT_RANGES)
            .is_some_and(|units| !units.eq_ignore_ascii_case("bytes"));
        let object = &self.object;
        if refused || !object.is_recognizable() || object.identity.length.is_none_or(|length| length == 0) {
            return false;
        }
        *self.is_ranged.get_or_init(|| {
            object.network().block_on(self.probe()).unwrap_or_else(|error| {
                tracing::info!(cause = %error, "no ranges from this server");
                false
            })
        })
    }

    fn body(&self) -> Result<Box<dyn Body>, SourceError> {
        let first = self.first.lock().take();
        // Several connections and holes need ranges; for one connection, finding out can wait until an image needs them.
        let is_ranged = match self.object.connections() {
            1 if self.object.regions().is_none() => self.is_ranged.get().copied().unwrap_or(false),
            _ => self.is_ranged(),
        };
        Ok(Box::new(RemoteBody::new(
            Arc::clone(&self.object),
            first,
            is_ranged,
        )))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        check_range(&range, self.length().unwrap_or(0))?;
        let length = range.end - range.start;
        let mut download = Download::within(&self.object, range);
        let network = self.object.network();
        network.block_on(collect(length, async || download.next().await))
    }
}

/// The first request, tried again after what looks like a server that is just not there yet.
async fn ask(client: &Client) -> Result<(Response, Url), SourceError> {
    let network = client.network();
    let asked = network.first(passes_soon, async || {
        // No idle limit yet: a cache may fetch the whole object before it answers.
        let asked = within(network.patience.no_progress_limit, ask_once(client)).await;
        asked.map_err(|failed| client.name_silence(failed))
    });
    asked.await
}

async fn ask_once(client: &Client) -> Result<(Response, Url), AttemptFailed> {
    let (response, location) = client.get(client.start(), None).await?;
    match response.status() {
        StatusCode::OK => Ok((response, location)),
        status => Err(AttemptFailed::status(200, status, response.headers())),
    }
}

fn check_encoding(identity: &Identity) -> Result<(), SourceError> {
    match identity.encoding() {
        Some(coding) if !CONTENT_CODINGS.contains(&coding) => Err(invalid(format!(
            "the server answers with Content-Encoding {coding:?} although it was asked for the object as \
             it is: serve it without, or with one of {}",
            CONTENT_CODINGS.join(", ")
        ))),
        _ => Ok(()),
    }
}

/// The value of a header, if there is one and it is text.
pub(crate) fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn warn_about(response: &Response, identity: &Identity) {
    let content_type = text(response.headers(), header::CONTENT_TYPE);
    if let Some(content_type) = content_type.filter(|text| text.starts_with("text/")) {
        tracing::warn!("Unexpected content type '{content_type}'. Content might not be a KubeVirt image.");
    }
    if identity.length.is_none() && !response.headers().contains_key(header::TRANSFER_ENCODING) {
        tracing::warn!("the server announces no length: a transfer that breaks cannot be told from its end");
    }
}
