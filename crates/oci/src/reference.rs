//! Endpoints: an image in a registry, in an archive or in a directory.
//!
//! The `Reference` of `oci-spec` has the same grammar (distribution's), but is not used: for
//! nearly every mistake it reports only "invalid reference format", where this parser says which
//! part is wrong, and it needs a regex engine and derive macros.

use std::fmt;
use std::path::PathBuf;

use fetch::error::invalid_error;
use stream::error::SourceError;

use super::digest::OciDigest;

/// The registry of names that do not contain one, and the host of its API, which has another name.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// Longest name with its registry, and longest tag, in bytes (reference grammar of distribution).
const MAX_NAME_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

/// An endpoint with its transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImageEndpoint {
    /// `docker://`: an image in a registry.
    Registry(ImageReference),
    /// `oci-archive:path[:image]`: a tar with an OCI layout.
    Archive(PathBuf, Option<String>),
    /// `oci:path[:image]`: a directory with an OCI layout.
    Directory(PathBuf, Option<String>),
}

impl ImageEndpoint {
    /// Parses `text`. The messages of errors are CDI's.
    pub(super) fn parse(text: &str) -> Result<Self, SourceError> {
        let (transport, rest) = text.split_once(':').ok_or_else(|| {
            parse_error(&format!(
                "Invalid image name \"{text}\", expected colon-separated transport:reference"
            ))
        })?;
        let layout = |kind: fn(PathBuf, Option<String>) -> Self| {
            // Split at the first colon, as in containers/image: a path with a colon cannot be
            // given.
            let (path, image) = match rest.split_once(':') {
                Some((path, image)) => (path, Some(image.to_owned())),
                None => (rest, None),
            };
            kind(path.into(), image.filter(|image| !image.is_empty()))
        };
        match transport {
            "docker" => match rest.strip_prefix("//") {
                Some(reference) => ImageReference::parse(reference).map(Self::Registry),
                None => Err(parse_error(&format!(
                    "Invalid image name \"{text}\", a registry's begins with docker://"
                ))),
            },
            "oci-archive" => Ok(layout(Self::Archive)),
            "oci" => Ok(layout(Self::Directory)),
            _ => Err(parse_error(&format!("Invalid image name \"{text}\", unknown transport"))),
        }
    }
}

/// An image in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageReference {
    /// Host and port as in the name; `docker.io` for a name without a registry.
    registry: String,
    /// The path below the registry; `library/` is added to short names of Docker Hub.
    pub(super) repository: String,
    /// The tag or digest of the image in the repository.
    pub(super) version: ImageVersion,
}

/// The choice of an image in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImageVersion {
    /// A tag, which may stand for different images over time.
    Tag(String),
    /// A digest, which always stands for the same bytes.
    Digest(OciDigest),
}

impl fmt::Display for ImageVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => f.write_str(tag),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = match self.version {
            ImageVersion::Tag(_) => ':',
            ImageVersion::Digest(_) => '@',
        };
        write!(f, "{}/{}{separator}{}", self.registry, self.repository, self.version)
    }
}

