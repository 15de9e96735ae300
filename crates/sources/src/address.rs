//! Addresses as they may be printed.

use url::Url;

/// Longest path that is printed: a server may redirect to any.
const MAX_PATH_BYTES: usize = 512;

/// A URL as it may be printed: without user-info, query and fragment, where secrets live.
pub(crate) fn printable_url(url: &Url) -> String {
    // URLs are ASCII.
    match url.path().get(..MAX_PATH_BYTES) {
        Some(beginning) => format!("{}{beginning}…", url_origin(url)),
        None => format!("{}{}", url_origin(url), url.path()),
    }
}

/// `text` as a URL, of HTTP unless it says otherwise. Without `://`, `host:port` would parse as a URL of scheme `host`.
pub(crate) fn with_scheme(text: &str) -> String {
    if text.contains("://") { text.to_owned() } else { format!("http://{text}") }
}

/// Scheme, host and port of a URL, without the path: that of an image server is a secret too.
pub(crate) fn url_origin(url: &Url) -> String {
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
    fn nothing_secret_is_printed() {
        let url = Url::parse("https://u:secret@host:8443/disk.img?signature=secret#secret").unwrap();
        assert_eq!(printable_url(&url), "https://host:8443/disk.img");
    }
}
