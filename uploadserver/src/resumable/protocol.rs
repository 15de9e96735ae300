//! The answers of tus, and what is refused beside what its own headers say.

use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use https::body;
use hyper::body::Incoming;
use program::cdi::{KEPT_HEADER, KEPT_LATER, RESUMABLE};

use super::asked::{
    DEFERRED, RequestRefusal, TUS_RESUMABLE, UPLOAD_DEFER_LENGTH, UPLOAD_LENGTH, UPLOAD_OFFSET,
    UploadRequest, VERSION,
};
use crate::failure::UploadError;
use crate::job::UploadJob;
use crate::reply::{self, Reply};
use crate::representation::{self, CodingOwner};

const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
const TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
const TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");

const EXTENSIONS: HeaderValue =
    HeaderValue::from_static("creation,creation-with-upload,creation-defer-length,termination");

/// The demands of a request that begins an upload.
pub(super) fn creation(request: &Request<Incoming>) -> Result<UploadRequest, RequestRefusal> {
    representation::check(request, CodingOwner::Wrapped)?;
    UploadRequest::creation(request.headers())?.check_length()
}

/// The demands of a request that continues an upload.
pub(super) fn continuation(request: &Request<Incoming>) -> Result<UploadRequest, RequestRefusal> {
    representation::check(request, CodingOwner::Wrapped)?;
    UploadRequest::continuation(request.headers())?.check_length()
}

impl UploadRequest {
    fn check_length(self) -> Result<Self, RequestRefusal> {
        if let Err(too_large) = body::check_length(self.total.unwrap_or(0)) {
            let words = format!("an upload of {too_large}");
            return Err(RequestRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, words));
        }
        Ok(self)
    }

    /// Bytes of the whole upload, of which so many are `known` before this request and so many `received`; the request's own bytes would
    /// end at `end`.
    pub(super) fn total_with(
        self,
        known: Option<u64>,
        received: u64,
        end: u64,
    ) -> Result<Option<u64>, RequestRefusal> {
        match (known, self.total) {
            (Some(known), Some(total)) if total != known => Err(RequestRefusal::bad_request(format!(
                "Upload-Length is {known} and cannot become {total}"
            ))),
            (_, Some(total)) if total < received => Err(RequestRefusal::bad_request(format!(
                "Upload-Length is {total}, but {received} bytes were received"
            ))),
            (known, stated) => match known.or(stated) {
                Some(total) if total < end => Err(RequestRefusal::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!("Upload-Length is {total}, but these bytes would end at {end}"),
                )),
                total => Ok(total),
            },
        }
    }
}

impl RequestRefusal {
    /// The answer.
    pub(super) fn reply(self) -> Reply {
        let mut reply = reply::text_reply(self.status, self.words + "\n");
        if let Some(codings) = self.accepted {
            reply = reply::with_accept_encoding(codings, reply);
        }
        if self.status == StatusCode::PRECONDITION_FAILED {
            reply.headers_mut().insert(TUS_VERSION, VERSION);
        }
        mark(reply)
    }
}

impl From<representation::RepresentationError> for RequestRefusal {
    fn from(refused: representation::RepresentationError) -> Self {
        Self {
            accepted: refused.accepted(),
            ..Self::new(refused.status(), refused.to_string())
        }
    }
}

/// Marks a reply as one of tus.
fn mark(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(TUS_RESUMABLE, VERSION);
    reply
}

/// The answer to the question for the server's abilities.
pub(super) fn capabilities() -> Reply {
    let mut reply = mark(reply::empty_reply(StatusCode::NO_CONTENT));
    reply.headers_mut().insert(TUS_VERSION, VERSION);
    reply.headers_mut().insert(TUS_EXTENSION, EXTENSIONS);
    reply
        .headers_mut()
        .insert(TUS_MAX_SIZE, HeaderValue::from(body::MAX_BYTES));
    reply
}

/// The part of a disk that an earlier upload has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptState {
    /// Everything before this offset, but for the first MiB; nothing if it is 0.
    Before(u64),
    /// It is still looked for.
    Later,
}

/// An answer that also says what is kept, if that was asked for.
pub(super) fn with_kept(mut reply: Reply, kept: Option<KeptState>) -> Reply {
    let value = kept.map(|kept| match kept {
        KeptState::Before(end) => HeaderValue::from(end),
        KeptState::Later => HeaderValue::from_static(KEPT_LATER),
    });
    if let Some(value) = value {
        reply
            .headers_mut()
            .insert(HeaderName::from_static(KEPT_HEADER), value);
    }
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

/// The answer to the question how far the upload is.
pub(super) fn head(job: &UploadJob) -> Reply {
    with_offset(job, reply::empty_reply(StatusCode::OK))
}

/// The bytes of a request were taken, and more have to come.
pub(super) fn taken(job: &UploadJob) -> Reply {
    with_offset(job, reply::empty_reply(StatusCode::NO_CONTENT))
}

/// All bytes have come; `outcome` is the answer to that.
pub(super) fn completed(job: &UploadJob, mut outcome: Reply) -> Reply {
    if outcome.status() == StatusCode::OK {
        *outcome.status_mut() = StatusCode::NO_CONTENT;
    }
    with_offset(job, outcome)
}

fn with_offset(job: &UploadJob, mut reply: Reply) -> Reply {
    let headers = reply.headers_mut();
    headers.insert(UPLOAD_OFFSET, HeaderValue::from(job.progress.received_bytes()));
    match job.progress.total_bytes() {
        Some(total) => headers.insert(UPLOAD_LENGTH, HeaderValue::from(total)),
        None => headers.insert(UPLOAD_DEFER_LENGTH, DEFERRED),
    };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    mark(reply)
}

/// The bytes belong elsewhere.
pub(super) fn wrong_offset(asked: UploadRequest, received: u64) -> Reply {
    let words = format!(
        "Upload-Offset is {}, but {received} bytes were received\n",
        asked.offset
    );
    let mut reply = reply::text_reply(StatusCode::CONFLICT, words);
    let offset = HeaderValue::from(received);
    reply.headers_mut().insert(UPLOAD_OFFSET, offset);
    mark(reply)
}

/// The upload has failed before this request: it is no more, and this is why.
pub(super) fn failed_before(failure: &UploadError) -> Reply {
    let status = if failure.status.is_server_error() {
        StatusCode::GONE
    } else {
        failure.status
    };
    reply::text_reply(status, failure.sentence.clone())
}

/// The request before does not let go.
pub(super) fn locked() -> Reply {
    mark(reply::empty_reply(StatusCode::LOCKED))
}

/// The upload is no more.
pub(super) fn deleted() -> Reply {
    mark(reply::empty_reply(StatusCode::NO_CONTENT))
}
