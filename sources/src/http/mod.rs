//! HTTP and HTTPS: one GET decides everything, ranges and a validator make it resumable.
//!
//! ```text
//!  HttpSource ── open: GET ──► identity (length, validator) + the first response
//!     │                             │
//!     ├─ body() ─► HttpBody ─bridge─ Download ─► Client   one long read, resumed after each failure,
//!     │                                                   or segments over several connections
//!     └─ read_range() ────────────── Download ─► Client   short reads beside it, on other connections
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
mod promise;
mod pump;
mod regions;
mod segments;
mod status;

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use datapath::buffer::Pool;
use datapath::decode::CONTENT_CODINGS;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::{Body, Source};
use http::{HeaderMap, StatusCode, header};
use reqwest::Response;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use url::Url;

pub use self::agent::{Agent, Answer};
use self::body::{HttpBody, Surroundings, stopped};
use self::client::Client;
use self::config::printable;
pub use self::config::{Continuity, Credentials, HttpConfig, USER_AGENT};
pub(crate) use self::config::{origin, redacted};
pub use self::dialect::{BoxFuture, Dialect, Refusal, Verdict};
use self::download::{Download, Object};
pub use self::headers::{Header, parse_header, read_secret_headers};
use self::identity::{ContentRange, Identity};
pub(crate) use self::promise::keeps_promise;
pub use self::regions::Regions;
use self::status::passes_soon;
pub(crate) use self::status::status_text;
use super::retry::{Failure, Patience, within};

/// Longest wait for the answer that tells whether ranges work. A server that serves one connection at a
/// time cannot answer while the body is open; it is then simply read in order.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// Memory that is reserved at once for a range; more follows the bytes that really arrive.
const RESERVED_BYTES: u64 = 1 << 20;

/// An object on an HTTP server whose first response is open. All methods block; do not call them inside
/// an asynchronous task.
pub struct HttpSource {
    surroundings: Surroundings,
    name: String,
    headers: HeaderMap,
    first: Mutex<Option<Response>>,
    is_ranged: OnceLock<bool>,
}

