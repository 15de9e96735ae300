//! The meaning of a request's headers in tus 1.0.0 (<https://tus.io/protocols/resumable-upload>).

use datapath::disk::{MAX_MARKS, PrefixCrc};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use program::cdi::MARKS_HEADER;

pub(super) const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
pub(super) const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
pub(super) const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
pub(super) const UPLOAD_DEFER_LENGTH: HeaderName = HeaderName::from_static("upload-defer-length");

/// The version of tus.
pub(super) const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");

/// The one value of `Upload-Defer-Length`.
pub(super) const DEFERRED: HeaderValue = HeaderValue::from_static("1");

/// The content type of a part.
const PART: &str = "application/offset+octet-stream";

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
}

/// The demands of a request that brings bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UploadRequest {
    /// The offset of the bytes in the object.
    pub(super) offset: u64,
    /// Bytes of the whole upload, if this request says.
    pub(super) total: Option<u64>,
}

impl UploadRequest {
    /// Reads the request that begins an upload.
    pub(super) fn creation(headers: &HeaderMap) -> Result<Self, RequestRefusal> {
        if !headers.contains_key(TUS_RESUMABLE) {
            // Not 412: kubectl-cdi 0.1.0 speaks another protocol, and sends all in one request when it sees this.
            let words = "Tus-Resumable: 1.0.0 is needed to begin a resumable upload";
            return Err(RequestRefusal::new(StatusCode::NOT_FOUND, words));
        }
        check_version(headers)?;
        let total = number(headers, &UPLOAD_LENGTH)?;
        let deferred = headers.get(UPLOAD_DEFER_LENGTH);
        if deferred.is_some_and(|value| value != DEFERRED) || deferred.is_some() == total.is_some() {
            return Err(RequestRefusal::bad_request(
                "Upload-Length is needed, or Upload-Defer-Length: 1",
            ));
        }
        Ok(Self { offset: 0, total })
    }

    /// Reads a request that continues an upload.
    pub(super) fn continuation(headers: &HeaderMap) -> Result<Self, RequestRefusal> {
        check_version(headers)?;
        if headers
            .get(header::CONTENT_TYPE)
            .is_none_or(|value| value != PART)
        {
            let words = format!("Content-Type must be {PART}");
            return Err(RequestRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, words));
        }
        let offset = number(headers, &UPLOAD_OFFSET)?;
        Ok(Self {
            offset: offset.ok_or_else(|| RequestRefusal::bad_request("Upload-Offset is needed"))?,
            total: number(headers, &UPLOAD_LENGTH)?,
        })
    }
}

/// Refuses other versions of tus, and none.
pub(super) fn check_version(headers: &HeaderMap) -> Result<(), RequestRefusal> {
    if headers.get(TUS_RESUMABLE) == Some(&VERSION) {
        return Ok(());
    }
    let words = "only version 1.0.0 of tus is spoken here";
    Err(RequestRefusal::new(StatusCode::PRECONDITION_FAILED, words))
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
