//! The name by which a publisher lists an image: the last segment of its address.

use fetch::http::redact_endpoint;
use fetch::scheme::{SourceKind, find_scheme};
use percent_encoding::percent_decode_str;
use url::Url;

use super::EvidenceError;

/// Returns the name of the image at `address`, which `option` needs.
pub fn require_name(address: &str, option: &str) -> Result<String, EvidenceError> {
    image_name(address).ok_or_else(|| {
        let address = redact_endpoint(address);
        EvidenceError::Usage(format!(
            "{option} is for an image with a file name, which {address} does not have: name a file, or use http(s) or an object store"
        ))
    })
}

/// Returns the name of the image at `address`, a URL or a path. `None` if it has no name, or if it
/// is of a kind that no list of checksums describes, such as a container image.
fn image_name(address: &str) -> Option<String> {
    if address == "-" || address.starts_with("oci:") || address.starts_with("oci-archive:") {
        return None;
    }
    let kind = address
        .split_once("://")
        .and_then(|(scheme, _)| find_scheme(&scheme.to_ascii_lowercase()))
        .map(|scheme| scheme.kind);
    match kind {
        Some(SourceKind::Http | SourceKind::File) => {
            Url::parse(address).ok().and_then(|url| location_name(&url))
        }
        Some(kind) if !kind.is_object_store() => None,
        _ => {
            let name = address.rsplit('/').next().unwrap_or(address);
            (!name.is_empty()).then(|| name.to_owned())
        }
    }
}

/// Returns the last segment of the path of `url`.
pub fn location_name(url: &Url) -> Option<String> {
    let segment = url.path_segments()?.next_back().filter(|segment| !segment.is_empty())?;
    percent_decode_str(segment).decode_utf8().ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_last_segment() {
        for (address, name) in [
            ("https://h/a/disk.img?token=/x", Some("disk.img")),
            ("HTTP://h/a%20b%2Bc", Some("a b+c")),
            ("https://h/a/", None),
            ("https://h", None),
            ("/images/disk.img", Some("disk.img")),
            ("disk.img", Some("disk.img")),
            ("file:///a/b%20c", Some("b c")),
            ("s3://bucket/a/disk.img", Some("disk.img")),
            ("images/", None),
            ("-", None),
            ("docker://h/a:1", None),
            ("oci:layout:1", None),
            ("nbd://h/export", None),
        ] {
            assert_eq!(image_name(address).as_deref(), name, "{address}");
        }
        let error = require_name("https://u:secret@h/?secret", "--x").unwrap_err().to_string();
        assert!(error.contains("which h/ does not have"), "{error}");
    }
}
