//! Statuses and errors that make a retry worthwhile.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use stream::error::{SourceError, SourceErrorKind};

use crate::messages::status_text;
use crate::retry::AttemptError;

impl AttemptError {
    /// Creates the failure for a response with an unexpected status. Overload and failures behind
    /// a gateway are transient (RFC 9110 §15.5.9, §15.6; 429: RFC 6585 §4); every other status is
    /// final.
    pub(super) fn from_status(expected: u16, status: StatusCode, headers: &HeaderMap) -> Self {
        let code = status.as_u16();
        let message =
            format!("expected status code {expected}, got {code}. Status: {}", status_text(status));
        let error = SourceError::new(SourceErrorKind::Status(code), message);
        Self::from_response(error, is_transient_status(status), headers)
    }

    /// Creates the failure for a response that means `error`. A retry may help if it is
    /// `transient`.
    pub(super) fn from_response(error: SourceError, transient: bool, headers: &HeaderMap) -> Self {
        if transient {
            Self::Transient { error, retry_after: retry_after_now(headers) }
        } else {
            Self::Final(error)
        }
    }

    /// Creates the failure for the error of an auxiliary request, such as one for a token.
    pub(super) fn from_error(error: SourceError) -> Self {
        use SourceErrorKind::{Connect, Io, Stalled, Status, UnknownHost};
        let transient = match error.kind() {
            Connect | UnknownHost | Io | Stalled => true,
            Status(code) => StatusCode::from_u16(code).is_ok_and(is_transient_status),
            _ => false,
        };
        Self::from_response(error, transient, &HeaderMap::new())
    }
}

/// True for the statuses of overload and of failures behind a gateway.
pub fn is_transient_status(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

/// Returns the pause that the server asks for, counted from now.
fn retry_after_now(headers: &HeaderMap) -> Option<Duration> {
    retry_after(headers, SystemTime::now())
}

/// Parses `Retry-After`, which contains seconds or a date (RFC 9110 §10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_statuses_are_told_from_permanent_ones() {
        for (code, passes) in
            [(404, false), (403, false), (408, true), (429, true), (500, true), (503, true)]
        {
            let status = StatusCode::from_u16(code).unwrap();
            let failure = AttemptError::from_status(206, status, &HeaderMap::new());
            assert_eq!(matches!(failure, AttemptError::Transient { .. }), passes, "{code}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, expected) in [
            ("7", Some(7)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:07 GMT", None),
            ("soon", None),
        ] {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(retry_after(&headers, now), expected.map(Duration::from_secs), "{text}");
        }
    }
}
