//! The headers of tus 1.0.0 (<https://tus.io/protocols/resumable-upload>), and our own additional
//! headers.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use program::cdi::MARKS_HEADER;
use stream::marks::{MAX_MARKS, parse_mark};
use stream::prefix_crc::PrefixCrc;

pub(crate) const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
pub(crate) const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
pub(crate) const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
pub(crate) const UPLOAD_DEFER_LENGTH: HeaderName = HeaderName::from_static("upload-defer-length");

/// Response header that lists the supported versions of tus.
pub(crate) const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");

/// The supported version of tus.
pub(crate) const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");

/// The only valid value of `Upload-Defer-Length`.
pub(crate) const DEFERRED: HeaderValue = HeaderValue::from_static("1");

/// The content type for a part of an upload.
const PART: &str = "application/offset+octet-stream";

/// Reasons why the tus headers of a request are rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TusHeaderError {
    #[error("Tus-Resumable: 1.0.0 is needed, the only version of tus that is supported")]
    Version,
    #[error("Content-Type must be {PART}")]
    ContentType,
    #[error("Upload-Length is needed, or Upload-Defer-Length: 1")]
    NoLength,
    #[error("Upload-Offset is needed")]
    NoOffset,
    #[error("{0} must be a whole number of bytes")]
    Number(HeaderName),
    #[error("{MARKS_HEADER}: {0}")]
    Marks(String),
}

/// Rejects requests that name no version of tus, or an unsupported one.
pub(crate) fn check_version(headers: &HeaderMap) -> Result<(), TusHeaderError> {
    if headers.get(TUS_RESUMABLE) != Some(&VERSION) {
        return Err(TusHeaderError::Version);
    }
    Ok(())
}

/// Returns the length of the upload that a request creates, or `None` if the length will be sent
/// later.
pub fn length_at_creation(headers: &HeaderMap) -> Result<Option<u64>, TusHeaderError> {
    check_version(headers)?;
    let length = number(headers, &UPLOAD_LENGTH)?;
    match (length, headers.get(UPLOAD_DEFER_LENGTH)) {
        (None, Some(deferred)) if deferred == DEFERRED => Ok(None),
        (Some(length), None) => Ok(Some(length)),
        _ => Err(TusHeaderError::NoLength),
    }
}

/// Returns the offset of the bytes that continue an upload, and the length of the upload if this
/// request contains it.
pub fn offset_and_length(headers: &HeaderMap) -> Result<(u64, Option<u64>), TusHeaderError> {
    check_version(headers)?;
    if headers.get(header::CONTENT_TYPE).is_none_or(|value| value != PART) {
        return Err(TusHeaderError::ContentType);
    }
    let offset = number(headers, &UPLOAD_OFFSET)?.ok_or(TusHeaderError::NoOffset)?;
    Ok((offset, number(headers, &UPLOAD_LENGTH)?))
}

/// Returns the prefix checksums of a disk that may already exist in part. The request must not
/// state a length, because the length of the stream differs from the size of the disk.
pub fn marks(headers: &HeaderMap, length: Option<u64>) -> Result<Vec<PrefixCrc>, TusHeaderError> {
    let refused = |reason: &str| TusHeaderError::Marks(reason.to_owned());
    let Some(value) = headers.get(MARKS_HEADER) else {
        return Ok(Vec::new());
    };
    if length.is_some() {
        return Err(refused("Upload-Length cannot be given with it"));
    }
    let text = value.to_str().map_err(|_| refused("it is not text"))?;
    let marks = text.split(',').map(|mark| parse_mark(mark.trim()));
    let marks: Vec<PrefixCrc> =
        // To reject a header, one checksum more than the limit is enough, however long the header
        // is.
        marks.take(MAX_MARKS + 1).collect::<Result<_, _>>().map_err(|error| refused(&error.to_string()))?;
    if marks.len() > MAX_MARKS
        || !marks.is_sorted_by(|one, next| one.end_offset() < next.end_offset())
    {
        return Err(refused(&format!("expected at most {MAX_MARKS}, in ascending order")));
    }
    Ok(marks)
}

/// Parses the number of bytes in a header, if it is present. Signs are rejected, although `parse`
/// accepts a plus sign.
fn number(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, TusHeaderError> {
    let digits = |text: &&str| text.bytes().all(|b| b.is_ascii_digit());
    let parse = |value: &HeaderValue| value.to_str().ok().filter(digits)?.parse().ok();
    let number = headers.get(name).map(parse);
    number.map(|number| number.ok_or_else(|| TusHeaderError::Number(name.clone()))).transpose()
}
