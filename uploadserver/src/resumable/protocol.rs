//! The answers of both protocols, and what they refuse beside what the headers of their own say.

use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use https::body;
use hyper::body::Incoming;
use program::cdi::{KEPT_HEADER, KEPT_LATER, RESUMABLE};

use super::asked::{
    Asked, Dialect, Refused, TUS_RESUMABLE, UPLOAD_COMPLETE, UPLOAD_LENGTH, UPLOAD_OFFSET, VERSION,
};
use crate::failure::UploadFailed;
use crate::job::Job;
use crate::reply::{self, Reply};
use crate::representation::{self, Coded};

const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
const TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
const TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");

const EXTENSIONS: HeaderValue = HeaderValue::from_static("creation,creation-with-upload,termination");

/// The demands of a request that begins an upload.
pub(super) fn creation(dialect: Dialect, request: &Request<Incoming>) -> Result<Asked, Refused> {
    representation::check(request, Coded::Wrapped)?;
    let asked = Asked::creation(dialect, request.headers())?;
    if let Err(too_large) = body::check_length(asked.total.unwrap_or(0)) {
        let words = format!("an upload of {too_large}");
        return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, words));
    }
    Ok(asked)
}

/// The demands of a request that continues an upload.
pub(super) fn continuation(dialect: Dialect, request: &Request<Incoming>) -> Result<Asked, Refused> {
    representation::check(request, Coded::Wrapped)?;
    Asked::continuation(dialect, request.headers())
}

impl Refused {
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

impl Dialect {
    /// Marks a reply as one of this protocol.
    fn mark(self, mut reply: Reply) -> Reply {
        if self != Self::Draft {
            reply.headers_mut().insert(TUS_RESUMABLE, VERSION);
        }
        reply
    }
}

/// The answer to the question for the server's abilities.
pub(super) fn capabilities() -> Reply {
    let mut reply = Dialect::Tus.mark(reply::empty(StatusCode::NO_CONTENT));
    reply.headers_mut().insert(TUS_VERSION, VERSION);
    reply.headers_mut().insert(TUS_EXTENSION, EXTENSIONS);
    reply
        .headers_mut()
        .insert(TUS_MAX_SIZE, HeaderValue::from(body::MAX_BYTES));
    reply
}

/// The part of a disk that an earlier upload has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Everything before this offset, but for the first MiB; nothing if it is 0.
    Before(u64),
    /// It is still looked for.
    Later,
}

/// An answer that also says what is kept, if that was asked for.
pub(super) fn with_kept(mut reply: Reply, kept: Option<Kept>) -> Reply {
    let value = kept.map(|kept| match kept {
        Kept::Before(end) => HeaderValue::from(end),
        Kept::Later => HeaderValue::from_static(KEPT_LATER),
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
pub(super) fn failed_before(failure: &UploadFailed) -> Reply {
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
