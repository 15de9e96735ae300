//! Decides from the manifest which layer of an image or artifact holds the disk.
//!
//! Media types only select a layer. The content of a layer decides if it is a tar, because ORAS
//! gives every file the media type of a tar.

use fetch::error::invalid_error;
use fetch::messages::list_names;
use stream::error::SourceError;

use super::RegistryOptions;
use super::digest::OciDigest;
use super::manifest::{ImageManifest, OciDescriptor};
use super::selector::{LayerSelector, TITLE, names_of};

/// Media type of a disk that KubeVirt exports: the raw disk in one zstd stream, without a tar.
pub const KUBEVIRT_DISK: &str = "application/vnd.kubevirt.disk.raw+zstd";

/// Annotation with the size of the disk in a compressed layer.
pub const DISK_SIZE: &str = "io.kubevirt.disk.size";

/// Annotation that distinguishes disks for several hypervisors in an index (Podman's machines).
const DISK_TYPE: &str = "disktype";

/// Maximum number of layers or images that an error lists.
const MAX_LISTED: usize = 16;

/// Longest name that is listed, in characters.
const MAX_NAME_CHARS: usize = 80;

/// The part of an image that holds the disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DiskChoice {
    /// A file in one of these layers of a container image, lowest layer first.
    Container(Vec<OciDescriptor>),
    /// This layer: a file in it if the layer is a tar, otherwise the whole layer.
    Layer(OciDescriptor),
    /// This layer: a raw disk in one zstd stream.
    Disk(OciDescriptor),
}

/// A disk of an artifact that has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactDisk {
    /// Name of the disk, or title of the file. Untrusted text.
    pub name: Option<String>,
    /// The value for the option that selects this disk. Untrusted text.
    pub selector: String,
    /// Digest of the layer, or of the manifest that an index lists.
    pub digest: String,
    /// Bytes of the layer as it is stored; `None` for a manifest.
    pub stored_bytes: Option<u64>,
    /// Size of the disk as the artifact states it, a Kubernetes quantity. Untrusted text.
    pub stated_size: Option<String>,
    /// Media type of the layer. Untrusted text.
    pub media_type: String,
}

/// The cause of the error for an artifact with several disks, of which one has to be selected.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} disks", .0.len())]
pub struct SeveralDisks(Vec<ArtifactDisk>);

impl SeveralDisks {
    /// Returns the disks if opening a source failed with `error` because it has several of them.
    pub fn of_error(error: &SourceError) -> Option<&[ArtifactDisk]> {
        let first: Option<&(dyn std::error::Error + 'static)> = Some(error);
        let mut causes = std::iter::successors(first, |error| error.source());
        let found = causes.find_map(|error| error.downcast_ref::<Self>());
        found.map(|several| several.0.as_slice())
    }
}

impl ImageManifest {
    /// True for a container image, whose layers form one file system. The layers of an artifact are
    /// files with titles, even if a tool wrote an image configuration to record the platform.
    pub(super) fn is_container(&self) -> bool {
        let is_file = |layer: &OciDescriptor| layer.annotation(TITLE).is_some();
        self.config.is_image_config()
            && (self.layers.is_empty() || !self.layers.iter().all(is_file))
    }

    /// True if the configuration has to be read: it belongs to a container image, and the layer is
    /// not selected by its digest.
    pub(super) fn needs_config(&self, options: &RegistryOptions) -> bool {
        let is_by_digest = options.layer.as_ref().is_some_and(LayerSelector::is_digest);
        !is_by_digest && self.config.is_image_config()
    }

    /// Chooses the part that holds the disk.
    pub(super) fn choose_disk(
        self,
        selector: Option<&LayerSelector>,
    ) -> Result<DiskChoice, SourceError> {
        if let Some(selector) = selector {
            return self.select_layer(selector).map(DiskChoice::of_layer);
        }
        let disks: Vec<_> =
            self.layers.iter().filter(|layer| layer.media_type == KUBEVIRT_DISK).collect();
        match (disks.as_slice(), self.layers.as_slice()) {
            ([disk], _) => Ok(DiskChoice::Disk((*disk).clone())),
            ([], _) if self.is_container() => Ok(DiskChoice::Container(self.layers)),
            ([], [layer]) if !layer.is_empty_document() => Ok(DiskChoice::Layer(layer.clone())),
            ([], [] | [_]) => Err(invalid_error(format!("no disk found in {}", self.describe()))),
            ([], layers) => {
                let what = format!("{} has several layers", self.describe());
                Err(self.several_error(&what, &layers.iter().collect::<Vec<_>>()))
            }
            (disks, _) => Err(self.several_error("the artifact has several disks", disks)),
        }
    }

