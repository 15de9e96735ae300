//! Words of servers, as they may be repeated in logs and errors.

/// Longest piece of a server's text that is repeated.
const MAX_CHARS: usize = 300;

/// A server's text: one line of bounded length.
pub(super) fn plain_line(text: &str) -> String {
    printable::escape_line(text, MAX_CHARS)
}