impl ImageReference {
    /// Parses `[registry/]repository[:tag | @digest]`, by the grammar of distribution.
    fn parse(text: &str) -> Result<Self, SourceError> {
        let invalid =
            |reason: &str| parse_error(&format!("invalid reference \"{text}\": {reason}"));
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let (name, tag) = match name.rsplit_once(':') {
            // A colon before the last slash belongs to the port of the registry.
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        let version = match (tag, digest) {
            (Some(_), Some(_)) => {
                return Err(invalid(
                    "a tag and a digest together are not supported, use one of them",
                ));
            }
            (None, Some(digest)) => ImageVersion::Digest(
                OciDigest::try_from(digest.to_owned()).map_err(|e| invalid(&e))?,
            ),
            (Some(tag), None) if is_tag(tag) => ImageVersion::Tag(tag.to_owned()),
            (Some(_), None) => {
                return Err(invalid("the tag has characters that no tag has, or too many"));
            }
            (None, None) => ImageVersion::Tag("latest".to_owned()),
        };
        let (registry, repository) = split_registry(name);
        if !is_registry(&registry) {
            return Err(invalid("the registry is not a host with or without a port"));
        }
        if !repository.split('/').all(is_component) {
            return Err(invalid(
                "the repository may have lower-case letters, digits, and one of . _ __ - between them",
            ));
        }
        if registry.len() + 1 + repository.len() > MAX_NAME_BYTES {
            return Err(invalid("the name has more than 255 characters"));
        }
        Ok(Self { registry, repository, version })
    }

    /// Returns the reference of the image with this digest in the same repository.
    pub(super) fn pin_digest(self, digest: OciDigest) -> String {
        format!("docker://{}", Self { version: ImageVersion::Digest(digest), ..self })
    }

    /// Returns host and port of the API.
    pub(super) fn api_host(&self) -> &str {
        if self.registry == DOCKER_HUB.0 { DOCKER_HUB.1 } else { &self.registry }
    }
}

/// Splits a name into registry and repository. The first component is a registry if it looks like
/// a host, which a repository of Docker Hub cannot.
fn split_registry(name: &str) -> (String, String) {
    let (docker_io, _) = DOCKER_HUB;
    let (registry, path) = match name.split_once('/') {
        Some(("index.docker.io", path)) => (docker_io, path),
        Some((first, path)) if first == "localhost" || first.contains(['.', ':']) => (first, path),
        Some((first, path)) if first.chars().any(|char| char.is_ascii_uppercase()) => (first, path),
        _ => (docker_io, name),
    };
    let is_short = registry == docker_io && !path.contains('/');
    let prefix = if is_short { "library/" } else { "" };
    (registry.to_owned(), format!("{prefix}{path}"))
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (registry, None),
    };
    let is_address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    (is_address || host.split('.').all(is_label))
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Matches `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`.
fn is_component(component: &str) -> bool {
    let is_alphanumeric = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit();
    let is_separator =
        |text: &str| matches!(text, "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    component.starts_with(is_alphanumeric)
        && component.ends_with(is_alphanumeric)
        && component
            .split(is_alphanumeric)
            .all(|between| between.is_empty() || is_separator(between))
}

/// Matches `[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}`.
fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= MAX_TAG_BYTES
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn parse_error(reason: &str) -> SourceError {
    invalid_error(format!("Could not parse image: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        match ImageEndpoint::parse(text) {
            Ok(ImageEndpoint::Registry(reference)) => {
                Ok(format!("{} {reference}", reference.api_host()))
            }
            Ok(other) => Ok(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn short_names_are_completed() {
        for (text, long) in [
            ("docker://fedora", "registry-1.docker.io docker.io/library/fedora:latest"),
            ("docker://index.docker.io/a/b:1", "registry-1.docker.io docker.io/a/b:1"),
            ("docker://kubevirt/cirros", "registry-1.docker.io docker.io/kubevirt/cirros:latest"),
            ("docker://quay.io/a/b__c/d-.-e", ""),
            ("docker://localhost/a", "localhost localhost/a:latest"),
            (
                "docker://cdi-registry:5000/a/b:v1.0-x_",
                "cdi-registry:5000 cdi-registry:5000/a/b:v1.0-x_",
            ),
            ("docker://[::1]:5000/a", "[::1]:5000 [::1]:5000/a:latest"),
            ("docker://Host/a", "Host Host/a:latest"),
        ] {
            assert_eq!(parse(text).unwrap_or_default(), long, "{text}");
        }
        let digest = format!("sha256:{}", "0a".repeat(32));
        let text = format!("docker://h:1/a@{digest}");
        assert_eq!(parse(&text), Ok(format!("h:1 h:1/a@{digest}")));
    }

    #[test]
    fn layouts_may_name_an_image() {
        let path = || PathBuf::from("/a/b");
        for (text, endpoint) in [
            ("oci-archive:/a/b", ImageEndpoint::Archive(path(), None)),
            ("oci-archive:/a/b:", ImageEndpoint::Archive(path(), None)),
            ("oci:/a/b:c:d", ImageEndpoint::Directory(path(), Some("c:d".to_owned()))),
        ] {
            assert_eq!(ImageEndpoint::parse(text).unwrap(), endpoint);
        }
    }

    #[test]
    fn refused_names_are_reported_with_the_messages_of_cdi() {
        let prefix = "Could not parse image: Invalid image name \"fedora\", ";
        let error = parse("fedora").unwrap_err();
        assert_eq!(error, format!("{prefix}expected colon-separated transport:reference"));
        let error = parse("http://x").unwrap_err();
        assert!(error.ends_with("Invalid image name \"http://x\", unknown transport"), "{error}");
        let both = format!("docker://h:1/a:tag@sha256:{}", "0".repeat(64));
        for text in [
            both.as_str(),
            "docker:a",
            "docker://",
            "docker://a//b",
            "docker://h:1/A",
            "docker://h:1/a:-",
            "docker://h:1/a:",
            "docker://h:1/a?b",
            "docker://h:1/a/../b",
            "docker://h:70000/a",
            "docker://u:p@h:1/a",
            "docker://-h.x/a",
            "docker://h:1/a@sha256:0",
            "docker://h:1/a@md5:900150983cd24fb0d6963f7d28e17f72",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("Could not parse image: "), "{error}");
        }
        let long = format!("docker://h:1/{}", "a".repeat(252));
        assert!(parse(&long).is_err() && parse(&long[..long.len() - 2]).is_ok());
    }
}