    fn select_layer(self, selector: &LayerSelector) -> Result<OciDescriptor, SourceError> {
        let mut matching: Vec<&OciDescriptor> = Vec::new();
        for layer in self.layers.iter().filter(|layer| selector.selects_layer(layer)) {
            // Layers with the same digest have the same bytes.
            if matching.iter().all(|found| found.digest != layer.digest) {
                matching.push(layer);
            }
        }
        match matching.as_slice() {
            [layer] => Ok((*layer).clone()),
            [] => Err(no_match_error(selector, layer_names(&self.layers))),
            several => {
                let what = format!("several layers match {}", short_text(&selector.to_string()));
                Err(self.several_error(&what, several))
            }
        }
    }

    /// The error that one of `layers`, which belong to this image, has to be selected.
    fn several_error(&self, what: &str, layers: &[&OciDescriptor]) -> SourceError {
        let names: Vec<_> = self
            .layers
            .iter()
            .flat_map(|layer| names_of(layer).map(move |name| (name, &layer.digest)))
            .collect();
        several_error(what, layers.iter().map(|layer| ArtifactDisk::of_layer(layer, &names)))
    }

    /// Describes an artifact without a disk, and its layers, for an error message.
    fn describe(&self) -> String {
        let kind = self.artifact_type.as_deref().unwrap_or("none");
        let types =
            list_names(self.layers.iter().map(|layer| short_text(&layer.media_type)), MAX_LISTED);
        let (kind, config) = (short_text(kind), short_text(&self.config.media_type));
        format!("the artifact (artifactType {kind}, config {config}, layers of type {types})")
    }
}

impl DiskChoice {
    /// Returns the layer if only one has to be read.
    pub(super) fn only_layer(&self) -> Option<&OciDescriptor> {
        match self {
            Self::Layer(layer) | Self::Disk(layer) => Some(layer),
            Self::Container(layers) => {
                let mut files = layers.iter().filter(|layer| !layer.is_empty_layer());
                files.next().filter(|_| files.next().is_none())
            }
        }
    }

    fn of_layer(layer: OciDescriptor) -> Self {
        // The disk of a guest may begin like a tar, so its content must not decide.
        if layer.media_type == KUBEVIRT_DISK { Self::Disk(layer) } else { Self::Layer(layer) }
    }
}

impl ArtifactDisk {
    /// Describes `layer`. `names` are the names of all layers of the image, with their digests.
    fn of_layer(layer: &OciDescriptor, names: &[(&str, &OciDigest)]) -> Self {
        let digest = layer.digest.to_string();
        let name = names_of(layer).next();
        // A name that another layer has too selects neither of them.
        let is_unique = |name: &str| {
            names.iter().all(|(other, owner)| *other != name || **owner == layer.digest)
        };
        let selector = name.filter(|name| LayerSelector::is_name(name) && is_unique(name));
        Self {
            selector: selector.unwrap_or(&digest).to_owned(),
            name: name.map(str::to_owned),
            digest,
            stored_bytes: Some(layer.size),
            stated_size: layer.annotation(DISK_SIZE).map(str::to_owned),
            media_type: layer.media_type.clone(),
        }
    }

