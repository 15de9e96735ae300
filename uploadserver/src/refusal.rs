//! Requests that the server rejects, and the responses to them.

use http::{HeaderValue, StatusCode, header};
use https::body::TooLarge;
use program::cdi::{CHECKSUM_HEADER, CONTENT_HEADER, ENCODING_HEADER, ZSTD};
use stream::options::FORMAT_HEADER;

use crate::checksum::AnnouncedChecksumError;
use crate::failure::UploadError;
use crate::form::FormError;
use crate::reply::{self, Reply};
use crate::representation::RepresentationError;
use crate::slot::SlotOccupied;
use crate::tus::{self, TusHeaderError};

/// Reasons why a request is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestRefusal {
    #[error("this path accepts only {0}: use POST or PUT to upload, such as `curl -T IMAGE`")]
    Method(&'static str),
    #[error(
        "this server accepts uploads only from one client, which must present its certificate: give --cert and --key"
    )]
    Client,
    #[error(transparent)]
    Occupied(#[from] SlotOccupied),
    #[error("upload not found: begin it again")]
    NoUpload,
    #[error("the previous request still holds the upload: try again in a moment")]
    Locked,
    #[error("the upload has failed: begin it again")]
    Gone,
    #[error(transparent)]
    Representation(#[from] RepresentationError),
    #[error(transparent)]
    Checksum(#[from] AnnouncedChecksumError),
    #[error(transparent)]
    Form(#[from] FormError),
    #[error(
        "this is a form (multipart/form-data): send it to upload-form, or the image by itself, such as `curl -T IMAGE`"
    )]
    FormOnPlainPath,
    #[error(transparent)]
    Tus(#[from] TusHeaderError),
    #[error("a clone in \"{0}\" is not supported: {ENCODING_HEADER} must be {ZSTD}")]
    CloneEncoding(String),
    #[error("{ENCODING_HEADER} is for clones, but {CONTENT_HEADER} does not announce one")]
    NoClone,
    #[error("{FORMAT_HEADER}: {0}")]
    Format(String),
    #[error("{FORMAT_HEADER} is for images of disks: leave it out for an archive or a clone")]
    NoImage,
    #[error("async clone not supported")]
    AsyncClone,
    /// zstd frames do not show whether more frames should follow, so only a checksum can prove
    /// that a clone is complete.
    #[error("a clone in {ZSTD} needs {CHECKSUM_HEADER}")]
    CloneChecksum,
    #[error("an upload of {0}")]
    TooLarge(#[from] TooLarge),
    #[error("Upload-Offset is {offset}, but {received} bytes were received")]
    WrongOffset { offset: u64, received: u64 },
    #[error("Upload-Length is {known} and cannot become {length}")]
    OtherLength { known: u64, length: u64 },
    #[error("Upload-Length is {length}, but {received} bytes were received")]
    TooShort { length: u64, received: u64 },
    #[error("Upload-Length is {length}, but these bytes would end at {end}")]
    TooMuch { length: u64, end: u64 },
    /// The upload failed before this request arrived. Contains the reason.
    #[error("{}", .0.sentence)]
    Failed(UploadError),
}

impl RequestRefusal {
    fn status(&self) -> StatusCode {
        match self {
            // The status is 404 instead of 405, as in CDI's own server (contract §2.4).
            Self::Method(_) | Self::NoUpload => StatusCode::NOT_FOUND,
            // CDI's server uses the same statuses: 401, 503 while it is busy, and 409 when it is
            // done (contract §2.4).
            Self::Client => StatusCode::UNAUTHORIZED,
            Self::Occupied(SlotOccupied::Busy) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Occupied(SlotOccupied::Done) | Self::WrongOffset { .. } => StatusCode::CONFLICT,
            Self::Locked => StatusCode::LOCKED,
            Self::Gone => StatusCode::GONE,
            // 410 tells a client to begin again. After a 5xx it would try to resume an upload that
            // no longer exists.
            Self::Failed(failure) if failure.status.is_server_error() => StatusCode::GONE,
            Self::Failed(failure) => failure.status,
            Self::Tus(TusHeaderError::Version) => StatusCode::PRECONDITION_FAILED,
            // RFC 9110 §15.5.16.
            Self::FormOnPlainPath
            | Self::Tus(TusHeaderError::ContentType)
            | Self::Representation(RepresentationError::Coding { .. }) => {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            }
            // RFC 9110 §15.5.14.
            Self::TooLarge(_)
            | Self::TooMuch { .. }
            | Self::Representation(RepresentationError::TooLarge(_)) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            // The client is at fault, but CDI's server answers 500 (contract §2.7).
            Self::AsyncClone => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns the response. It uses the wording of CDI's upload server, or plain text for
    /// resumable uploads, which CDI does not support.
    pub(crate) fn reply(&self, is_resumable: bool) -> Reply {
        let status = self.status();
        let mut reply = match self {
            Self::Occupied(occupied) => {
                tracing::warn!("{occupied}");
                reply::text_reply(status, format!("{}\n", occupied.advice()))
            }
            Self::Method(_) | Self::Client | Self::NoUpload | Self::Locked | Self::Gone => {
                reply::text_reply(status, format!("{self}\n"))
            }
            Self::Failed(failure) => {
                reply::failure_reply(&UploadError { status, ..failure.clone() })
            }
            _ if is_resumable => reply::text_reply(status, format!("{self}\n")),
            _ => {
                let failure = UploadError::new(status, self);
                tracing::error!("{}", failure.sentence);
                // Only the refusal of an asynchronous clone is CDI's own.
                let ends_line = !matches!(self, Self::AsyncClone);
                reply::failure_reply(&UploadError { ends_line, ..failure })
            }
        };
        let headers = reply.headers_mut();
        match self {
            Self::Method(allowed) => {
                headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
            }
            Self::Representation(RepresentationError::Coding { coded, .. }) => {
                headers.extend(coded.accept_encoding());
            }
            Self::Tus(TusHeaderError::Version) => {
                headers.insert(tus::TUS_VERSION, tus::VERSION);
            }
            Self::WrongOffset { received, .. } => {
                headers.insert(tus::UPLOAD_OFFSET, HeaderValue::from(*received));
            }
            _ => {}
        }
        reply
    }
}
