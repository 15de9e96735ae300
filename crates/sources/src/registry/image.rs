//! From what an endpoint names to the layers of one image.

use datapath::error::SourceError;

use super::digest::Digest;
use super::manifest::{Config, Descriptor, MAX_CONFIG_BYTES, Manifest};
use super::platform::Wanted;
use super::store::{Store, document};
use super::wording::pulled;
use crate::error::invalid;

/// Indexes inside each other. One is what tools make.
const MAX_INDEXES: usize = 4;

/// One image.
#[derive(Debug)]
pub(super) struct Image {
    /// The digest of what the endpoint names: of the index, if there is one.
    pub(super) digest: Digest,
    /// Its layers, the lowest first.
    pub(super) layers: Vec<Descriptor>,
    /// Its configuration.
    pub(super) config: Config,
}

impl Image {
    /// Chooses the image for `architecture`, or for this machine, and reads its configuration.
    pub(super) fn open(store: &dyn Store, architecture: Option<&str>) -> Result<Self, SourceError> {
        let mut served = store.top().map_err(pulled)?;
        // Taken before an image of an index is chosen: pollers compare what the reference names.
        let digest = served.digest.clone();
        let wanted = Wanted::new(architecture);
        for _ in 0..=MAX_INDEXES {
            let parsed = Manifest::parse(&served).map_err(|reason| pulled(invalid(reason)))?;
            match parsed {
                Manifest::Index(index) => {
                    let chosen = wanted.choose(&index).map_err(|reason| {
                        let message = format!("Error retrieving image: choosing image instance: {reason}");
                        invalid(message)
                    })?;
                    served = store.manifest(chosen).map_err(pulled)?;
                }
                Manifest::Image { config, layers } => {
                    let bytes = document(store, &config, MAX_CONFIG_BYTES).map_err(pulled)?;
                    let config = Config::parse(&bytes).map_err(|reason| pulled(invalid(reason)))?;
                    check(&config, architecture)?;
                    return Ok(Self {
                        digest,
                        layers,
                        config,
                    });
                }
            }
        }
        let message = format!("there are more than {MAX_INDEXES} indexes inside each other");
        Err(pulled(invalid(message)))
    }
}

/// Images that are not what was asked for, or not a disk at all. The messages are CDI's.
fn check(config: &Config, architecture: Option<&str>) -> Result<(), SourceError> {
    let own = &config.architecture;
    if let Some(requested) = architecture.filter(|requested| requested != own) {
        return Err(invalid(format!(
            "Error validating architecture: manifest image architecture: \"{own}\" doesn't match requested \
             architecture: \"{requested}\""
        )));
    }
    if config.is_bootc() {
        return Err(invalid(
            "bootc image detected: its labels (containers.bootc=1 or ostree.bootable=1) say that it holds an \
             ostree-based bootable OS and no disk; conversion to a disk is not implemented"
                .to_owned(),
        ));
    }
    Ok(())
}
