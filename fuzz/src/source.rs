//! The parsers of the crate `sources` for what servers send.

pub(crate) mod error;
pub(crate) mod messages;
pub mod nbd;
pub(crate) mod retry;
pub(crate) mod xml;

/// HTTP.
pub mod http {
    mod identity;

    use std::ops::Range;

    use ::http::HeaderMap;

    use self::identity::ContentRange;

    /// Returns the part and the total length that `Content-Range` states, if it can be parsed.
    pub fn content_range(headers: &HeaderMap) -> Option<(Option<Range<u64>>, Option<u64>)> {
        ContentRange::from_headers(headers).map(|ContentRange { part, total }| (part, total))
    }
}

/// oVirt.
pub mod imageio {
    mod extents;

    use std::ops::Range;

    use datapath::error::SourceError;

    /// Returns the extents of a disk, and whether each reads as zeros.
    pub fn extents(text: &[u8]) -> Result<Vec<(Range<u64>, bool)>, SourceError> {
        let extents = extents::parse_extents(text)?;
        let runs = extents.iter().map(|extent| (extent.start..extent.end_offset(), extent.zero));
        Ok(runs.collect())
    }
}

/// Object stores.
pub mod objects {
    mod document;

    /// Returns the message and the region in a store's error document.
    pub fn store_error(body: &[u8]) -> Option<(String, String)> {
        document::StoreError::parse(body).map(|error| (error.error_message(), error.region))
    }
}

/// Registries.
pub mod registry {
    mod annotations;
    mod challenge;
    /// Signatures of images.
    pub mod cosign {
        mod bundle;
        mod flaw;
        mod simple;

        use self::flaw::SignatureFlaw;
        use super::digest::OciDigest;
        use super::manifest::OciDescriptor;
        use crate::publisher::PublisherKey;

        /// Returns whether `key` signs the image `digest` with a bundle.
        pub fn signs_with_bundle(
            key: &PublisherKey,
            digest: &str,
            document: &[u8],
        ) -> Result<bool, String> {
            let digest = OciDigest::try_from(digest.to_owned())?;
            bundle::check_signature(key, &digest, document).map_err(flaw_text)
        }

        /// Returns whether `key` signs the image `digest` with a payload, a layer with this
        /// descriptor.
        pub fn signs_with_payload(
            key: &PublisherKey,
            digest: &str,
            descriptor: &[u8],
            payload: &[u8],
        ) -> Result<bool, String> {
            let digest = OciDigest::try_from(digest.to_owned())?;
            let layer: OciDescriptor =
                serde_json::from_slice(descriptor).map_err(|error| error.to_string())?;
            simple::check_signature(key, &digest, &layer, payload).map_err(flaw_text)
        }

        fn flaw_text(flaw: SignatureFlaw) -> String {
            match flaw {
                SignatureFlaw::OtherSigner(text)
                | SignatureFlaw::Malformed(text)
                | SignatureFlaw::OtherImage(text) => text,
            }
        }
    }
    mod digest;
    mod manifest;
    mod platform;
    mod refusal;

    use ::http::HeaderMap;
    use bytes::Bytes;

    use self::challenge::AuthChallenge;
    use self::digest::OciDigest;
    use self::manifest::{ImageConfig, ParsedManifest, ServedManifest};
    use self::platform::WantedPlatforms;

    /// Returns the paths in a layout of everything that a manifest refers to: configuration and
    /// layers, or the one image in an index for `architecture`.
    pub fn manifest(
        text: &[u8],
        media_type: Option<&str>,
        architecture: &str,
    ) -> Result<Vec<String>, String> {
        let served = ServedManifest {
            digest: OciDigest::sha256_of(b"").map_err(|error| error.to_string())?,
            media_type: media_type.map(str::to_owned),
            bytes: Bytes::copy_from_slice(text),
        };
        let named = match ParsedManifest::parse(&served)? {
            ParsedManifest::Image { config, layers, .. } => [vec![config], layers].concat(),
            ParsedManifest::Index(index) => {
                vec![WantedPlatforms::new(Some(architecture)).choose_image(&index)?.clone()]
            }
        };
        Ok(named.iter().map(|descriptor| descriptor.digest.blob_path()).collect())
    }

    /// Returns the environment variables in an image's configuration.
    pub fn configuration(text: &[u8]) -> Result<Vec<String>, String> {
        ImageConfig::parse(text).map(|config| config.env_variables().to_owned())
    }

    /// Returns a registry's own text in an error.
    pub fn refusal(body: &[u8]) -> String {
        refusal::error_summary(body)
    }

    /// Returns the URL of the token service in a challenge.
    pub fn challenge(headers: &HeaderMap) -> Option<String> {
        match challenge::choose_challenge(headers)? {
            AuthChallenge::Basic => None,
            AuthChallenge::Bearer { realm, .. } => Some(realm),
        }
    }
}

/// vSphere.
pub mod vddk {
    mod answer;
    mod areas;

    use datapath::changes::ChangedRanges;
    use datapath::error::SourceError;
    use http::StatusCode;

    use crate::xml::XmlElement;

    /// Returns the changed ranges of a disk of `disk_bytes` according to the first page of a
    /// reply.
    pub fn changes(page: &[u8], disk_bytes: u64) -> Option<Result<ChangedRanges, SourceError>> {
        let page = XmlElement::parse(page).ok()?;
        let mut areas = areas::ChangedAreas::default();
        let added = areas.add_page(&page, 0, disk_bytes);
        Some(added.and_then(|_| areas.into_changes(disk_bytes)))
    }

    /// Returns the name of the object in the reply `envelope`.
    pub fn object(status: StatusCode, envelope: &[u8]) -> Result<Option<String>, SourceError> {
        let response = answer::parse_response("FindByUuid", status, envelope)?;
        answer::first_child(response)
            .map(|found| answer::ManagedObjectReference::from_name("VirtualMachine", &found.text))
            .transpose()
            .map(|object| object.map(|object| object.name))
    }
}

use self::xml::{XmlElement, escape_text};

/// Parses `document` and writes it again. Names that are not plain are replaced, because the
/// parser accepts some that cannot be written unchanged.
pub fn document(document: &[u8]) -> Result<String, String> {
    let root = XmlElement::parse(document).map_err(|error| error.to_string())?;
    let mut text = String::new();
    write(&root, &mut text);
    Ok(text)
}

fn write(element: &XmlElement, text: &mut String) {
    let is_plain =
        |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let name = Some(element.name.as_str()).filter(is_plain).unwrap_or("other");
    let id = element.id.as_deref().filter(is_plain);
    let id = id.map(|id| format!(" id=\"{id}\"")).unwrap_or_default();
    *text += &format!("<{name}{id}>{}", escape_text(&element.text));
    for child in &element.children {
        write(child, text);
    }
    *text += &format!("</{name}>");
}