    fn of_image(image: &OciDescriptor) -> Self {
        let digest = image.digest.to_string();
        let kind = image.annotation(DISK_TYPE).map(|kind| format!("{DISK_TYPE}={kind}"));
        Self {
            name: kind.clone(),
            selector: kind.unwrap_or_else(|| digest.clone()),
            digest,
            stored_bytes: None,
            stated_size: None,
            media_type: image.artifact_type.as_ref().unwrap_or(&image.media_type).clone(),
        }
    }
}

/// Fails if `equals`, the images of an index that fit this machine equally well, are disks for
/// different purposes. Container images that fit equally well differ only in their compression.
pub(super) fn check_rivals(equals: &[&OciDescriptor]) -> Result<(), SourceError> {
    let is_disk = |image: &&OciDescriptor| image.annotation(DISK_TYPE).is_some();
    let are_artifacts = equals.iter().all(|image| image.artifact_type.is_some());
    let first = equals.first().map(|image| &image.digest);
    let differ = equals.iter().any(|image| Some(&image.digest) != first);
    if differ && (are_artifacts || equals.iter().any(is_disk)) {
        let disks = equals.iter().copied().map(ArtifactDisk::of_image);
        return Err(several_error("the index has several disks for this platform", disks));
    }
    Ok(())
}

/// Returns the names of `layers` for errors.
pub(super) fn layer_names(layers: &[OciDescriptor]) -> Vec<String> {
    // The other names decide only about the selector.
    layers.iter().map(|layer| ArtifactDisk::of_layer(layer, &[]).listed_name()).collect()
}

/// The error for a selector that matches none of the layers with these names.
pub(super) fn no_match_error(selector: &LayerSelector, names: Vec<String>) -> SourceError {
    let shown = short_text(&selector.to_string());
    let listed = list_names(names.into_iter(), MAX_LISTED);
    invalid_error(format!("no layer matches {shown}; available layers: {listed}"))
}

fn several_error(what: &str, disks: impl Iterator<Item = ArtifactDisk>) -> SourceError {
    let several = SeveralDisks(disks.collect());
    let listed = list_names(several.0.iter().map(ArtifactDisk::listed_name), MAX_LISTED);
    let message = format!("{what}: {listed}");
    let words = format!("{message}; choose one with --layer");
    invalid_error(message).with_plain_words(&words).with_cause(several)
}

impl ArtifactDisk {
    fn listed_name(&self) -> String {
        match &self.name {
            Some(name) => short_text(name),
            None => format!("{} ({})", self.digest, short_text(&self.media_type)),
        }
    }
}

fn short_text(text: &str) -> String {
    printable::escape_line(text, MAX_NAME_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
    const TAR: &str = "application/vnd.oci.image.layer.v1.tar";

    /// A layer of this type with a title, if it is not empty.
    fn layer(media_type: &str, title: &str) -> OciDescriptor {
        let mut layer = OciDescriptor::from_bytes(title.as_bytes());
        let annotations =
            if title.is_empty() { "{}".to_owned() } else { format!(r#"{{"{TITLE}":"{title}"}}"#) };
        layer.annotations = Some(serde_json::from_str(&annotations).unwrap());
        (layer.media_type, layer.size) = (media_type.to_owned(), 1000);
        layer
    }

    fn manifest(config: &str, layers: &[OciDescriptor]) -> ImageManifest {
        let config = OciDescriptor { size: 100, media_type: config.to_owned(), ..layer("", "") };
        ImageManifest { artifact_type: Some("a/b".to_owned()), config, layers: layers.to_vec() }
    }

    fn choose(
        config: &str,
        layers: &[OciDescriptor],
        selector: &str,
    ) -> Result<DiskChoice, String> {
        let selector = (!selector.is_empty()).then(|| selector.parse().unwrap());
        let chosen = manifest(config, layers).choose_disk(selector.as_ref());
        chosen.map_err(|error| error.plain_words().to_owned())
    }

    #[test]
    fn the_layer_with_the_disk_is_chosen_by_the_manifest() {
        let (plain, named) = (layer(TAR, ""), layer(TAR, "a.qcow2"));
        let digest = named.digest.to_string();
        let disk = |name| layer(KUBEVIRT_DISK, name);
        let (one, two) = ([plain.clone()], [plain.clone(), plain.clone()]);
        let several = |layers: &[OciDescriptor]| Ok(DiskChoice::Container(layers.to_vec()));
        let only = |layer: &OciDescriptor| Ok(DiskChoice::Layer(layer.clone()));
        let listed = |text: &str| Err(text.to_owned());
        let [d, e] = ["d", "e"].map(disk);
        let (first, second) = (layer("t/1", "one"), layer("t/2", ""));
        let unclear = format!(
            "the artifact (artifactType a/b, config x/y, layers of type t/1, t/2) has several layers: one, {} (t/2)\
             ; choose one with --layer",
            second.digest
        );
        for (config, layers, selector, expected) in [
            (IMAGE_CONFIG, &two[..], "", several(&two)),
            (IMAGE_CONFIG, &[], "", several(&[])),
            (IMAGE_CONFIG, std::slice::from_ref(&named), "", only(&named)),
            ("x/y", &one, "", only(&plain)),
            ("x/y", &[plain.clone(), d.clone()], "", Ok(DiskChoice::Disk(d.clone()))),
            ("x/y", &[d.clone(), e.clone()], "e", Ok(DiskChoice::Disk(e.clone()))),
            (IMAGE_CONFIG, &[plain.clone(), named.clone()], "a.qcow2", only(&named)),
            ("x/y", &[named.clone(), named.clone()], "a.qcow2", only(&named)),
            ("x/y", &[named.clone(), plain, named.clone()], &digest, only(&named)),
            // The error lists all disks if none is chosen.
            (
                "x/y",
                &[d.clone(), e.clone()],
                "",
                listed("the artifact has several disks: d, e; choose one with --layer"),
            ),
            ("x/y", &[d, e], "f", listed("no layer matches f; available layers: d, e")),
            ("x/y", &[], "f", listed("no layer matches f; available layers: none")),
            (
                "x/y",
                &[],
                "",
                listed(
                    "no disk found in the artifact (artifactType a/b, config x/y, layers of type none)",
                ),
            ),
            ("x/y", &[first, second], "", Err(unclear)),
        ] {
            assert_eq!(
                choose(config, layers, selector),
                expected,
                "{config} {layers:?} {selector}"
            );
        }
    }

    #[test]
    fn each_offered_selector_selects_its_layer() {
        let mut unnamed = layer(TAR, "");
        let title = format!(r#"{{"{TITLE}":""}}"#);
        unnamed.annotations = Some(serde_json::from_str(&title).unwrap());
        let digest = OciDigest::sha256_of(b"other bytes").unwrap();
        let namesake = OciDescriptor { digest, ..layer(TAR, "twice") };
        let titles = ["once", "once", "twice", "sha256:0", "a=b"];
        let mut layers = titles.map(|title| layer(TAR, title)).to_vec();
        layers.extend([namesake, unnamed]);
        let error = manifest("x/y", &layers).choose_disk(None).unwrap_err();
        let disks = SeveralDisks::of_error(&error).unwrap();
        assert_eq!(disks.len(), layers.len());
        for (disk, layer) in disks.iter().zip(layers.iter().cloned()) {
            let chosen = choose("x/y", &layers, &disk.selector);
            assert_eq!(chosen, Ok(DiskChoice::Layer(layer)), "{}", disk.selector);
            assert_eq!(disk.selector == "once", disk.name.as_deref() == Some("once"));
        }
    }

    #[test]
    fn lists_are_short_whatever_they_hold() {
        let long = "\u{202e}".repeat(10_000);
        let layers: Vec<_> =
            (0..1000).map(|number| layer(&long, &format!("{number}{long}"))).collect();
        for selector in ["", "x", &long] {
            let error = choose(&long, &layers, selector).unwrap_err();
            assert!(
                error.chars().count() <= 2001 * 8 && error.contains("and 984 more")
                    || error.ends_with('…')
            );
        }
        let error = manifest("x/y", &layers).choose_disk(None).unwrap_err();
        assert_eq!(SeveralDisks::of_error(&error).map(<[_]>::len), Some(1000));
    }

    #[test]
    fn rivals_are_disks_and_not_compressions_of_a_container() {
        let image = |title: &str, disk_type: Option<&str>, artifact_type: Option<&str>| {
            let mut image = layer("m", title);
            image.annotations = disk_type.map(|kind| {
                serde_json::from_str(&format!(r#"{{"{DISK_TYPE}":"{kind}"}}"#)).unwrap()
            });
            image.artifact_type = artifact_type.map(str::to_owned);
            image
        };
        let (gzip, zstd) = (image("gzip", None, None), image("zstd", None, None));
        let (qemu, hyperv) = (image("q", Some("qemu"), None), image("h", Some("hyperv"), None));
        let artifact = image("a", None, Some("a/b"));
        for (images, is_refused) in [
            (vec![], false),
            (vec![&qemu], false),
            (vec![&qemu, &qemu], false),
            (vec![&gzip, &zstd], false),
            (vec![&gzip, &artifact], false),
            (vec![&qemu, &hyperv], true),
            (vec![&gzip, &qemu], true),
            (vec![&artifact, &image("b", None, Some("a/b"))], true),
        ] {
            assert_eq!(check_rivals(&images).is_err(), is_refused, "{images:?}");
        }
    }
}
