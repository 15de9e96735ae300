//! The documents of an image: manifest, index and configuration (OCI image specification 1.1,
//! Docker image manifest version 2 schema 2).
//!
//! The types of `oci-spec` are not used. The types here also read Docker's documents, give advice
//! about documents that are rejected (schema 1), and keep only the parts of a document that the
//! import needs.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::annotations::OciAnnotations;
use super::digest::OciDigest;

/// Maximum size of a manifest or index: the size that registries accept (distribution
/// specification, "Pushing Manifests").
pub(super) const MAX_MANIFEST_BYTES: usize = 4 << 20;

/// Maximum number of layers of an image. Storage drivers mount at most 500. Some tools split a disk
/// into layers of 512 MiB, of which this number holds 512 GiB.
const MAX_LAYERS: usize = 1024;

/// Maximum size of a configuration, which holds the history of all layers.
pub(super) const MAX_CONFIG_BYTES: usize = 8 << 20;

const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Media type of an index (OCI image specification 1.1).
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of a manifest (OCI image specification 1.1).
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

/// The content of a blob that an artifact has only because a manifest must name one (OCI image
/// specification, "Guidance for an Empty Descriptor").
const EMPTY_DOCUMENT: &str = "{}";

/// Digests of layers without files, which builders create for steps that change none: 1024 zeros,
/// uncompressed and as gzipped by Docker.
const EMPTY_LAYERS: [&str; 2] = [
    "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
    "sha256:a3ed95caeb02ffe68cdd9fd84406680ae93d633cb16422d00e8a7c22955b46d4",
];

/// Annotation with the name of an image in a layout (OCI image layout specification, "index.json
/// file").
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Accepted media types, in CDI's order. Schema 1 is among them so that it can be rejected with an
/// explanation.
pub(super) const ACCEPTED: [&str; 6] = [
    OCI_MANIFEST,
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
    "application/vnd.docker.distribution.manifest.v1+json",
    DOCKER_LIST,
    OCI_INDEX,
];

/// The digest of a blob, and further information about it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OciDescriptor {
    /// Media type of the blob.
    #[serde(default)]
    pub(super) media_type: String,
    /// Digest of the blob.
    pub digest: OciDigest,
    /// Size of the blob in bytes.
    pub(super) size: u64,
    /// In an index: the platform that the image is made for.
    #[serde(default)]
    pub(super) platform: Option<ImagePlatform>,
    /// In an index: the type of the artifact, if it is not a container image.
    #[serde(default)]
    pub(super) artifact_type: Option<String>,
    /// Annotations of the blob.
    #[serde(default)]
    pub(super) annotations: Option<OciAnnotations>,
}

/// The platform of an image, in Go's terms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ImagePlatform {
    /// Architecture: `amd64`, `arm64`, …
    #[serde(default)]
    pub(super) architecture: String,
    /// Operating system: `linux`
    #[serde(default)]
    pub(super) os: String,
    /// Variant of the architecture: `v7`, …; empty if there is only one.
    #[serde(default)]
    pub(super) variant: String,
}

impl OciDescriptor {
    /// Returns the value of the annotation `key`.
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key)
    }

    /// Returns the name of an image in a layout.
    pub(super) fn ref_name(&self) -> Option<&str> {
        self.annotation(REF_NAME)
    }

    /// True if this is the descriptor of a container image's configuration. Artifacts have a
    /// configuration of another type, or the empty document, in its place.
    pub(super) fn is_image_config(&self) -> bool {
        let is_known = matches!(self.media_type.as_str(), OCI_CONFIG | DOCKER_CONFIG | "");
        is_known && !self.is_empty_document()
    }

    /// True for a blob that exists only because a manifest must name one.
    pub(super) fn is_empty_document(&self) -> bool {
        self.size <= EMPTY_DOCUMENT.len() as u64
    }

    /// True for a layer without files.
    pub(super) fn is_empty_layer(&self) -> bool {
        self.size == 0 || EMPTY_LAYERS.contains(&self.digest.to_string().as_str())
    }
}

/// A manifest as it was served.
#[derive(Debug, Clone)]
pub struct ServedManifest {
    /// Digest of the document.
    pub digest: OciDigest,
    /// Media type that the server announces.
    pub media_type: Option<String>,
    /// The document.
    pub bytes: Bytes,
}

