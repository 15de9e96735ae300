//! Text from servers, made safe for logs and errors.

use http::StatusCode;

/// Longest server text that is repeated, in characters.
const MAX_CHARS: usize = 300;

/// Escapes a server's text to one line of limited length.
pub fn plain_line(text: &str) -> String {
    printable::escape_line(text, MAX_CHARS)
}

/// Lists the first `most` of `names`, as in `a, b and 3 more`.
pub fn list_names(names: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let listed = names.take(most).collect::<Vec<_>>().join(", ");
    match more {
        0 if listed.is_empty() => "none".to_owned(),
        0 => listed,
        _ => format!("{listed} and {more} more"),
    }
}

/// Formats a status as `404 Not Found`.
pub fn status_text(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}
