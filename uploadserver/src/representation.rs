//! Headers that would change the meaning of a body: a part, in a coding, of an impossible length. What is not understood
//! is refused before anything is taken.

use datapath::decode::CONTENT_CODINGS;
use http::{HeaderMap, Request, StatusCode, header};
use https::body::{self, TooLarge};
use hyper::body::Body;

use crate::failure::UploadError;

/// The owner of a `Content-Encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodingOwner {
    /// An image or archive: the coding is recognized by its bytes, and undone.
    Object,
    /// A form, a clone or a part of an object: no coding is undone.
    Wrapped,
}

impl CodingOwner {
    /// The codings that may be named.
    fn understood(self) -> &'static [&'static str] {
        match self {
            Self::Object => &CONTENT_CODINGS,
            Self::Wrapped => &[],
        }
    }
}

/// A reason why a body is not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RepresentationError {
    /// RFC 9110 §14.5: a part must not be taken for the whole.
    #[error(
        "Content-Range says that this is a part: send all of it at once, or its parts to {}",
        program::cdi::RESUMABLE
    )]
    Part,
    /// RFC 9110 §15.5.16.
    #[error("Content-Encoding {coding:?} is not understood here: send it {}", instead(*coded))]
    Coding { coding: String, coded: CodingOwner },
    /// RFC 9110 §15.5.14.
    #[error("a body of {0}")]
    TooLarge(#[from] TooLarge),
}

fn instead(coded: CodingOwner) -> String {
    match coded.understood() {
        [] => "without any".to_owned(),
        codings => format!("without, or with one of {}", codings.join(", ")),
    }
}

impl RepresentationError {
    /// The status for it.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Part => StatusCode::BAD_REQUEST,
            Self::Coding { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }

    /// Codings that the client may send instead, for `Accept-Encoding`.
    pub(crate) fn accepted(&self) -> Option<&'static [&'static str]> {
        match self {
            Self::Coding { coded, .. } => Some(coded.understood()),
            Self::Part | Self::TooLarge(_) => None,
        }
    }
}

impl From<RepresentationError> for UploadError {
    fn from(refused: RepresentationError) -> Self {
        Self {
            accepted: refused.accepted(),
            ..Self::new(refused.status(), refused)
        }
    }
}

/// Checks that the headers of `request` leave no doubt about its body.
pub(crate) fn check<B: Body>(request: &Request<B>, coded: CodingOwner) -> Result<(), RepresentationError> {
    body::check_body_size(request.body())?;
    if request.headers().contains_key(header::CONTENT_RANGE) {
        return Err(RepresentationError::Part);
    }
    check_coding(request.headers(), coded)
}

fn check_coding(headers: &HeaderMap, coded: CodingOwner) -> Result<(), RepresentationError> {
    for value in headers.get_all(header::CONTENT_ENCODING) {
        let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        for coding in text.split(',').map(str::trim) {
            let is_understood = ["", "identity"].contains(&coding) || coded.understood().contains(&coding);
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
    use http_body_util::Full;
    use hyper::body::Bytes;

    use super::*;

    fn checked(name: &str, value: &str, coded: CodingOwner) -> Result<(), (u16, String)> {
        let request = Request::post("/")
            .header(name, value)
            .body(Full::<Bytes>::default())
            .unwrap();
        check(&request, coded).map_err(|refused| (refused.status().as_u16(), refused.to_string()))
    }

    #[test]
    fn codings_that_are_undone_are_understood_and_no_others() {
        for coding in [
            "",
            "identity",
            "gzip",
            "X-GZIP",
            "zstd, gzip",
            "gzip,identity , xz",
            "bzip2",
        ] {
            assert_eq!(
                checked("content-encoding", coding, CodingOwner::Object),
                Ok(()),
                "{coding}"
            );
        }
        for coding in ["br", "gzip, br", "deflate", "aws-chunked", "snappy", "gz\u{e4}p"] {
            let (status, sentence) = checked("content-encoding", coding, CodingOwner::Object).unwrap_err();
            assert!(
                status == 415 && sentence.ends_with("gzip, x-gzip, zstd, bzip2, xz"),
                "{sentence}"
            );
        }
        let wrapped = checked("content-encoding", "gzip", CodingOwner::Wrapped);
        let sentence = "Content-Encoding \"gzip\" is not understood here: send it without any";
        assert_eq!(wrapped, Err((415, sentence.to_owned())));
    }

    #[test]
    fn a_part_is_not_the_whole() {
        for range in ["bytes 0-3/4", "bytes 0-3/*", "nonsense"] {
            assert_eq!(
                checked("content-range", range, CodingOwner::Object)
                    .unwrap_err()
                    .0,
                400,
                "{range}"
            );
        }
    }
}
