//! The disks of an [`Engine`](super::Engine), and how the engine misbehaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::daemon::Daemon;
pub use crate::origin::Fault;

/// The only user.
pub const USER: &str = "admin@internal";
/// The user's password, which contains characters that a form must escape.
pub const PASSWORD: &str = "s3cret & more=%";
/// The ID of the only disk.
pub const DISK_ID: &str = "4a7e3b7c-5f54-4c1e-9d2c-0d1f3c6d9b11";
/// The ID of the disk's active image, to which the guest writes.
pub const IMAGE_ID: &str = "b9d1c2f0-7f0a-4f43-8a55-6f2b5e0e7a22";

/// An engine with one disk, and its faults.
#[derive(Debug, Clone)]
pub struct Script {
    /// The current content of the disk.
    pub disk: Contents,
    /// The contents of the disk's snapshots, by ID.
    pub snapshots: BTreeMap<String, Contents>,
    /// Error messages for the first requests that start a transfer, one each, as if the disk were
    /// locked.
    pub locked: Vec<&'static str>,
    /// How often a transfer is reported as initializing. The response to the request that starts
    /// it counts as the first time.
    pub initializing: usize,
    /// The phase that follows.
    pub phase: &'static str,
    /// Number of requests for which a token is valid.
    pub token_uses: usize,
    /// True if a transfer that has ended is forgotten at once, so that requests for it get 404.
    pub forgetful: bool,
    /// Maps `METHOD path` of the engine to a document that replaces the normal response, with
    /// status 200.
    pub documents: BTreeMap<String, Bytes>,
    /// How the image server responds to requests for extents.
    pub extents: Extents,
    /// Rate of every body from the image server in bytes per second; unlimited if `None`.
    pub rate: Option<u64>,
    /// The n-th GET of an image gets the n-th fault; later ones get none.
    pub faults: Vec<Fault>,
    /// The host name of the image server in URLs, instead of its address.
    pub host: Option<String>,
    /// The real daemon that serves the images. The settings of the image server above are then
    /// unused.
    pub daemon: Option<Arc<Daemon>>,
}

impl Script {
    /// An engine without faults.
    pub fn new(disk: Contents) -> Self {
        Self {
            disk,
            snapshots: BTreeMap::new(),
            locked: Vec::new(),
            initializing: 0,
            phase: "transferring",
            token_uses: usize::MAX,
            forgetful: false,
            documents: BTreeMap::new(),
            extents: Extents::Served,
            rate: None,
            faults: Vec::new(),
            host: None,
            daemon: None,
        }
    }
}

/// The content of a disk or snapshot, in both formats of a transfer.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// The complete disk as a raw image.
    pub raw: Bytes,
    /// The stored qcow2 image: the complete disk, or its changes since the previous snapshot.
    pub cow: Bytes,
}

/// How the image server responds to requests for the extents of a raw image.
#[derive(Debug, Clone)]
pub enum Extents {
    /// With the real extents, in steps of 64 KiB.
    Served,
    /// With an error: the server does not announce extents.
    Unsupported,
    /// With this text.
    Said(Bytes),
}
