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
mod platform;
mod reference;
mod refusal;
mod remote;
mod session;
mod store;
mod wording;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::{Body, Source};
use datapath::storage::Storage;
use parking_lot::Mutex;

use self::image::Image;
use self::layer::{Disk, find_disk};
use self::layout::Layout;
use self::reference::Endpoint;
use self::remote::Remote;
use self::store::Store;
use self::wording::pulled;
use crate::error::invalid;
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
    storage: Option<Storage>,
    disk: Mutex<Option<Disk>>,
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
        let image = Image::open(&*store, options.architecture.as_deref())?;
        let disk = find_disk(&*store, &image.layers)?;
        Ok(Self {
            name: store.name(),
            digest: image.digest.to_string(),
            environment: image.config.environment().to_vec(),
            size: disk.size(),
            storage: store.storage(),
            disk: Mutex::new(Some(disk)),
        })
    }

    /// The variables of the image's containers, `NAME=value` each.
    pub fn environment(&self) -> &[String] {
        &self.environment
    }

    /// The digest of what the reference names: that of the index if it is one.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// The digest of what `reference` names at the moment; no image is chosen, and no layer read.
pub fn resolve_digest(reference: &str, network: &Arc<Network>) -> Result<String, SourceError> {
    let store = open_store(reference, network)?;
    Ok(store.top().map_err(pulled)?.digest.to_string())
}

/// The server that `reference` names; none for what is on this machine.
pub(crate) fn host(reference: &str) -> Option<String> {
    match Endpoint::parse(reference) {
        Ok(Endpoint::Registry(reference)) => Some(reference.host().to_owned()),
        _ => None,
    }
}

fn open_store(reference: &str, network: &Arc<Network>) -> Result<Box<dyn Store>, SourceError> {
    let stop = network.stop.clone();
    Ok(match Endpoint::parse(reference)? {
        Endpoint::Registry(reference) => Box::new(Remote::connect(reference, network).map_err(pulled)?),
        Endpoint::Archive(path, image) => Box::new(Layout::archive(path, image, stop).map_err(pulled)?),
        Endpoint::Directory(path, image) => Box::new(Layout::directory(path, image, stop)),
    })
}

impl Source for RegistrySource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn length(&self) -> Option<u64> {
        Some(self.size)
    }

    fn is_ranged(&self) -> bool {
        false
    }

    fn verifies(&self) -> bool {
        true
    }

    fn storage(&self) -> Option<Storage> {
        self.storage
    }

    fn body(&self) -> Result<Box<dyn Body>, SourceError> {
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
        let message = format!(
            "bytes {} to {} of a layer cannot be read alone",
            range.start, range.end
        );
        Err(invalid(message))
    }
}
