//! The disks that an [`Engine`](super::Engine) knows, and its misbehaviour.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::daemon::Daemon;
pub use crate::origin::Fault;

/// The user that may log in.
pub const USER: &str = "admin@internal";
/// With this password; a client has to escape it in a form.
pub const PASSWORD: &str = "s3cret & more=%";
/// The only disk.
pub const DISK_ID: &str = "4a7e3b7c-5f54-4c1e-9d2c-0d1f3c6d9b11";
/// The image that the disk's guest writes to.
pub const IMAGE_ID: &str = "b9d1c2f0-7f0a-4f43-8a55-6f2b5e0e7a22";

/// An engine with one disk, and the faults that happen meanwhile.
#[derive(Debug, Clone)]
pub struct Script {
    /// The content of the disk now.
    pub disk: Contents,
    /// The content of its snapshots, by their ids.
    pub snapshots: BTreeMap<String, Contents>,
    /// The texts with which requests for a transfer find the disk locked, one request each.
    pub locked: Vec<&'static str>,
    /// Looks at a transfer that find it initializing: the first one is the answer to the request for it.
    pub initializing: usize,
    /// The phase after that.
    pub phase: &'static str,
    /// Requests for which a token is good.
    pub token_uses: usize,
    /// A transfer that ended is forgotten at once: 404.
    pub forgetful: bool,
    /// Method and path (of the engine) → what is answered instead, with status 200.
    pub documents: BTreeMap<String, Bytes>,
    /// The image server's answer about extents.
    pub extents: Extents,
    /// A ticket that was neither read nor extended for so long is refused (403), and the transfer is paused.
    pub ticket_life: Duration,
    /// Bytes per second of every body of the image server; unlimited when `None`.
    pub rate: Option<u64>,
    /// The n-th GET of an image meets the n-th fault; later ones meet none.
    pub faults: Vec<Fault>,
    /// The host by which clients find the image server, instead of its address.
    pub host: Option<String>,
    /// Serves the images instead, while everything about the image server here is unused.
    pub daemon: Option<Arc<Daemon>>,
}

impl Script {
    /// An engine without a fault.
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
            ticket_life: Duration::from_secs(60),
            rate: None,
            faults: Vec::new(),
            host: None,
            daemon: None,
        }
    }
}

/// A disk or a snapshot of it, in both formats that a transfer can have.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// The whole disk.
    pub raw: Bytes,
    /// The qcow2 that the storage holds: the whole disk, or what is new since the snapshot before.
    pub cow: Bytes,
}

/// The image server's answer about the extents of a raw image.
#[derive(Debug, Clone)]
pub enum Extents {
    /// The truth, in steps of 64 KiB.
    Served,
    /// It knows nothing of extents, and does not claim to.
    Unsupported,
    /// This, whatever it is.
    Said(Bytes),
}
