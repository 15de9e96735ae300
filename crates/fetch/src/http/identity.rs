//! Identity of an object: its validators and its length, and whether two responses agree on them.

use std::ops::Range;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use stream::error::{SourceAdvice, SourceError, SourceErrorKind};

/// The identity of an object, as a response describes it.
#[derive(Debug, Clone)]
pub(super) struct ObjectIdentity {
    pub(super) length: Option<u64>,
    etag: Option<HeaderValue>,
    last_modified: Option<HeaderValue>,
    encoding: Option<String>,
    /// Name and value of the validator that can prove that two parts belong together. Only a
    /// strong validator can (RFC 9110 §13.1.5).
    pub(super) strong: Option<(HeaderName, HeaderValue)>,
}

impl ObjectIdentity {
    /// Reads the identity from the headers of a 200 or 206; `length` is the length of the whole
    /// object.
    pub(super) fn from_headers(headers: &HeaderMap, length: Option<u64>) -> Self {
        Self {
            length,
            etag: headers.get(header::ETAG).cloned(),
            last_modified: headers
                .get(header::LAST_MODIFIED)
                .filter(|_| modification_age(headers).is_none_or(|age| age >= DATE_PRECISION))
                .cloned(),
            encoding: content_encoding(headers),
            strong: strong_validator(headers),
        }
    }

    pub(super) fn encoding(&self) -> Option<&str> {
        self.encoding.as_deref()
    }

    /// True if the validator is an entity tag.
    pub(super) fn has_strong_etag(&self) -> bool {
        self.strong.as_ref().is_some_and(|(name, _)| *name == header::ETAG)
    }

    /// True if `later` carries the same validator that is sent in `If-Range`.
    pub(super) fn is_proven_by(&self, later: &HeaderMap) -> bool {
        self.strong.as_ref().is_some_and(|(name, value)| later.get(name) == Some(value))
    }

    /// Fails if `later` has a different length.
    pub(super) fn check_length(&self, later: &Self) -> Result<(), SourceError> {
        let text = |length: Option<u64>| length.map(|length| length.to_string());
        check_equal("length", text(self.length), text(later.length))
    }

    /// Fails if `later` has a different length or encoding.
    pub(super) fn check_form(&self, later: &Self) -> Result<(), SourceError> {
        self.check_length(later)?;
        let name = |identity: &Self| Some(identity.encoding().unwrap_or("identity").to_owned());
        check_equal("Content-Encoding", name(self), name(later))
    }

    /// Fails if `later` describes another object, or another version of it. A property that is
    /// missing in one of them is not compared. Dates are compared only if the entity tags cannot
    /// be.
    pub(super) fn check_unchanged(&self, later: &Self) -> Result<(), SourceError> {
        self.check_form(later)?;
        match (&self.etag, &later.etag) {
            (Some(was), Some(is)) => {
                check_equal("ETag", Some(opaque_tag(was)), Some(opaque_tag(is)))
            }
            _ => {
                let text = |value: &Option<HeaderValue>| value.as_ref().map(opaque_tag);
                check_equal("Last-Modified", text(&self.last_modified), text(&later.last_modified))
            }
        }
    }
}

/// Fails if both values of `fact` are known and differ.
fn check_equal(fact: &str, was: Option<String>, is: Option<String>) -> Result<(), SourceError> {
    match (was, is) {
        (Some(was), Some(is)) if was != is => Err(changed_error(fact, &was, &is)),
        _ => Ok(()),
    }
}

/// Returns the text of a validator. For a weak `ETag`, this is the part that is compared (RFC 9110
/// §8.8.3.2).
fn opaque_tag(validator: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(validator.as_bytes());
    text.strip_prefix("W/").unwrap_or(&text).to_owned()
}

/// Creates the error for an object that was replaced while it was read.
pub(super) fn changed_error(fact: &str, was: &str, is: &str) -> SourceError {
    let message = format!(
        "the object changed during the transfer: its {fact} was {} and is {} now. Start the import again",
        printable::escape_text(was),
        printable::escape_text(is)
    );
    SourceError::new(SourceErrorKind::Changed, message).with_advice(SourceAdvice::InMessage)
}

/// Precision of `Last-Modified` and `Date`. An object that is younger may change again without a
/// new date, and some servers state the time of the response as the time of the last change.
const DATE_PRECISION: Duration = Duration::from_secs(1);

/// Returns the time between `Last-Modified` and `Date`, if both are stated.
fn modification_age(headers: &HeaderMap) -> Option<Duration> {
    let time = |name| httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok();
    let last_modified = time(header::LAST_MODIFIED)?;
    Some(time(header::DATE)?.duration_since(last_modified).unwrap_or_default())
}

/// Returns a strong `ETag`, otherwise a `Last-Modified` that is strong in the sense of RFC 9110
/// §8.8.2.2: at least one second older than the `Date` of the same response, so that a second
/// change within that second cannot go unnoticed.
fn strong_validator(headers: &HeaderMap) -> Option<(HeaderName, HeaderValue)> {
    if let Some(etag) = headers.get(header::ETAG)
        && etag.as_bytes().starts_with(b"\"")
    {
        return Some((header::ETAG, etag.clone()));
    }
    let value = headers.get(header::LAST_MODIFIED)?.clone();
    (modification_age(headers)? >= DATE_PRECISION).then_some((header::LAST_MODIFIED, value))
}

