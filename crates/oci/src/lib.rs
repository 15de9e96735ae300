//! Container images and artifacts: reads the disk from a layer, directly from the registry.
//!
//! ```text
//!  reference ─► remote (session, dialect) ─┐                      ┌─► platform ─► one image
//!            └► layout (directory, tar) ───┴─► store ─► manifest ─┤
//!                                                                 └─► config: labels, variables
//!  layers, from the top down:
//!  store ─► length, digest ─► decode ─► tar ─► lookup ─► the bytes of the disk
//!                          └─► tap: not a tar ─► the bytes of the layer, compressed or not
//! ```
//!
//! The module `choice` decides from the manifest which layers are searched. If a publisher must
//! have signed the image, `cosign` looks for a signature before the configuration and the layers
//! are read.
//!
//! Everything that is read is verified with the digest from the reference, the index or the
//! manifest. The end of the disk is reported only after its whole layer was verified. Nothing is
//! stored: each layer is read once.
//!
//! The crate `oci-client` is not used: it supports neither our proxies nor our trust anchors,
//! hides the status and the challenge, which CDI's controllers report, and does not limit the size
//! of manifests.

#![forbid(unsafe_code)]

mod annotations;
#[doc(hidden)] // for the fuzz targets
pub mod challenge;
mod choice;
#[doc(hidden)] // for the fuzz targets
pub mod cosign;
mod dialect;
#[doc(hidden)] // for the fuzz targets
pub mod digest;
mod image;
mod layer;
mod layout;
mod layout_stream;
mod lookup;
#[doc(hidden)] // for the fuzz targets
pub mod manifest;
mod messages;
#[doc(hidden)] // for the fuzz targets
pub mod platform;
mod reference;
mod referrers;
#[doc(hidden)] // for the fuzz targets
pub mod refusal;
mod remote;
mod selector;
mod session;
mod store;
mod tap;

use std::sync::Arc;

use fetch::Network;
use fetch::error::invalid_error;
use parking_lot::Mutex;
use publisher::{ImageSigner, PublisherKey};
use stream::error::{SourceError, SourceErrorKind};
use stream::options::StatedDisk;
use stream::source::{Source, SourceBody};
use stream::storage::StorageLocation;

use self::image::RegistryImage;
use self::layer::{OpenedDisk, open_disk};
use self::layout::OciLayout;
use self::messages::pull_error;
pub use self::platform::own_architecture;
use self::reference::ImageEndpoint;
use self::remote::RemoteRegistry;
use self::store::ImageStore;

pub use self::choice::{ArtifactDisk, DISK_SIZE, KUBEVIRT_DISK, SeveralDisks};
pub use self::layout_stream::open_layout;
pub use self::manifest::{OCI_INDEX, OCI_MANIFEST, REF_NAME};
pub use self::selector::{DISK_NAME, LayerSelector, TITLE};

/// User agent by which registries know CDI.
const USER_AGENT: &str = "containers/5.32.0 (github.com/containers/image)";

/// User agent by which proxies know CDI's tunnels to registries.
const CONNECT_AGENT: &str = "Go-http-client/1.1";

/// Options of a registry source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryOptions {
    /// The architecture in Go's terms; `None` stands for this machine's architecture.
    pub architecture: Option<String>,
    /// The layer that holds the disk, or the image of an index; `None` finds it.
    pub layer: Option<LayerSelector>,
    /// The key that must have signed the image; `None` accepts any image.
    pub key: Option<PublisherKey>,
}

/// The disk in a container image or artifact.
pub struct RegistrySource {
    name: String,
    digest: String,
    environment: Vec<String>,
    size: u64,
    storage: Option<StorageLocation>,
    stated_disk: Option<StatedDisk>,
    disk: Mutex<Option<Box<dyn SourceBody>>>,
}

