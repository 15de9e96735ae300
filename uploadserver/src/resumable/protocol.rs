//! The headers of both protocols: tus 1.0.0 (<https://tus.io/protocols/resumable-upload>) and
//! draft-ietf-httpbis-resumable-upload.

use daemon::body;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use hyper::body::Incoming;

use crate::failure::Failure;
use crate::job::Job;
use crate::reply::{self, Reply};
use crate::representation::{self, Coded};
use crate::routes::RESUMABLE;

const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
const TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
const TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");
const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_COMPLETE: HeaderName = HeaderName::from_static("upload-complete");

const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");
const EXTENSIONS: HeaderValue = HeaderValue::from_static("creation,creation-with-upload,termination");

/// The content type of a part, in tus and in the draft.
const PARTS: [&str; 2] = ["application/offset+octet-stream", "application/partial-upload"];

/// Why a request makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    status: StatusCode,
    words: String,
    /// Codings that would have been understood, if that is the reason.
    accepted: Option<&'static [&'static str]>,
}

impl Refused {
    /// For these reasons.
    pub(super) fn bad_request(words: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, words)
    }

    fn new(status: StatusCode, words: impl Into<String>) -> Self {
        Self {
            status,
            words: words.into(),
            accepted: None,
        }
    }

    fn other_version() -> Self {
        let words = "only version 1.0.0 of tus is spoken here";
        Self::new(StatusCode::PRECONDITION_FAILED, words)
    }

    /// The answer.
    pub(super) fn reply(self) -> Reply {
        let mut reply = reply::text(self.status, self.words + "\n");
        if let Some(codings) = self.accepted {
            reply = reply::accepting(codings, reply);
        }
        if self.status == StatusCode::PRECONDITION_FAILED {
            reply.headers_mut().insert(TUS_VERSION, VERSION);
        }
        reply
    }
}

impl From<representation::Refused> for Refused {
    fn from(refused: representation::Refused) -> Self {
        Self {
            accepted: refused.accepted(),
            ..Self::new(refused.status(), refused.to_string())
        }
    }
}

/// Which protocol a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Tus,
    /// tus in a version that nobody has defined yet, or no more.
    OtherTus,
    Draft,
}

impl Dialect {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        match headers.get(TUS_RESUMABLE) {
            Some(version) if version == VERSION => Self::Tus,
            Some(_) => Self::OtherTus,
            None => Self::Draft,
        }
    }

    /// Marks a reply as one of this protocol.
    fn mark(self, mut reply: Reply) -> Reply {
        if self != Self::Draft {
            reply.headers_mut().insert(TUS_RESUMABLE, VERSION);
        }
        reply
    }
}

/// What a request that brings bytes asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) dialect: Dialect,
    /// Where the bytes belong.
    pub(super) offset: u64,
    /// Bytes of the whole upload, as far as this request says.
    pub(super) total: Option<u64>,
    /// No bytes come after these.
    pub(super) is_last: bool,
}

impl Asked {
    /// By the request that begins an upload.
    pub(super) fn creation(dialect: Dialect, request: &Request<Incoming>) -> Result<Self, Refused> {
        let headers = request.headers();
        let asked = Self {
            dialect,
            offset: 0,
            total: number(headers, &UPLOAD_LENGTH)?,
            is_last: is_last(headers)?.unwrap_or(false),
        };
        representation::check(request, Coded::Wrapped)?;
        if let Err(too_large) = body::check_length(asked.total.unwrap_or(0)) {
            let words = format!("an upload of {too_large}");
            return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, words));
        }
        match dialect {
            Dialect::OtherTus => Err(Refused::other_version()),
            Dialect::Tus if asked.total.is_none() => Err(Refused::bad_request(
                "Upload-Length is needed: a length that comes later is not supported",
            )),
            Dialect::Draft if is_last(headers)?.is_none() => Err(Refused::bad_request(
                "Tus-Resumable: 1.0.0 with Upload-Length, or Upload-Complete, is needed to begin a resumable upload",
            )),
            Dialect::Tus | Dialect::Draft => Ok(asked),
        }
    }

    /// By a request that continues one.
    pub(super) fn continuation(dialect: Dialect, request: &Request<Incoming>) -> Result<Self, Refused> {
        let headers = request.headers();
        if dialect == Dialect::OtherTus {
            return Err(Refused::other_version());
        }
        let content_type = headers.get(header::CONTENT_TYPE);
        if !content_type.is_some_and(|value| PARTS.iter().any(|part| value == part)) {
            let words = format!("Content-Type must be {} or {}", PARTS[0], PARTS[1]);
            return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, words));
        }
        representation::check(request, Coded::Wrapped)?;
        let offset = number(headers, &UPLOAD_OFFSET)?;
        let offset = offset.ok_or_else(|| Refused::bad_request("Upload-Offset is needed"))?;
        Ok(Self {
            dialect,
            offset,
            total: None,
            is_last: is_last(headers)?.unwrap_or(false),
        })
    }
}