/// Values of `Content-Encoding` that change no byte. Object stores replay `aws-chunked`, which
/// describes only how the object was uploaded; the others are mistakes in an object's metadata.
const WITHOUT_EFFECT: [&str; 9] =
    ["identity", "aws-chunked", "none", "binary", "7bit", "8bit", "us-ascii", "utf-8", "utf8"];

/// Returns `Content-Encoding` in lower case, with all lines joined; `None` if nothing is encoded.
fn content_encoding(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(header::CONTENT_ENCODING).iter();
    let text: Vec<String> =
        lines.map(|line| String::from_utf8_lossy(line.as_bytes()).to_lowercase()).collect();
    let codings: Vec<&str> = text
        .iter()
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !WITHOUT_EFFECT.contains(coding))
        .collect();
    (!codings.is_empty()).then(|| codings.join(", "))
}

/// A parsed `Content-Range` (RFC 9110 §14.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentRange {
    /// The range of the bytes that follow; `None` in a 416.
    pub part: Option<Range<u64>>,
    /// The length of the whole object; `None` if the server does not know it.
    pub total: Option<u64>,
}

impl ContentRange {
    /// Parses the header `Content-Range`; `None` if there is none, or it is malformed.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        Self::parse(headers.get(header::CONTENT_RANGE)?.to_str().ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let (unit, range) = text.trim().split_once(' ')?;
        // Names of units are case-insensitive (RFC 9110 §14.1).
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (part, total) = range.split_once('/')?;
        let total = match total {
            "*" => None,
            text => Some(parse_digits(text)?),
        };
        if part == "*" {
            return Some(Self { part: None, total });
        }
        let (first, last) = part.split_once('-')?;
        let (first, last) = (parse_digits(first)?, parse_digits(last)?);
        let end = last
            .checked_add(1)
            .filter(|end| first < *end && total.is_none_or(|total| *end <= total))?;
        Some(Self { part: Some(first..end), total })
    }
}

/// Parses decimal digits. Returns `None` for any other text and on overflow.
fn parse_digits(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    fn identity(pairs: &[(HeaderName, &'static str)], length: u64) -> ObjectIdentity {
        ObjectIdentity::from_headers(&headers(pairs), Some(length))
    }

    #[test]
    fn only_strong_validators_are_used() {
        const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        const SAME_SECOND: &str = MODIFIED;
        const SECOND_LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
        let (lm, date) = (header::LAST_MODIFIED, header::DATE);
        for (pairs, expected) in [
            (vec![(header::ETAG, "\"a\"")], Some("\"a\"")),
            (vec![(header::ETAG, "W/\"a\"")], None),
            (vec![(lm.clone(), MODIFIED)], None),
            (vec![(lm.clone(), MODIFIED), (date.clone(), SAME_SECOND)], None),
            (vec![(lm.clone(), MODIFIED), (date.clone(), SECOND_LATER)], Some(MODIFIED)),
            (vec![(header::ETAG, "W/\"a\""), (lm, MODIFIED), (date, SECOND_LATER)], Some(MODIFIED)),
        ] {
            let identity = identity(&pairs, 1);
            assert_eq!(
                identity.strong.as_ref().map(|(_, value)| value.to_str().unwrap()),
                expected,
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn a_difference_is_reported_with_both_values() {
        let first = identity(&[(header::ETAG, "\"a\"")], 100);
        assert!(first.check_unchanged(&identity(&[(header::ETAG, "\"a\"")], 100)).is_ok());
        assert!(
            first.check_unchanged(&ObjectIdentity::from_headers(&HeaderMap::new(), None)).is_ok()
        );
        for (later, words) in [
            (identity(&[(header::ETAG, "\"b\"")], 100), "ETag was \"a\" and is \"b\" now"),
            (identity(&[(header::ETAG, "\"a\"")], 99), "length was 100 and is 99 now"),
            (identity(&[(header::CONTENT_ENCODING, "gzip")], 100), "was identity and is gzip now"),
        ] {
            let error = first.check_unchanged(&later).unwrap_err();
            assert_eq!(error.kind(), SourceErrorKind::Changed);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn content_encodings_are_joined_and_those_without_effect_are_ignored() {
        for (value, expected) in [
            ("identity", None),
            ("aws-chunked", None),
            ("UTF-8", None),
            ("GZIP", Some("gzip")),
            ("aws-chunked,gzip", Some("gzip")),
            ("gzip , br", Some("gzip, br")),
        ] {
            let identity = identity(&[(header::CONTENT_ENCODING, value)], 1);
            assert_eq!(identity.encoding(), expected);
        }
    }

    #[test]
    fn content_ranges_are_parsed_strictly() {
        let parsed = |part, total| Some(ContentRange { part, total });
        for (text, expected) in [
            ("bytes 0-0/1", parsed(Some(0..1), Some(1))),
            ("bytes 5-9/10", parsed(Some(5..10), Some(10))),
            ("bytes 5-9/*", parsed(Some(5..10), None)),
            ("Bytes 5-9/10", parsed(Some(5..10), Some(10))),
            ("bytes */10", parsed(None, Some(10))),
            ("bytes 5-10/10", None),
            ("bytes 9-5/10", None),
            ("bytes 5-4/10", None),
            ("bytes 0-18446744073709551615/*", None),
            ("items 0-1/2", None),
            ("bytes -/", None),
            ("bytes +5-9/10", None),
            ("bytes 5-+9/10", None),
            ("bytes 5-9/+10", None),
        ] {
            assert_eq!(ContentRange::parse(text), expected, "{text}");
        }
    }
}
