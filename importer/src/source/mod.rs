//! Where images come from: one module a kind of source, all behind [`datapath::source::Source`].

pub mod access;
pub mod file;
pub mod gcs;
pub mod http;
mod objects;
pub mod proxy;
pub mod s3;
pub mod verified;

use std::path::PathBuf;

use datapath::error::{SourceError, SourceErrorKind};
use url::Url;

/// What the SOURCE argument of the command line names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// An `http://` or `https://` URL, as text because its parser reports errors without secrets.
    Http(String),
    /// A path or a `file://` URL.
    File(PathBuf),
    /// `-`.
    Stdin,
}

impl Location {
    /// Tells the kinds apart. Whatever has no scheme is a path.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let invalid = |reason: String| SourceError::new(SourceErrorKind::Invalid, reason);
        let scheme = text
            .split_once("://")
            .map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            None if text == "-" => Ok(Self::Stdin),
            None if text.is_empty() => Err(invalid("the name of the source is empty".into())),
            None => Ok(Self::File(text.into())),
            Some("http" | "https") => Ok(Self::Http(text.to_owned())),
            Some("file") => {
                let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
                path.map(Self::File)
                    .ok_or_else(|| invalid(format!("{text} names no local file")))
            }
            // `/a/b://c` is an odd path, not a scheme.
            Some(other) if other.contains('/') => Ok(Self::File(text.into())),
            Some(other) => Err(invalid(format!(
                "sources of scheme {other} are not supported: use http, https, file, a path or -"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_told_apart() {
        for (text, expected) in [
            ("-", Location::Stdin),
            ("disk.img", Location::File("disk.img".into())),
            ("./-", Location::File("./-".into())),
            ("/a/b://c", Location::File("/a/b://c".into())),
            ("file:///a%20b/disk.img", Location::File("/a b/disk.img".into())),
            ("HTTP://host/disk", Location::Http("HTTP://host/disk".into())),
            ("https://host/disk", Location::Http("https://host/disk".into())),
        ] {
            assert_eq!(Location::parse(text).unwrap(), expected, "{text}");
        }
        for text in ["", "s3://bucket/disk", "file://host/disk"] {
            assert_eq!(
                Location::parse(text).unwrap_err().kind(),
                SourceErrorKind::Invalid,
                "{text}"
            );
        }
    }
}
