//! Words of servers, as they may be repeated in logs and errors.

use http::StatusCode;

/// Longest piece of a server's text that is repeated.
const MAX_CHARS: usize = 300;

/// A server's text: one line of bounded length.
pub(super) fn plain_line(text: &str) -> String {
    printable::escape_line(text, MAX_CHARS)
}

/// `404 Not Found`.
pub(super) fn status_text(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}