/// A parsed manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedManifest {
    /// A single image.
    Image(ImageManifest),
    /// Images for several platforms.
    Index(ImageIndex),
}

/// A single image or artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageManifest {
    /// The type of the artifact, if the manifest states one.
    pub(super) artifact_type: Option<String>,
    /// The configuration of the image.
    pub config: OciDescriptor,
    /// The layers of the image, the lowest first.
    pub layers: Vec<OciDescriptor>,
}

/// Images for several platforms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageIndex {
    /// The name of the format: OCI and Docker have different ones.
    pub(super) kind: &'static str,
    /// The manifests of the images.
    pub(super) manifests: Vec<OciDescriptor>,
}

/// The fields of any kind of manifest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestDocument {
    schema_version: Option<u64>,
    media_type: Option<String>,
    artifact_type: Option<String>,
    config: Option<OciDescriptor>,
    layers: Option<Vec<OciDescriptor>>,
    manifests: Option<Vec<OciDescriptor>>,
    fs_layers: Option<IgnoredAny>,
}

impl ParsedManifest {
    /// Determines by its content what kind of manifest `served` is, because the media type is not
    /// always correct.
    pub fn parse(served: &ServedManifest) -> Result<Self, String> {
        let document: ManifestDocument = serde_json::from_slice(&served.bytes)
            .map_err(|error| format!("the manifest cannot be read: {error}"))?;
        if document.fs_layers.is_some() || document.schema_version == Some(1) {
            return Err(
                "the image has a manifest of schema 1, which is not protected by digests; push it again with a current tool"
                    .to_owned(),
            );
        }
        let media_type = document.media_type.as_deref().or(served.media_type.as_deref());
        match (document.manifests, document.config, document.layers) {
            (Some(manifests), None, None) => {
                let kind = match media_type {
                    Some(DOCKER_LIST) => "manifest list",
                    _ => "image index",
                };
                Ok(Self::Index(ImageIndex { kind, manifests }))
            }
            (None, Some(_), Some(layers)) if layers.len() > MAX_LAYERS => Err(format!(
                "the manifest has {} layers, at most {MAX_LAYERS} are supported",
                layers.len()
            )),
            (None, Some(config), Some(layers)) => {
                let artifact_type = document.artifact_type;
                Ok(Self::Image(ImageManifest { artifact_type, config, layers }))
            }
            // Two readers could take it for two different images (CVE-2021-41190).
            (Some(_), _, _) => {
                Err("the manifest describes both a single image and an index of images".to_owned())
            }
            (None, _, _) => Err(format!(
                "the manifest ({}) has neither layers nor images",
                media_type.unwrap_or("without a media type")
            )),
        }
    }
}

/// The part of an image's configuration that the importer uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ImageConfig {
    #[serde(default)]
    pub(super) architecture: String,
    #[serde(default)]
    config: Option<ContainerConfig>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct ContainerConfig {
    #[serde(rename = "Env", default)]
    env: Option<Vec<String>>,
    #[serde(rename = "Labels", default)]
    labels: Option<ImageLabels>,
}

/// The labels that the importer uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct ImageLabels {
    #[serde(rename = "containers.bootc")]
    bootc: Option<String>,
    #[serde(rename = "ostree.bootable")]
    ostree: Option<String>,
}

