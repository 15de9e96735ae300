//! The meaning of a request's headers, in both protocols: tus 1.0.0 (<https://tus.io/protocols/resumable-upload>) and
//! draft-ietf-httpbis-resumable-upload.

use datapath::disk::{MAX_MARKS, PrefixCrc};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use program::cdi::MARKS_HEADER;

pub(super) const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
pub(super) const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
pub(super) const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
pub(super) const UPLOAD_COMPLETE: HeaderName = HeaderName::from_static("upload-complete");

/// The version of tus.
pub(super) const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");

/// The content type of a part, in tus and in the draft.
const PARTS: [&str; 2] = ["application/offset+octet-stream", "application/partial-upload"];

/// A reason why a request makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestRefusal {
    pub(super) status: StatusCode,
    pub(super) words: String,
    /// Codings that would have been understood, if that is the reason.
    pub(super) accepted: Option<&'static [&'static str]>,
}

impl RequestRefusal {
    /// A refusal with status 400.
    pub(super) fn bad_request(words: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, words)
    }

    pub(super) fn new(status: StatusCode, words: impl Into<String>) -> Self {
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
}

/// The protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResumableDialect {
    Tus,
    /// tus in a version that is not defined yet, or no more.
    OtherTus,
    Draft,
}

impl ResumableDialect {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        match headers.get(TUS_RESUMABLE) {
            Some(version) if version == VERSION => Self::Tus,
            Some(_) => Self::OtherTus,
            None => Self::Draft,
        }
    }
}

/// The demands of a request that brings bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UploadRequest {
    pub(super) dialect: ResumableDialect,
    /// The offset of the bytes in the object.
    pub(super) offset: u64,
    /// Bytes of the whole upload, as far as this request says.
    pub(super) total: Option<u64>,
    /// True if no bytes come after those of this request.
    pub(super) is_last: bool,
}

impl UploadRequest {
    /// Reads the request that begins an upload.
    pub(super) fn creation(dialect: ResumableDialect, headers: &HeaderMap) -> Result<Self, RequestRefusal> {
        let asked = Self {
            dialect,
            offset: 0,
            total: number(headers, &UPLOAD_LENGTH)?,
            is_last: is_last(headers)?.unwrap_or(false),
        };
        match dialect {
            ResumableDialect::OtherTus => Err(RequestRefusal::other_version()),
            ResumableDialect::Tus if asked.total.is_none() => Err(RequestRefusal::bad_request(
                "Upload-Length is needed: a length that comes later is not supported",
            )),
            ResumableDialect::Draft if is_last(headers)?.is_none() => Err(RequestRefusal::bad_request(
                "Tus-Resumable: 1.0.0 with Upload-Length, or Upload-Complete, is needed to begin a resumable upload",
            )),
            ResumableDialect::Tus | ResumableDialect::Draft => Ok(asked),
        }
    }

    /// Reads a request that continues an upload.
    pub(super) fn continuation(
        dialect: ResumableDialect,
        headers: &HeaderMap,
    ) -> Result<Self, RequestRefusal> {
        if dialect == ResumableDialect::OtherTus {
            return Err(RequestRefusal::other_version());
        }
        let content_type = headers.get(header::CONTENT_TYPE);
        if !content_type.is_some_and(|value| PARTS.iter().any(|part| value == part)) {
            let words = format!("Content-Type must be {} or {}", PARTS[0], PARTS[1]);
            return Err(RequestRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, words));
        }
        let offset = number(headers, &UPLOAD_OFFSET)?;
        let offset = offset.ok_or_else(|| RequestRefusal::bad_request("Upload-Offset is needed"))?;
        Ok(Self {
            dialect,
            offset,
            total: None,
            is_last: is_last(headers)?.unwrap_or(false),
        })
    }
}

/// The marks of a disk that may be there in part. Its size has to be open: that of the stream is another one.
pub(super) fn marks(headers: &HeaderMap, asked: &UploadRequest) -> Result<Vec<PrefixCrc>, RequestRefusal> {
    let Some(value) = headers.get(MARKS_HEADER) else {
        return Ok(Vec::new());
    };
    let refused = |words: &str| RequestRefusal::bad_request(format!("{MARKS_HEADER}: {words}"));
    if asked.total.is_some() {
        return Err(refused("Upload-Length cannot be given with it"));
    }
    let text = value.to_str().map_err(|_| refused("it is not text"))?;
    let marks = text.split(',').map(|mark| mark.trim().parse::<PrefixCrc>());
    let marks: Vec<PrefixCrc> = marks
        .take(MAX_MARKS + 1)
        .collect::<Result<_, _>>()
        .map_err(|error| refused(&error.to_string()))?;
    if marks.len() > MAX_MARKS || !marks.is_sorted_by(|one, next| one.end_offset() < next.end_offset()) {
        return Err(refused(&format!(
            "there are {MAX_MARKS} at most, in ascending order"
        )));
    }
    Ok(marks)
}

/// A number of bytes, if there is one.
fn number(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, RequestRefusal> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let number = value
        .to_str()
        .ok()
        .filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match number.and_then(|text| text.parse().ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(RequestRefusal::bad_request(format!(
            "{name} must be a whole number of bytes"
        ))),
    }
}

/// A boolean of RFC 8941.
fn is_last(headers: &HeaderMap) -> Result<Option<bool>, RequestRefusal> {
    match headers.get(UPLOAD_COMPLETE).map(HeaderValue::as_bytes) {
        None => Ok(None),
        Some(b"?0") => Ok(Some(false)),
        Some(b"?1") => Ok(Some(true)),
        Some(_) => Err(RequestRefusal::bad_request("Upload-Complete must be ?0 or ?1")),
    }
}
