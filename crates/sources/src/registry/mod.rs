//! Container images: the disk in a layer of one, straight from the registry.
//!
//! ```text
//!  reference ─► remote (session, dialect) ─┐                      ┌─► platform ─► one image
//!            └► layout (directory, tar) ───┴─► store ─► manifest ─┤
//!                                                                 └─► config: labels, variables
//!  layers, from the top down:  store ─► length, digest ─► decode ─► tar ─► lookup ─► the disk's bytes
//! ```
//!
//! Everything that is read has the digest that the reference, the index or the manifest says; the end of the disk is
//! reported when its whole layer was verified. Nothing is kept: the layer passes once.
//!
//! Not by `oci-client`: it takes neither our proxies nor our roots, hides status and challenge, which CDI's
//! controllers report, and holds manifests to no limit.

mod challenge;
mod dialect;
mod digest;
mod image;
mod layer;
mod layout;
mod lookup;
mod manifest;
mod messages;
mod platform;
mod reference;
mod refusal;
mod remote;
mod session;
mod store;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::{Source, SourceBody};
use datapath::storage::StorageLocation;
use parking_lot::Mutex;

use self::image::RegistryImage;
use self::layer::{ContainerDisk, find_disk};
use self::layout::OciLayout;
use self::messages::pull_error;
use self::reference::ImageEndpoint;
use self::remote::RemoteRegistry;
use self::store::ImageStore;
use crate::error::invalid_error;
use crate::network::Network;

/// The name that registries know CDI by.
const USER_AGENT: &str = "containers/5.32.0 (github.com/containers/image)";

/// The name that proxies know CDI's tunnels to registries by.
const CONNECT_AGENT: &str = "Go-http-client/1.1";

/// Particulars of a registry source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryOptions {
    /// The architecture in Go's terms; without it that of this machine.
    pub architecture: Option<String>,
}

/// The disk in a container image.
pub struct RegistrySource {
    name: String,
    digest: String,
    environment: Vec<String>,
    size: u64,
    storage: Option<StorageLocation>,
    disk: Mutex<Option<ContainerDisk>>,
}

impl RegistrySource {
    /// Finds the disk in the image that `reference` names: `docker://…`, `oci-archive:…` or `oci:…`. Layers above the one
    /// that has it are read here.
    ///
    /// The messages of errors are what CDI has after `Failed to read registry image: `.
    pub fn open(
        reference: &str,
        network: &Arc<Network>,
        options: &RegistryOptions,
    ) -> Result<Self, SourceError> {
        let store = open_store(reference, network)?;
        let image = RegistryImage::open(&*store, options.architecture.as_deref())?;
        let disk = find_disk(&*store, &image.layers)?;
        Ok(Self {
            name: store.image_name(),
            digest: image.digest.to_string(),
            environment: image.config.env_variables().to_vec(),
            size: disk.size_bytes(),
            storage: store.storage_location(),
            disk: Mutex::new(Some(disk)),
        })
    }

    /// The variables of the image's containers, `NAME=value` each.
    pub fn env_variables(&self) -> &[String] {
        &self.environment
    }

    /// The digest of what the reference names: that of the index if it is one.
    pub fn image_digest(&self) -> &str {
        &self.digest
    }
}

/// The digest of what `reference` names at the moment; no image is chosen, and no layer read.
pub fn resolve_digest(reference: &str, network: &Arc<Network>) -> Result<String, SourceError> {
    let store = open_store(reference, network)?;
    Ok(store.read_root().map_err(pull_error)?.digest.to_string())
}

/// Fails if `reference` is malformed.
pub(crate) fn check_reference(reference: &str) -> Result<(), SourceError> {
    ImageEndpoint::parse(reference).map(drop)
}

/// The server that `reference` names; none for what is on this machine.
pub(crate) fn registry_host(reference: &str) -> Option<String> {
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
        ImageEndpoint::Directory(path, image) => Box::new(OciLayout::from_directory(path, image, stop)),
    })
}

impl Source for RegistrySource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.size)
    }

    fn is_ranged(&self) -> bool {
        false
    }

    fn has_own_digest(&self) -> bool {
        true
    }

    fn storage_location(&self) -> Option<StorageLocation> {
        self.storage
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let disk = self.disk.lock().take();
        match disk {
            Some(disk) => Ok(Box::new(disk)),
            None => Err(SourceError::new(
                SourceErrorKind::NotResumable,
                "the disk of a container image passes only once",
            )),
        }
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let message = format!("bytes {} to {} of a layer cannot be read alone", range.start, range.end);
        Err(invalid_error(message))
    }
}
