//! Selection of one image, from the manifest or index of an endpoint to the part with the disk.

use fetch::error::invalid_error;
use publisher::ImageSigner;
use stream::error::{SourceError, SourceErrorKind};

use super::RegistryOptions;
use super::choice::{DiskChoice, check_rivals, layer_names, no_match_error};
use super::cosign::verify_image;
use super::digest::OciDigest;
use super::manifest::{
    ImageConfig, ImageIndex, ImageManifest, MAX_CONFIG_BYTES, OciDescriptor, ParsedManifest,
    ServedManifest,
};
use super::messages::pull_error;
use super::platform::{WantedPlatforms, go_architecture};
use super::selector::LayerSelector;
use super::store::{ImageStore, read_document};

/// Maximum depth of nested indexes. Tools create one level.
const MAX_INDEXES: usize = 4;

/// Maximum number of manifests that are searched for a layer that is selected by its digest. An
/// index has one for each platform, and perhaps as many attestations.
const MAX_SEARCHED: usize = 64;

/// One container image or artifact.
#[derive(Debug)]
pub(super) struct RegistryImage {
    /// The digest of the manifest or index that the endpoint names.
    pub(super) digest: OciDigest,
    /// The digest in the signature that was verified, if one was demanded.
    pub(super) signed: Option<OciDigest>,
    /// The part with the disk.
    pub(super) disk: DiskChoice,
    /// The configuration of the image; empty for an artifact and for a selected layer.
    pub(super) config: ImageConfig,
}

impl RegistryImage {
    /// Chooses the image for the platform in `options`, or for this machine, and in it the part
    /// with the disk. Fails unless `signer`, if given, has signed it.
    pub(super) fn open(
        store: &dyn ImageStore,
        options: &RegistryOptions,
        signer: Option<&dyn ImageSigner>,
    ) -> Result<Self, SourceError> {
        let mut served = store.read_root().map_err(pull_error)?;
        // Taken before an image of an index is chosen, because pollers compare the digest of the
        // reference itself.
        let digest = served.digest.clone();
        let mut chain = vec![digest.clone()];
        let architecture = options.architecture.as_deref();
        let mut selector = options.layer.as_ref();
        for _ in 0..=MAX_INDEXES {
            match parse_manifest(&served)? {
                ParsedManifest::Index(index) => {
                    let chosen = match selector.filter(|selector| selector.is_digest()) {
                        Some(wanted) => select_manifest(store, index, wanted)?,
                        None => choose_image(index, architecture, selector)?,
                    };
                    // A selector that matched the image does not apply to its layers too.
                    selector = selector.filter(|wanted| !wanted.selects_image(&chosen));
                    served = store.read_manifest(&chosen).map_err(pull_error)?;
                    chain.push(served.digest.clone());
                }
                ParsedManifest::Image(manifest) => {
                    let signed =
                        signer.map(|signer| verify_image(store, signer, &chain)).transpose()?;
                    let config = check_config(store, &manifest, options)?;
                    let disk = manifest.choose_disk(selector)?;
                    return Ok(Self { digest, signed, disk, config });
                }
            }
        }
        let message = format!("there are more than {MAX_INDEXES} indexes inside each other");
        Err(pull_error(invalid_error(message)))
    }
}

/// Parses a manifest or index.
pub(super) fn parse_manifest(served: &ServedManifest) -> Result<ParsedManifest, SourceError> {
    ParsedManifest::parse(served).map_err(|reason| pull_error(invalid_error(reason)))
}

/// Chooses an image of `index` for the platform, among those that `selector` matches, if there are
/// any. Otherwise the selector is for a layer of the image.
pub(super) fn choose_image(
    mut index: ImageIndex,
    architecture: Option<&str>,
    selector: Option<&LayerSelector>,
) -> Result<OciDescriptor, SourceError> {
    if let Some(wanted) = selector
        && index.manifests.iter().any(|image| wanted.selects_image(image))
    {
        index.manifests.retain(|image| wanted.selects_image(image));
    }
    let wanted = WantedPlatforms::new(architecture);
    let chosen = wanted.choose_image(&index).map_err(|reason| {
        let message = format!("Error retrieving image: choosing image instance: {reason}");
        let platforms = WantedPlatforms::list_platforms(&index);
        let words = format!("{reason}; there are: {platforms} (--architecture chooses)");
        invalid_error(message).with_plain_words(&words)
    })?;
    check_rivals(&wanted.equally_good(&index, chosen))?;
    Ok(chosen.clone())
}

/// Finds the image of `index` that has the selected layer, or that is selected itself. The digest
/// decides alone, so the image may be for any platform.
fn select_manifest(
    store: &dyn ImageStore,
    mut index: ImageIndex,
    selector: &LayerSelector,
) -> Result<OciDescriptor, SourceError> {
    if let Some(at) = index.manifests.iter().position(|image| selector.selects_image(image)) {
        return Ok(index.manifests.swap_remove(at));
    }
    if let [only] = index.manifests.as_slice() {
        return Ok(only.clone());
    }
    let mut names = Vec::new();
    for image in index.manifests.into_iter().take(MAX_SEARCHED) {
        let served = match store.read_manifest(&image) {
            // A copy of a repository may lack the images for other platforms.
            Err(error) if error.kind() == SourceErrorKind::Status(404) => continue,
            read => read.map_err(pull_error)?,
        };
        // Nested indexes are not searched, because tools create only one level.
        if let ParsedManifest::Image(ImageManifest { layers, .. }) = parse_manifest(&served)? {
            if layers.iter().any(|layer| selector.selects_layer(layer)) {
                return Ok(image);
            }
            names.extend(layer_names(&layers));
        }
    }
    Err(no_match_error(selector, names))
}

/// Reads and checks the configuration of a container image. Returns an empty one for an artifact,
/// and, as upstream, for an image of which a layer is selected.
pub(super) fn check_config(
    store: &dyn ImageStore,
    manifest: &ImageManifest,
    options: &RegistryOptions,
) -> Result<ImageConfig, SourceError> {
    if !manifest.needs_config(options) {
        return Ok(ImageConfig::default());
    }
    let bytes = read_document(store, &manifest.config, MAX_CONFIG_BYTES).map_err(pull_error)?;
    let config = ImageConfig::parse(&bytes).map_err(|reason| pull_error(invalid_error(reason)))?;
    check_image(&config, options)?;
    Ok(if options.layer.is_some() { ImageConfig::default() } else { config })
}

/// Rejects images for another architecture, and images that do not hold a disk. The messages are
/// CDI's.
fn check_image(config: &ImageConfig, options: &RegistryOptions) -> Result<(), SourceError> {
    let own = &config.architecture;
    let differs = |requested: &&str| go_architecture(requested) != go_architecture(own);
    if let Some(requested) = options.architecture.as_deref().filter(differs) {
        return Err(invalid_error(format!(
            "Error validating architecture: manifest image architecture: \"{own}\" doesn't match requested \
             architecture: \"{requested}\""
        )));
    }
    if options.layer.is_none() && config.is_bootc() {
        return Err(invalid_error(
            "bootc image detected: its labels (containers.bootc=1 or ostree.bootable=1) say that it holds an \
             ostree-based bootable OS and no disk; conversion to a disk is not implemented"
                .to_owned(),
        ));
    }
    Ok(())
}
