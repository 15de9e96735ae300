//! Disks of VMware machines, through nbdkit and VMware's library (VDDK).
//!
//! ```text
//!  VddkSource ── open: vSphere (SOAP): which machine, snapshot, file ──► Nbdkit (a child) ──► NbdSource over its socket
//! ```
//!
//! The disk is read as a raw disk; a caller must not look for an image in what a guest has written.

mod answer;
mod disk;
mod log;
mod nbdkit;
mod pin;
mod program;
mod soap;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::{Body, Source};
use url::Url;

use self::disk::Found;
pub use self::log::VddkInfo;
pub use self::nbdkit::Installation;
use self::nbdkit::{Disk, Nbdkit};
use self::pin::Thumbprint;
use self::soap::Session;
use super::nbd::{NbdSource, NbdUri};
use super::network::Network;
use super::retry::lookup;
use crate::error::invalid;

/// The disk, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VddkOptions {
    /// vCenter or ESXi; its API is at `/sdk` below.
    pub endpoint: Url,
    /// The machine's uuid: of its instance, or of its BIOS.
    pub uuid: String,
    /// The disk's file: `[datastore1] vm/disk.vmdk`.
    pub backing_file: String,
    /// The thumbprint of the server's certificate, which the library wants to know.
    pub thumbprint: Option<String>,
    /// The snapshot to read: its name, or the name of its object.
    pub current_checkpoint: Option<String>,
    /// Snapshot that the target already holds: not supported.
    pub previous_checkpoint: Option<String>,
    /// True if certificates of servers are verified with those that the user has given: without them, nothing is known
    /// about the server but its thumbprint.
    pub has_certificates: bool,
    /// Places of programs and libraries.
    pub installation: Installation,
}

/// A disk that nbdkit serves. All methods block; do not call them inside an asynchronous task.
pub struct VddkSource {
    // Before nbdkit, so that its connections are closed before nbdkit ends.
    disk: NbdSource,
    nbdkit: Nbdkit,
    name: String,
}

impl VddkSource {
    /// Finds the disk, starts nbdkit for it and connects to that. To be called on the thread that the source lives on.
    pub fn open(options: &VddkOptions, network: &Arc<Network>) -> Result<Self, SourceError> {
        check_architecture(std::env::consts::ARCH)?;
        check_checkpoints(options)?;
        let Some(credentials) = &network.credentials else {
            return Err(invalid("vSphere needs a user name and a password"));
        };
        let tls = trust(options, network)?;
        let network = network.but(|network| network.tls = tls);
        let found = network.block_on(find(options, &network))?;
        let disk = Disk {
            server: options.endpoint.host_str().unwrap_or_default(),
            user: credentials.user(),
            password: credentials.password(),
            thumbprint: options.thumbprint.as_deref(),
            machine: &found.machine,
            snapshot: found.snapshot.as_deref(),
            file: &found.file,
        };
        let nbdkit = Nbdkit::start(&options.installation, &disk, &network.stop)?;
        let uri = NbdUri::unix(&nbdkit.socket(), "");
        let disk = match NbdSource::at(uri, &network) {
            Ok(disk) => disk,
            Err(error) => {
                // The socket tells only that nbdkit is gone; its log tells what the library did not like.
                let message = format!("{error}: {}", nbdkit.end_with_reason());
                return Err(SourceError::new(error.kind(), message).because(error));
            }
        };
        Ok(Self {
            disk,
            nbdkit,
            name: format!("{} of {}", found.file, options.uuid),
        })
    }

    /// Words of the library about itself so far; complete when the first byte has been read.
    pub fn info(&self) -> VddkInfo {
        self.nbdkit.info()
    }

    /// Returns a function that tells what [`VddkSource::info`] does, also after the source is gone.
    pub fn informer(&self) -> impl Fn() -> VddkInfo + use<> {
        let log = self.nbdkit.log();
        move || log.info()
    }
}

impl Source for VddkSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn length(&self) -> Option<u64> {
        self.disk.length()
    }

    fn is_ranged(&self) -> bool {
        self.disk.is_ranged()
    }

    fn body(&self) -> Result<Box<dyn Body>, SourceError> {
        self.disk.body()
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        self.disk.read_range(range)
    }
}

async fn find(options: &VddkOptions, network: &Arc<Network>) -> Result<Found, SourceError> {
    let mut session = Session::open(&options.endpoint, network).await?;
    let snapshot = options.current_checkpoint.as_deref();
    let found = lookup(disk::find(
        &mut session,
        &options.uuid,
        &options.backing_file,
        snapshot,
    ))
    .await;
    session.close().await;
    let found = found?;
    tracing::info!(?found, "vSphere knows the disk");
    Ok(found)
}

/// Certificates that the user has given win over the thumbprint; with neither, the server is not known.
fn trust(options: &VddkOptions, network: &Arc<Network>) -> Result<Arc<rustls::ClientConfig>, SourceError> {
    let verified = options.has_certificates || network.insecure;
    match &options.thumbprint {
        Some(thumbprint) if !verified => Thumbprint::parse(thumbprint)?.client_config(),
        None if !verified => {
            tracing::warn!(
                "neither certificates nor a thumbprint are given: the vSphere server is not verified"
            );
            let config = daemon::tls::insecure_client_config();
            config
                .map(Arc::new)
                .map_err(|error| SourceError::of(SourceErrorKind::Invalid, error))
        }
        _ => Ok(Arc::clone(&network.tls)),
    }
}

/// VMware's library exists for one architecture. `rust_name` is Rust's name for ours; users know Go's.
fn check_architecture(rust_name: &str) -> Result<(), SourceError> {
    let name = match rust_name {
        "x86_64" => return Ok(()),
        "aarch64" => "arm64",
        other => other,
    };
    Err(invalid(format!("the {name} architecture does not support VDDK")))
}

fn check_checkpoints(options: &VddkOptions) -> Result<(), SourceError> {
    match (&options.previous_checkpoint, &options.current_checkpoint) {
        (None, _) => Ok(()),
        (Some(_), None) => Err(invalid("previous checkpoint set without current")),
        (Some(previous), Some(current)) => Err(invalid(format!(
            "copying what changed between the checkpoints {previous} and {current} of a VMware disk is not supported: \
             import the disk at once"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_architectures_are_named_as_users_know_them() {
        assert!(check_architecture("x86_64").is_ok());
        for (rust_name, name) in [("aarch64", "arm64"), ("s390x", "s390x")] {
            assert_eq!(
                check_architecture(rust_name).unwrap_err().to_string(),
                format!("the {name} architecture does not support VDDK")
            );
        }
    }
}
