//! Selects one layer of an artifact that holds several disks.

use std::fmt;
use std::str::FromStr;

use super::digest::OciDigest;
use super::manifest::OciDescriptor;

/// Annotation with the name of a disk, which KubeVirt's export writes.
pub const DISK_NAME: &str = "io.kubevirt.disk.name";

/// Annotation with the name of a file (OCI image specification, "Pre-Defined Annotation Keys"). It
/// may be a path, so it is only compared and displayed, and never opened.
pub const TITLE: &str = "org.opencontainers.image.title";

/// A user's choice of a layer of an image or artifact, or of an image in an index.
///
/// ```
/// use oci::LayerSelector;
///
/// for text in ["rootdisk", "disktype=qemu", "io.kubevirt.disk.name=rootdisk"] {
///     let selector: LayerSelector = text.parse()?;
///     assert_eq!(selector.to_string(), text);
/// }
/// assert!("sha256:short".parse::<LayerSelector>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerSelector(WantedLayer);

#[derive(Debug, Clone, PartialEq, Eq)]
enum WantedLayer {
    Digest(OciDigest),
    Annotation { key: String, value: String },
    Name(String),
}

impl LayerSelector {
    /// Selects the layer with this digest (`sha256:…`).
    pub fn from_digest(text: &str) -> Result<Self, String> {
        OciDigest::try_from(text.to_owned()).map(|digest| Self(WantedLayer::Digest(digest)))
    }

    /// Selects the layer whose annotation `key` has this value.
    pub fn from_annotation(key: String, value: String) -> Result<Self, String> {
        if key.is_empty() {
            return Err("the annotation key is empty; write KEY=VALUE".to_owned());
        }
        Ok(Self(WantedLayer::Annotation { key, value }))
    }

    /// True if the layer is selected by its digest. It is then the same for every platform.
    pub(super) fn is_digest(&self) -> bool {
        matches!(self.0, WantedLayer::Digest(_))
    }

    /// True if `text` selects layers by their name.
    pub(super) fn is_name(text: &str) -> bool {
        matches!(text.parse::<Self>(), Ok(Self(WantedLayer::Name(_))))
    }

    /// True if the selector matches `layer`.
    pub(super) fn selects_layer(&self, layer: &OciDescriptor) -> bool {
        match &self.0 {
            WantedLayer::Name(name) => names_of(layer).any(|found| found == name),
            _ => self.selects_image(layer),
        }
    }

    /// True if the selector matches `image`, an entry of an index. A name matches only layers.
    pub(super) fn selects_image(&self, image: &OciDescriptor) -> bool {
        match &self.0 {
            WantedLayer::Digest(digest) => image.digest == *digest,
            WantedLayer::Annotation { key, value } => image.annotation(key) == Some(value),
            WantedLayer::Name(_) => false,
        }
    }
}

/// Returns the names by which `layer` can be selected, the most specific first.
pub(super) fn names_of(layer: &OciDescriptor) -> impl Iterator<Item = &str> {
    [DISK_NAME, TITLE].into_iter().filter_map(move |key| layer.annotation(key))
}

impl FromStr for LayerSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the name of the layer is empty".to_owned());
        }
        if text.starts_with("sha256:") || text.starts_with("sha512:") {
            return Self::from_digest(text);
        }
        match text.split_once('=') {
            Some((key, value)) => Self::from_annotation(key.to_owned(), value.to_owned()),
            None => Ok(Self(WantedLayer::Name(text.to_owned()))),
        }
    }
}

impl fmt::Display for LayerSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            WantedLayer::Digest(digest) => digest.fmt(f),
            WantedLayer::Annotation { key, value } => write!(f, "{key}={value}"),
            WantedLayer::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(annotations: &str) -> OciDescriptor {
        let digest = OciDigest::sha256_of(b"disk").unwrap();
        let text = format!(r#"{{"digest":"{digest}","size":4,"annotations":{{{annotations}}}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_layer_is_selected_by_digest_annotation_or_name() {
        let layer = layer(
            r#""io.kubevirt.disk.name":"root","org.opencontainers.image.title":"a/b.qcow2","x":"a=b""#,
        );
        let digest = layer.digest.to_string();
        for (text, selects_layer, selects_image) in [
            (digest.as_str(), true, true),
            ("root", true, false),
            ("a/b.qcow2", true, false),
            ("x=a=b", true, true),
            ("io.kubevirt.disk.name=root", true, true),
            ("roo", false, false),
            ("b.qcow2", false, false),
            ("x=a", false, false),
            ("y=", false, false),
        ] {
            let selector: LayerSelector = text.parse().unwrap();
            assert_eq!(selector.selects_layer(&layer), selects_layer, "{text}");
            assert_eq!(selector.selects_image(&layer), selects_image, "{text}");
        }
    }

    #[test]
    fn malformed_selectors_are_refused() {
        for text in ["", "=value", "sha256:0", "sha512:xyz"] {
            assert!(text.parse::<LayerSelector>().is_err(), "{text}");
        }
    }
}