impl ImageConfig {
    /// Parses the configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes)
            .map_err(|error| format!("the image's configuration cannot be read: {error}"))
    }

    /// Returns the environment variables of the image's containers, `NAME=value` each.
    pub(super) fn env_variables(&self) -> &[String] {
        let container = self.config.as_ref();
        container.and_then(|container| container.env.as_deref()).unwrap_or_default()
    }

    /// True for an operating system that boots from its container image (bootc).
    pub(super) fn is_bootc(&self) -> bool {
        let container = self.config.as_ref();
        let labels = container.and_then(|container| container.labels.as_ref());
        let is_set = |label: &Option<String>| label.as_deref() == Some("1");
        labels.is_some_and(|ImageLabels { bootc, ostree }| is_set(bootc) || is_set(ostree))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl OciDescriptor {
        /// Creates a descriptor of `bytes`.
        pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
            Self {
                media_type: String::new(),
                digest: OciDigest::sha256_of(bytes).unwrap(),
                size: bytes.len() as u64,
                platform: None,
                artifact_type: None,
                annotations: None,
            }
        }
    }

    fn parse(text: &str, media_type: Option<&str>) -> Result<ParsedManifest, String> {
        ParsedManifest::parse(&ServedManifest {
            digest: OciDigest::sha256_of(text.as_bytes()).unwrap(),
            media_type: media_type.map(str::to_owned),
            bytes: text.to_owned().into(),
        })
    }

    fn descriptor() -> String {
        format!(r#"{{"mediaType":"x","size":3,"digest":"sha256:{}"}}"#, "0".repeat(64))
    }

    #[test]
    fn a_manifest_is_recognised_by_its_content() {
        let one = descriptor();
        let image = format!(r#"{{"schemaVersion":2,"config":{one},"layers":[{one}]}}"#);
        assert!(
            matches!(parse(&image, None), Ok(ParsedManifest::Image(image)) if image.layers.len() == 1)
        );
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{one}]}}"#);
        for (media_type, expected) in [
            (Some(DOCKER_LIST), "manifest list"),
            (Some(OCI_INDEX), "image index"),
            (None, "image index"),
        ] {
            assert!(
                matches!(parse(&index, media_type), Ok(ParsedManifest::Index(index)) if index.kind == expected)
            );
        }
    }

    #[test]
    fn outdated_and_invalid_manifests_are_refused() {
        let one = descriptor();
        let both = format!(r#"{{"manifests":[{one}],"config":{one},"layers":[]}}"#);
        let negative = one.replace('3', "-3");
        let config = format!(r#"{{"config":{negative},"layers":[]}}"#);
        for (text, reason) in [
            (r#"{"schemaVersion":1,"fsLayers":[],"history":[]}"#, "schema 1"),
            (&both, "both a single image"),
            ("{}", "neither"),
            (r#"{"config":{"digest":"sha256:../x","size":1},"layers":[]}"#, "is not a SHA-256"),
            (&negative.replace("\"mediaType\"", "\"x\""), "neither"),
            (&config, "cannot be read"),
            ("<html>", "cannot be read"),
        ] {
            let error = parse(text, None).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn there_are_only_so_many_layers() {
        let one = descriptor();
        let manifest = |layers: usize| {
            let layers = vec![one.as_str(); layers].join(",");
            parse(&format!(r#"{{"config":{one},"layers":[{layers}]}}"#), None)
        };
        assert!(manifest(MAX_LAYERS).is_ok());
        let error = manifest(10_000).unwrap_err();
        assert_eq!(error, "the manifest has 10000 layers, at most 1024 are supported");
    }

    #[test]
    fn configurations_of_artifacts_are_told_from_those_of_images() {
        for (media_type, size, is_image) in [
            (OCI_CONFIG, 3, true),
            (DOCKER_CONFIG, 200, true),
            ("", 200, true),
            (OCI_CONFIG, 2, false),
            ("application/vnd.oci.empty.v1+json", 2, false),
            ("application/vnd.unknown.config.v1+json", 200, false),
        ] {
            let config = OciDescriptor {
                media_type: media_type.to_owned(),
                size,
                ..OciDescriptor::from_bytes(b"")
            };
            assert_eq!(config.is_image_config(), is_image, "{media_type}");
        }
    }

    #[test]
    fn configurations_may_lack_most_fields() {
        assert_eq!(ImageConfig::parse(b"{}").unwrap(), ImageConfig::default());
        let config =
            ImageConfig::parse(br#"{"config":{"Env":null,"Labels":{"ostree.bootable":"1"}}}"#)
                .unwrap();
        assert!(config.is_bootc() && config.env_variables().is_empty());
        let config =
            ImageConfig::parse(br#"{"config":{"Env":["A=b"],"Labels":{"containers.bootc":"0"}}}"#)
                .unwrap();
        assert!(!config.is_bootc());
        assert_eq!(config.env_variables(), ["A=b"]);
    }
}
