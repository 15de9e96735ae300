//! Selection of one image, from the manifest or index of an endpoint to the layers of the image.

use datapath::error::SourceError;

use super::digest::OciDigest;
use super::manifest::{ImageConfig, MAX_CONFIG_BYTES, OciDescriptor, ParsedManifest};
use super::messages::pull_error;
use super::platform::WantedPlatforms;
use super::store::{ImageStore, read_document};
use crate::error::invalid_error;

/// Maximum depth of nested indexes. Tools create one level.
const MAX_INDEXES: usize = 4;

/// One container image.
#[derive(Debug)]
pub(super) struct RegistryImage {
    /// The digest of the manifest or index that the endpoint names.
    pub(super) digest: OciDigest,
    /// The layers of the image, the lowest first.
    pub(super) layers: Vec<OciDescriptor>,
    /// The configuration of the image.
    pub(super) config: ImageConfig,
}

impl RegistryImage {
    /// Chooses the image for `architecture`, or for this machine if it is `None`, and reads the
    /// configuration.
    pub(super) fn open(store: &dyn ImageStore, architecture: Option<&str>) -> Result<Self, SourceError> {
        let mut served = store.read_root().map_err(pull_error)?;
        // Taken before an image of an index is chosen, because pollers compare the digest of the
        // reference itself.
        let digest = served.digest.clone();
        let wanted = WantedPlatforms::new(architecture);
        for _ in 0..=MAX_INDEXES {
            let parsed =
                ParsedManifest::parse(&served).map_err(|reason| pull_error(invalid_error(reason)))?;
            match parsed {
                ParsedManifest::Index(index) => {
                    let chosen = wanted.choose_image(&index).map_err(|reason| {
                        let message = format!("Error retrieving image: choosing image instance: {reason}");
                        let platforms = WantedPlatforms::list_platforms(&index);
                        let words = format!("{reason}; there are: {platforms} (--architecture chooses)");
                        invalid_error(message).with_plain_words(&words)
                    })?;
                    served = store.read_manifest(chosen).map_err(pull_error)?;
                }
                ParsedManifest::Image { config, layers } => {
                    let bytes = read_document(store, &config, MAX_CONFIG_BYTES).map_err(pull_error)?;
                    let config =
                        ImageConfig::parse(&bytes).map_err(|reason| pull_error(invalid_error(reason)))?;
                    check_image(&config, architecture)?;
                    return Ok(Self { digest, layers, config });
                }
            }
        }
        let message = format!("there are more than {MAX_INDEXES} indexes inside each other");
        Err(pull_error(invalid_error(message)))
    }
}

/// Rejects images for another architecture, and images that do not hold a disk. The messages are
/// CDI's.
fn check_image(config: &ImageConfig, architecture: Option<&str>) -> Result<(), SourceError> {
    let own = &config.architecture;
    if let Some(requested) = architecture.filter(|requested| requested != own) {
        return Err(invalid_error(format!(
            "Error validating architecture: manifest image architecture: \"{own}\" doesn't match requested \
             architecture: \"{requested}\""
        )));
    }
    if config.is_bootc() {
        return Err(invalid_error(
            "bootc image detected: its labels (containers.bootc=1 or ostree.bootable=1) say that it holds an \
             ostree-based bootable OS and no disk; conversion to a disk is not implemented"
                .to_owned(),
        ));
    }
    Ok(())
}