impl HttpSource {
    /// Sends the GET on the runtime of `handle` and checks its answer: status 200, a content encoding that
    /// can be undone. `stop` ends every wait of this source, now and later.
    pub fn open(config: HttpConfig, handle: Handle, stop: CancellationToken) -> Result<Self, SourceError> {
        let name = config.name.clone().unwrap_or_else(|| printable(&config.url));
        let patience = Patience::of(&config);
        let (is_checked, continuity) = (config.is_checked, config.continuity);
        let (bridge_budget_bytes, connections) = (config.bridge_budget_bytes, config.connections);
        let regions = config.regions.clone();
        let client = Client::new(config)?;
        let asking = ask(&client, &patience);
        let answer = handle
            .block_on(stop.run_until_cancelled(asking))
            .unwrap_or_else(|| Err(stopped()));
        let (response, location) = answer.inspect_err(|error| tracing::debug!("{error}"))?;
        let identity = Identity::of(response.headers(), response.content_length());
        check_encoding(&identity)?;
        warn_about(&response, &identity);
        let headers = response.headers().clone();
        let object = Arc::new(Object {
            client,
            identity,
            location: Mutex::new(location),
            patience,
            is_checked,
            continuity,
        });
        Ok(Self {
            surroundings: Surroundings {
                object,
                handle,
                stop,
                bridge_budget_bytes,
                connections,
                pool: Pool::default(),
                regions,
            },
            name,
            headers,
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
        self.object().identity.encoding()
    }

    fn object(&self) -> &Object {
        &self.surroundings.object
    }

    fn block_on<T>(&self, work: impl Future<Output = Result<T, SourceError>>) -> Result<T, SourceError> {
        let Surroundings { handle, stop, .. } = &self.surroundings;
        handle
            .block_on(stop.run_until_cancelled(work))
            .unwrap_or_else(|| Err(stopped()))
    }

    /// Asks for one byte: what servers and caches announce is not always what they do.
    async fn probe(&self) -> Result<bool, SourceError> {
        let object = self.object();
        let part = object.part(0, Some(1))?;
        let limit = PROBE_LIMIT.min(object.patience.idle_limit);
        let response = within(limit, object.get(Some(&part)))
            .await
            .map_err(Failure::into_error)?;
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
        self.object().identity.length()
    }

    /// Known length, a strong validator, and ranges that were seen to work (asked once, when first needed).
    fn is_ranged(&self) -> bool {
        let refused = text(&self.headers, header::ACCEPT_RANGES)
            .is_some_and(|units| !units.eq_ignore_ascii_case("bytes"));
        let object = self.object();
        if refused || !object.is_recognizable() || object.identity.length().is_none_or(|length| length == 0) {
            return false;
        }
        *self.is_ranged.get_or_init(|| {
            self.block_on(self.probe()).unwrap_or_else(|error| {
                tracing::info!(cause = %error, "no ranges from this server");
                false
            })
        })
    }

    fn body(&self) -> Result<Box<dyn Body>, SourceError> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Several connections and holes need ranges; for one connection, finding out can wait until an image needs them.
        let is_ranged = match self.surroundings.connections.get() {
            1 if self.surroundings.regions.is_none() => self.is_ranged.get().copied().unwrap_or(false),
            _ => self.is_ranged(),
        };
        Ok(Box::new(HttpBody::new(
            self.surroundings.clone(),
            first,
            is_ranged,
        )))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let length = self.length().unwrap_or(0);
        if range.start > range.end || range.end > length {
            let message = format!(
                "bytes {} to {} are not within {length} bytes",
                range.start, range.end
            );
            return Err(SourceError::new(SourceErrorKind::Invalid, message));
        }
        self.block_on(collect(
            Download::within(self.object(), range.clone()),
            range.end - range.start,
        ))
    }
}

async fn collect(mut download: Download<'_>, length: u64) -> Result<Bytes, SourceError> {
    let Some(first) = download.next().await? else {
        return Ok(Bytes::new());
    };
    if first.len() as u64 == length {
        return Ok(first);
    }
    let mut bytes = BytesMut::with_capacity(usize::try_from(length.min(RESERVED_BYTES)).unwrap_or(0));
    bytes.extend_from_slice(&first);
    while let Some(chunk) = download.next().await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// The first request, tried again after what looks like a server that is just not there yet.
async fn ask(client: &Client, patience: &Patience) -> Result<(Response, Url), SourceError> {
    let attempts = patience.retries.map_or(patience.first_attempts, |retries| {
        patience.first_attempts.min(retries.saturating_add(1))
    });
    let mut attempt = 1;
    loop {
        // No idle limit yet: a cache may fetch the whole object before it answers.
        let asked = within(patience.no_progress_limit, ask_once(client)).await;
        match asked.map_err(|failure| client.name_silence(failure)) {
            Ok(answer) => return Ok(answer),
            Err(Failure::Transient { error, retry_after }) if attempt < attempts && passes_soon(&error) => {
                // 1 s and 2 s with the default of half a second.
                let pause = patience.first_delay.saturating_mul(1 << attempt);
                let asked = retry_after.unwrap_or_default();
                tracing::info!(attempt, cause = %error, "the source is not ready, trying again");
                tokio::time::sleep(pause.max(asked).min(patience.max_delay)).await;
                attempt += 1;
            }
            Err(failure) => return Err(failure.into_error()),
        }
    }
}

async fn ask_once(client: &Client) -> Result<(Response, Url), Failure> {
    let (response, location) = client.get(client.start(), None).await?;
    match response.status() {
        StatusCode::OK => Ok((response, location)),
        status => Err(Failure::status(200, status, response.headers())),
    }
}

fn check_encoding(identity: &Identity) -> Result<(), SourceError> {
    match identity.encoding() {
        Some(coding) if !CONTENT_CODINGS.contains(&coding) => {
            let message = format!(
                "the server answers with Content-Encoding {coding:?} although it was asked for the object as \
                 it is: serve it without, or with one of {}",
                CONTENT_CODINGS.join(", ")
            );
            Err(SourceError::new(SourceErrorKind::Invalid, message))
        }
        _ => Ok(()),
    }
}

/// The value of a header, if there is one and it is text.
fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn warn_about(response: &Response, identity: &Identity) {
    let content_type = text(response.headers(), header::CONTENT_TYPE);
    if let Some(content_type) = content_type.filter(|text| text.starts_with("text/")) {
        tracing::warn!("Unexpected content type '{content_type}'. Content might not be a KubeVirt image.");
    }
    if identity.length().is_none() && !response.headers().contains_key(header::TRANSFER_ENCODING) {
        tracing::warn!("the server announces no length: a transfer that breaks cannot be told from its end");
    }
}
