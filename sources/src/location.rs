//! What the SOURCE argument of the command line names.

use std::path::PathBuf;

use datapath::error::{SourceError, SourceErrorKind};
use url::Url;

/// A place that an image is read from. Networked ones are kept as text: their parsers report errors without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// An `http://` or `https://` URL.
    Http(String),
    /// `s3://bucket/key`.
    S3(String),
    /// `gs://bucket/object`.
    Gcs(String),
    /// `docker://…`, `oci-archive:…` or `oci:…`.
    Registry(String),
    /// `nbd://…`, `nbds://…`, `nbd+unix://…` or `nbds+unix://…`.
    Nbd(String),
    /// `ovirt+https://engine/ovirt-engine/api/disks/ID`.
    Ovirt(String),
    /// A path or a `file://` URL.
    File(PathBuf),
    /// `-`.
    Stdin,
}

impl Location {
    /// Tells the kinds apart. Whatever has no scheme is a path.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let invalid = |reason: String| SourceError::new(SourceErrorKind::Invalid, reason);
        if text.starts_with("oci:") || text.starts_with("oci-archive:") {
            return Ok(Self::Registry(text.to_owned()));
        }
        let scheme = text
            .split_once("://")
            .map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            None if text == "-" => Ok(Self::Stdin),
            None if text.is_empty() => Err(invalid("the name of the source is empty".into())),
            None => Ok(Self::File(text.into())),
            Some("http" | "https") => Ok(Self::Http(text.to_owned())),
            Some("s3") => Ok(Self::S3(text.to_owned())),
            Some("gs") => Ok(Self::Gcs(text.to_owned())),
            Some("docker") => Ok(Self::Registry(text.to_owned())),
            Some("nbd" | "nbds" | "nbd+unix" | "nbds+unix") => Ok(Self::Nbd(text.to_owned())),
            Some("ovirt+http" | "ovirt+https") => Ok(Self::Ovirt(text.to_owned())),
            Some("file") => {
                let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
                path.map(Self::File)
                    .ok_or_else(|| invalid(format!("{text} names no local file")))
            }
            // `/a/b://c` is an odd path, not a scheme.
            Some(other) if other.contains('/') => Ok(Self::File(text.into())),
            Some(other) => Err(invalid(format!(
                "sources of scheme {other} are not supported: use http, https, s3, gs, docker, oci, oci-archive, nbd, \
                 ovirt+https, file, a path or -"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_told_apart() {
        let text = |text: &str| text.to_owned();
        for (location, expected) in [
            ("-", Location::Stdin),
            ("disk.img", Location::File("disk.img".into())),
            ("./-", Location::File("./-".into())),
            ("/a/b://c", Location::File("/a/b://c".into())),
            ("./oci:x", Location::File("./oci:x".into())),
            ("file:///a%20b/disk.img", Location::File("/a b/disk.img".into())),
            ("HTTP://host/disk", Location::Http(text("HTTP://host/disk"))),
            ("https://host/disk", Location::Http(text("https://host/disk"))),
            ("s3://bucket/disk", Location::S3(text("s3://bucket/disk"))),
            ("gs://bucket/disk", Location::Gcs(text("gs://bucket/disk"))),
            ("docker://host/a:b", Location::Registry(text("docker://host/a:b"))),
            ("oci:dir:tag", Location::Registry(text("oci:dir:tag"))),
            ("oci-archive:x.tar", Location::Registry(text("oci-archive:x.tar"))),
            ("nbd://host/export", Location::Nbd(text("nbd://host/export"))),
            (
                "nbd+unix:///?socket=/s",
                Location::Nbd(text("nbd+unix:///?socket=/s")),
            ),
            (
                "ovirt+https://e/api/disks/1",
                Location::Ovirt(text("ovirt+https://e/api/disks/1")),
            ),
        ] {
            assert_eq!(Location::parse(location).unwrap(), expected, "{location}");
        }
        for text in ["", "ftp://host/disk", "file://host/disk"] {
            assert_eq!(
                Location::parse(text).unwrap_err().kind(),
                SourceErrorKind::Invalid,
                "{text}"
            );
        }
    }
}
