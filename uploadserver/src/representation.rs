//! Checks the headers that change the meaning of a body: a range, a content coding, or an
//! impossible length. Unsupported values are rejected before any of the body is read.

use codec::decode::CONTENT_CODINGS;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use https::body::{self, TooLarge};
use hyper::body::SizeHint;

/// The kind of body to which a `Content-Encoding` applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodingOwner {
    /// An image or an archive. The coding is recognized from the bytes, and decoded.
    Object,
    /// A form, a clone or a part of an object. No coding is decoded.
    Wrapped,
}

impl CodingOwner {
    /// Returns the supported content codings.
    fn understood(self) -> &'static [&'static str] {
        match self {
            Self::Object => &CONTENT_CODINGS,
            Self::Wrapped => &[],
        }
    }

    /// Returns the `Accept-Encoding` header with the supported codings, for a 415 response (RFC
    /// 9110 §15.5.16).
    pub(crate) fn accept_encoding(self) -> Option<(HeaderName, HeaderValue)> {
        let codings = [self.understood(), &["identity"]].concat().join(", ");
        Some((header::ACCEPT_ENCODING, codings.parse().ok()?))
    }
}

/// Reasons why a body is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RepresentationError {
    /// RFC 9110 §14.5: a part must not be treated as the whole.
    #[error(
        "Content-Range says that this is a part: send all of it at once, or its parts to {}",
        program::cdi::RESUMABLE
    )]
    Part,
    #[error("Content-Encoding {coding:?} is not supported: send it {}", instead(*coded))]
    Coding { coding: String, coded: CodingOwner },
    #[error("a body of {0}")]
    TooLarge(#[from] TooLarge),
}

fn instead(coded: CodingOwner) -> String {
    match coded.understood() {
        [] => "without any".to_owned(),
        codings => format!("without, or with one of {}", codings.join(", ")),
    }
}

/// Checks that the headers of a request describe its body unambiguously.
pub(crate) fn check(
    headers: &HeaderMap,
    body: &SizeHint,
    coded: CodingOwner,
) -> Result<(), RepresentationError> {
    body::check_length(body.lower())?;
    if headers.contains_key(header::CONTENT_RANGE) {
        return Err(RepresentationError::Part);
    }
    check_coding(headers, coded)
}

fn check_coding(headers: &HeaderMap, coded: CodingOwner) -> Result<(), RepresentationError> {
    for value in headers.get_all(header::CONTENT_ENCODING) {
        let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        for coding in text.split(',').map(str::trim) {
            let is_understood =
                ["", "identity"].contains(&coding) || coded.understood().contains(&coding);
            if !is_understood {
                let coding = coding.to_owned();
                return Err(RepresentationError::Coding { coding, coded });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(
        name: &'static str,
        value: &str,
        coded: CodingOwner,
    ) -> Result<(), RepresentationError> {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
        check(&headers, &SizeHint::with_exact(0), coded)
    }

    #[test]
    fn only_supported_content_codings_are_accepted() {
        for coding in
            ["", "identity", "gzip", "X-GZIP", "zstd, gzip", "gzip,identity , xz", "bzip2"]
        {
            assert_eq!(
                checked("content-encoding", coding, CodingOwner::Object),
                Ok(()),
                "{coding}"
            );
        }
        for coding in ["br", "gzip, br", "deflate", "aws-chunked", "snappy", "gz\u{e4}p"] {
            let refused = checked("content-encoding", coding, CodingOwner::Object).unwrap_err();
            let sentence = refused.to_string();
            assert!(sentence.ends_with("gzip, x-gzip, zstd, bzip2, xz"), "{sentence}");
        }
        let wrapped = checked("content-encoding", "gzip", CodingOwner::Wrapped).unwrap_err();
        let sentence = "Content-Encoding \"gzip\" is not supported: send it without any";
        assert_eq!(wrapped.to_string(), sentence);
    }
}
