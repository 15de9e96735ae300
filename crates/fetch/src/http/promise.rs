//! Integrity of `https` imports: the bytes must not be changed between the server and the
//! importer.

use stream::error::SourceError;
use url::Url;

use crate::address::url_origin;
use crate::error::invalid_error;

/// Checks whether `url` may be requested for an import that began at `start`.
///
/// The author of an `https` URL relies on TLS for the integrity of the image, even if the server
/// redirects. A single hop without TLS, anywhere in the chain, lets anyone on the path send
/// another image. A digest that was given with the import (`is_checked`) restores integrity.
/// Without a digest the request is refused, in pods too: a disk from an unknown sender is worse
/// than none, and the author can put the checksum, or an `http` URL, into the DataVolume.
pub fn keeps_promise(
    start: &Url,
    url: &Url,
    is_checked: bool,
) -> Result<IntegrityGuarantee, SourceError> {
    if start.scheme() != "https" || url.scheme() == "https" {
        return Ok(IntegrityGuarantee::Kept);
    }
    // The paths are left out, because the paths of image servers may be secrets.
    let (from, to) = (url_origin(start), url_origin(url));
    if is_checked {
        return Ok(IntegrityGuarantee::LeftToDigest { from, to });
    }
    Err(invalid_error(format!(
        "{from} leads to {to}, without TLS, where anybody on the path could replace the image: give its checksum (for a container \
         image, its digest), or begin with an http URL"
    )))
}

/// The guarantee for the integrity of a response.
#[derive(Debug, PartialEq, Eq)]
pub enum IntegrityGuarantee {
    /// TLS; or no guarantee at all, if the import began without TLS.
    Kept,
    /// The digest that was given with the import, because this request is sent without TLS.
    LeftToDigest { from: String, to: String },
}

impl IntegrityGuarantee {
    /// Logs a warning if TLS no longer protects the bytes.
    pub fn warn_downgrade(&self) {
        if let Self::LeftToDigest { from, to } = self {
            tracing::warn!(
                "{from} leads to {to}, without TLS: only the checksum protects the image"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_may_lose_tls_only_if_a_checksum_is_given() {
        let check = |start: &str, to: &str, is_checked| {
            let url = |text: &str| Url::parse(text).unwrap();
            keeps_promise(&url(start), &url(to), is_checked)
        };
        for (start, to) in [
            ("https://a/x", "https://b/y"),
            ("http://a/x", "http://b/y"),
            ("http://a/x", "https://b/y"),
        ] {
            assert_eq!(check(start, to, false).unwrap(), IntegrityGuarantee::Kept, "{start} {to}");
        }
        let error =
            check("https://u:pw@a/x?secret", "http://b:81/ticket", false).unwrap_err().to_string();
        assert!(error.starts_with("https://a leads to http://b:81, without TLS"), "{error}");
        assert!(matches!(
            check("https://a/x", "http://127.0.0.1/y", true).unwrap(),
            IntegrityGuarantee::LeftToDigest { .. }
        ));
    }
}