impl RegistrySource {
    /// Finds the disk in the image that `reference` names: `docker://…`, `oci-archive:…` or
    /// `oci:…`. The layers above the layer with the disk are read here.
    ///
    /// The messages of errors are the text that CDI writes after `Failed to read registry image: `.
    pub fn open(
        reference: &str,
        network: &Arc<Network>,
        options: &RegistryOptions,
    ) -> Result<Self, SourceError> {
        let store = open_store(reference, network)?;
        let signer = options.key.as_ref().map(|key| key as &dyn ImageSigner);
        let image = RegistryImage::open(&*store, options, signer)?;
        let disk = open_disk(&*store, &image.disk)?;
        Ok(Self {
            digest: image.digest.to_string(),
            environment: image.config.env_variables().to_vec(),
            storage: store.storage_location(),
            ..Self::from_disk(store.image_name(), disk)
        })
    }

    fn from_disk(name: String, disk: OpenedDisk) -> Self {
        Self {
            name,
            digest: String::new(),
            environment: Vec::new(),
            size: disk.size,
            storage: None,
            stated_disk: disk.stated_disk,
            disk: Mutex::new(Some(disk.body)),
        }
    }

    /// Returns the environment variables of the image's containers, `NAME=value` each.
    pub fn env_variables(&self) -> &[String] {
        &self.environment
    }

    /// Returns the digest of the manifest or index that the reference names.
    pub fn image_digest(&self) -> &str {
        &self.digest
    }
}

/// Returns the digest of the manifest or index that `reference` names now. No image is chosen, and
/// no layer is read.
pub fn resolve_digest(reference: &str, network: &Arc<Network>) -> Result<String, SourceError> {
    let store = open_store(reference, network)?;
    Ok(store.read_root().map_err(pull_error)?.digest.to_string())
}

/// Returns the reference, by its digest, of the image that `reference` names now and that `signer`
/// has signed. This is an index if that is signed, otherwise the image for this machine.
pub fn pin_signed_image(
    reference: &str,
    network: &Arc<Network>,
    signer: &dyn ImageSigner,
) -> Result<String, SourceError> {
    let store = open_store(reference, network)?;
    let root = store.read_root().map_err(pull_error)?.digest;
    let signed = match cosign::verify_image(&*store, signer, std::slice::from_ref(&root)) {
        Err(error) if error.kind() == SourceErrorKind::Signature => {
            let options = RegistryOptions::default();
            RegistryImage::open(&*store, &options, Some(signer))?.signed.ok_or(error)?
        }
        verified => verified?,
    };
    match ImageEndpoint::parse(reference)? {
        ImageEndpoint::Registry(reference) => Ok(reference.pin_digest(signed)),
        _ => Err(invalid_error(format!("{reference} is not in a registry"))),
    }
}

/// Fails if `reference` is malformed.
pub fn check_reference(reference: &str) -> Result<(), SourceError> {
    ImageEndpoint::parse(reference).map(drop)
}

/// Returns the server that `reference` names; `None` for an image on this machine.
pub fn registry_host(reference: &str) -> Option<String> {
    match ImageEndpoint::parse(reference) {
        Ok(ImageEndpoint::Registry(reference)) => Some(reference.api_host().to_owned()),
        _ => None,
    }
}

fn open_store(reference: &str, network: &Arc<Network>) -> Result<Box<dyn ImageStore>, SourceError> {
    let stop = network.stop.clone();
    Ok(match ImageEndpoint::parse(reference)? {
        ImageEndpoint::Registry(reference) => {
            Box::new(RemoteRegistry::connect(reference, network).map_err(pull_error)?)
        }
        ImageEndpoint::Archive(path, image) => {
            Box::new(OciLayout::from_archive(path, image, stop).map_err(pull_error)?)
        }
        ImageEndpoint::Directory(path, image) => {
            Box::new(OciLayout::from_directory(path, image, stop))
        }
    })
}

impl Source for RegistrySource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.size)
    }

    fn has_own_digest(&self) -> bool {
        true
    }

    fn stated_disk(&self) -> Option<StatedDisk> {
        self.stated_disk
    }

    fn storage_location(&self) -> Option<StorageLocation> {
        self.storage
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let disk = self.disk.lock().take();
        match disk {
            Some(disk) => Ok(disk),
            None => Err(SourceError::new(
                SourceErrorKind::NotResumable,
                "the disk of a container image passes only once",
            )),
        }
    }
}