/// A number of bytes, if there is one.
fn number(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, Refused> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let number = value
        .to_str()
        .ok()
        .filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match number.and_then(|text| text.parse().ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(Refused::bad_request(format!(
            "{name} must be a whole number of bytes"
        ))),
    }
}

/// A boolean of RFC 8941.
fn is_last(headers: &HeaderMap) -> Result<Option<bool>, Refused> {
    match headers.get(UPLOAD_COMPLETE).map(HeaderValue::as_bytes) {
        None => Ok(None),
        Some(b"?0") => Ok(Some(false)),
        Some(b"?1") => Ok(Some(true)),
        Some(_) => Err(Refused::bad_request("Upload-Complete must be ?0 or ?1")),
    }
}

/// What the server can, for whoever asks.
pub(super) fn capabilities() -> Reply {
    let mut reply = Dialect::Tus.mark(reply::empty(StatusCode::NO_CONTENT));
    reply.headers_mut().insert(TUS_VERSION, VERSION);
    reply.headers_mut().insert(TUS_EXTENSION, EXTENSIONS);
    reply
        .headers_mut()
        .insert(TUS_MAX_SIZE, HeaderValue::from(body::MAX_BYTES));
    reply
}

/// The answer to the beginning of an upload: a success tells where it goes on.
pub(super) fn created(mut reply: Reply, id: &str) -> Reply {
    if reply.status().is_success() {
        *reply.status_mut() = StatusCode::CREATED;
    }
    if let Ok(location) = HeaderValue::from_str(&format!("{RESUMABLE}/{id}")) {
        reply.headers_mut().insert(header::LOCATION, location);
    }
    reply
}

/// How far the upload is, for whoever asked.
pub(super) fn head(dialect: Dialect, job: &Job, is_complete: bool) -> Reply {
    let status = if dialect == Dialect::Draft {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::OK
    };
    with_offset(dialect, job, is_complete, reply::empty(status))
}

/// The bytes of a request were taken, and more have to come.
pub(super) fn taken(dialect: Dialect, job: &Job) -> Reply {
    with_offset(dialect, job, false, reply::empty(StatusCode::NO_CONTENT))
}

/// All bytes have come; `outcome` is the answer to that.
pub(super) fn completed(dialect: Dialect, job: &Job, mut outcome: Reply) -> Reply {
    if outcome.status() == StatusCode::OK {
        *outcome.status_mut() = StatusCode::NO_CONTENT;
    }
    with_offset(dialect, job, true, outcome)
}

fn with_offset(dialect: Dialect, job: &Job, is_complete: bool, mut reply: Reply) -> Reply {
    let headers = reply.headers_mut();
    headers.insert(UPLOAD_OFFSET, HeaderValue::from(job.progress.received()));
    if let Some(total) = job.progress.total {
        headers.insert(UPLOAD_LENGTH, HeaderValue::from(total));
    }
    if dialect == Dialect::Draft {
        let flag = if is_complete { "?1" } else { "?0" };
        headers.insert(UPLOAD_COMPLETE, HeaderValue::from_static(flag));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    dialect.mark(reply)
}

/// The bytes belong elsewhere.
pub(super) fn wrong_offset(asked: Asked, received: u64) -> Reply {
    let words = format!(
        "Upload-Offset is {}, but {received} bytes were received\n",
        asked.offset
    );
    let mut reply = reply::text(StatusCode::CONFLICT, words);
    let offset = HeaderValue::from(received);
    reply.headers_mut().insert(UPLOAD_OFFSET, offset);
    asked.dialect.mark(reply)
}

/// The upload has failed before this request: it is no more, and this is why.
pub(super) fn failed_before(failure: &Failure) -> Reply {
    let status = if failure.status.is_server_error() {
        StatusCode::GONE
    } else {
        failure.status
    };
    reply::text(status, failure.sentence.clone())
}

/// There are more bytes than the upload is to have.
pub(super) fn too_much(asked: Asked, end: u64, total: u64) -> Reply {
    let words = format!("Upload-Length is {total}, but these bytes would end at {end}\n");
    asked
        .dialect
        .mark(reply::text(StatusCode::PAYLOAD_TOO_LARGE, words))
}

/// The request before does not let go.
pub(super) fn locked(dialect: Dialect) -> Reply {
    dialect.mark(reply::empty(StatusCode::LOCKED))
}

/// The upload is no more.
pub(super) fn deleted(dialect: Dialect) -> Reply {
    dialect.mark(reply::empty(StatusCode::NO_CONTENT))
}
