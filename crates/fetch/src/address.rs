//! Formatting of URLs for logs and error messages.

use url::Url;

/// Longest path that is printed, in bytes. A server may redirect to a path of any length.
const MAX_PATH_BYTES: usize = 512;

/// Formats `url` for logs and errors: without user-info, query and fragment, which may contain
/// secrets.
pub(crate) fn printable_url(url: &Url) -> String {
    // A serialised URL is ASCII, so the cut is always at a character boundary.
    match url.path().get(..MAX_PATH_BYTES) {
        Some(beginning) => format!("{}{beginning}…", url_origin(url)),
        None => format!("{}{}", url_origin(url), url.path()),
    }
}

/// Adds `http://` to `text` unless it has a scheme. Without `://`, `host:port` would parse as a
/// URL whose scheme is `host`.
pub fn with_scheme(text: &str) -> String {
    if text.contains("://") { text.to_owned() } else { format!("http://{text}") }
}

/// Returns scheme, host and port of a URL. The path is left out, because the paths of image
/// servers may be secrets too.
pub fn url_origin(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_a_url_are_not_printed() {
        let url =
            Url::parse("https://u:secret@host:8443/disk.img?signature=secret#secret").unwrap();
        assert_eq!(printable_url(&url), "https://host:8443/disk.img");
    }
}
