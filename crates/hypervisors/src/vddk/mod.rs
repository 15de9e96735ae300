//! Disks of VMware machines, through nbdkit and VMware's library (VDDK), from the ESXi host
//! ([`crate::nfc`]), or by a lease.
//!
//! ```text
//!  VddkSource ── open ──► vSphere (SOAP): machine, snapshot, file, changes
//!                           ├──► NbdkitProcess (a child) ──► NbdSource over its socket
//!                           ├──► TicketDesk ──► NfcSource
//!                           └──► ExportLease ──► LeaseSource
//! ```
//!
//! If an earlier checkpoint is given, the bytes are the ranges that changed since then, one after
//! the other.

mod address;
#[doc(hidden)] // for the fuzz targets
pub mod answer;
#[doc(hidden)] // for the fuzz targets
pub mod areas;
mod body;
mod change_id;
mod changes;
mod disk;
mod inventory;
mod lease;
mod log;
mod nbdkit;
mod options;
pub(crate) mod pin;
mod program;
pub(crate) mod soap;
mod survey;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use ::program::report::VddkInfo;
use bytes::Bytes;
use fetch::Network;
use fetch::error::invalid_error;
use fetch::retry::with_lookup_limit;
use stream::changes::ChangedRanges;
use stream::error::{SourceError, SourceErrorKind};
use stream::options::StatedDisk;
use stream::source::{Source, SourceBody};

pub use self::address::MachineName;
use self::answer::resized_error;
use self::body::{VddkBody, VddkReadState};
pub use self::inventory::MachineEntry;
use self::lease::{LeaseSource, delta_error};
use self::log::ProgramLog;
pub use self::nbdkit::{RUN_WITH_PARENT, VddkInstallation};
pub use self::options::{VddkOptions, VddkSourceOptions, VmwareTransport};
use self::pin::Thumbprint;
pub use self::program::END_LIMIT;
use self::program::NbdkitProcess;
use self::soap::VsphereSession;
pub use self::soap::require_credentials;
pub use self::survey::{MachineSurvey, VmwareSurvey};
use super::nbd::{NbdSource, NbdUri};
use crate::blocks::RangedDisk;
use crate::nfc::{NfcSource, TicketDesk};

/// Longest time for which connecting to nbdkit is retried. nbdkit closes the connection if VMware's
/// library does not open the disk, which is nearly always final; vSphere has answered before.
const OPEN_LIMIT: Duration = Duration::from_secs(3);

/// A disk that nbdkit, its ESXi host or a lease serves. All methods block, so they must not be
/// called inside an asynchronous task.
pub struct VddkSource {
    // This field is dropped before `_supply`, so that its connections are closed first.
    disk: Box<dyn RangedDisk>,
    _supply: Option<DiskSupply>,
    changes: Option<ChangedRanges>,
    reading: VddkReadState,
    name: String,
}

/// The program or the tickets that the bytes of a disk depend on.
enum DiskSupply {
    Nbdkit { _process: NbdkitProcess },
    Host(Arc<TicketDesk>),
}

impl Drop for DiskSupply {
    fn drop(&mut self) {
        if let Self::Host(desk) = self {
            desk.close();
        }
    }
}

impl VddkSource {
    /// Finds the disk, and opens it on its host or with nbdkit. Must be called on the thread that
    /// the source lives on.
    pub fn open(options: &VddkOptions, network: &Arc<Network>) -> Result<Self, SourceError> {
        if options.access.uses_nbdkit() {
            check_architecture(std::env::consts::ARCH)?;
        }
        if options.checkpoints.previous.is_some()
            && options.access.transport == VmwareTransport::Lease
        {
            return Err(delta_error());
        }
        let network = verified_network(&options.access, network)?;
        let finding = VsphereSession::run(&options.endpoint, &network, async |session| {
            let VddkOptions { machine, disk, checkpoints, .. } = options;
            let finding = disk::find_disk(session, machine, disk, checkpoints);
            let found = with_lookup_limit(finding).await?;
            tracing::info!(?found, "found the disk in vSphere");
            let changes = changes::find_changes(session, &found, options, &network).await?;
            Ok((found, changes))
        });
        let (found, changes) = network.block_on(finding)?;
        let (file, machine) = (&found.disk.file, options.machine.as_str());
        let name = match &found.snapshot {
            Some(snapshot) => format!("{file} of {machine} in {}", snapshot.name),
            None => format!("{file} of {machine}"),
        };
        let is_test = options.access.is_for_tests();
        let (options, gone) = (options.clone(), network.stop.child_token());
        let reading = VddkReadState { options, network, found, log: ProgramLog::default(), gone };
        let (disk, supply) = if reading.options.access.uses_nbdkit() {
            open_with_nbdkit(&reading)?
        } else {
            open_on_host(&reading, &name)?
        };
        let changes = changes.map(|changes| on_exported(changes, &*disk, is_test)).transpose()?;
        Ok(Self { disk, _supply: supply, changes, reading, name })
    }

    /// Returns a function that returns the library's information about itself so far, even after
    /// the source was dropped. It is complete when the first byte has been read.
    pub fn library_info_reader(&self) -> impl Fn() -> VddkInfo + use<> {
        let log = self.reading.log.clone();
        move || log.library_info()
    }
}

/// A disk, and what it depends on.
type OpenedDisk = (Box<dyn RangedDisk>, Option<DiskSupply>);

/// Takes the disk from its ESXi host, or by a lease.
fn open_on_host(reading: &VddkReadState, name: &str) -> Result<OpenedDisk, SourceError> {
    let VddkReadState { options, network, found, .. } = reading;
    let VddkOptions { endpoint, access, .. } = options;
    if access.transport != VmwareTransport::Lease {
        let desk = Arc::new(TicketDesk::new(options, &found.machine, network));
        let supply = DiskSupply::Host(Arc::clone(&desk));
        let listing = changes::list_used_areas(endpoint, found, network);
        let is_optional = access.transport == VmwareTransport::Auto && found.since.is_none();
        let (file, capacity) = (&found.disk.file, found.disk.capacity);
        let disk = NfcSource::open(Arc::clone(&desk), file, capacity, listing, is_optional)?;
        reading.log.note_host(desk.host());
        if let Some(disk) = disk {
            return Ok((Box::new(disk), Some(supply)));
        }
    }
    Ok((Box::new(LeaseSource::open(endpoint, found, name, network)?), None))
}

/// Starts nbdkit for the disk and connects to it.
fn open_with_nbdkit(reading: &VddkReadState) -> Result<OpenedDisk, SourceError> {
    let nbdkit = NbdkitProcess::start(reading)?;
    let uri = NbdUri::from_unix_path(&nbdkit.socket_path());
    let local = reading.network.clone_with(|network| {
        network.stop = reading.gone.clone();
        network.retry_policy.contact_limit = OPEN_LIMIT;
    });
    match NbdSource::open_uri(uri, &local) {
        Ok(disk) => Ok((Box::new(disk), Some(DiskSupply::Nbdkit { _process: nbdkit }))),
        Err(error) => {
            // The socket only shows that nbdkit is gone; the log shows what the library rejected.
            drop(nbdkit);
            Err(reading.explain_error(error))
        }
    }
}

impl Source for VddkSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn total_bytes(&self) -> Option<u64> {
        match &self.changes {
            Some(changes) => Some(changes.changed_bytes()),
            None => self.disk.total_bytes(),
        }
    }

    fn is_ranged(&self) -> bool {
        self.changes.is_none() && self.disk.is_ranged()
    }

    fn has_own_digest(&self) -> bool {
        self.disk.has_own_digest()
    }

    fn stated_disk(&self) -> Option<StatedDisk> {
        self.disk.stated_disk()
    }

    fn changed_ranges(&self) -> Option<&ChangedRanges> {
        self.changes.as_ref()
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let bytes = match &self.changes {
            Some(changes) => self.disk.ranges_body(changes.ranges())?,
            None => self.disk.open_body()?,
        };
        Ok(Box::new(VddkBody { bytes, reading: self.reading.clone(), is_checked: false }))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let bytes = self.disk.read_range(range);
        bytes.map_err(|error| self.reading.explain_error(error))
    }
}

/// Checks `changes` against the size of the open disk.
fn on_exported(
    changes: ChangedRanges,
    disk: &dyn RangedDisk,
    is_test: bool,
) -> Result<ChangedRanges, SourceError> {
    let (exported, told) = (disk.total_bytes().unwrap_or_default(), changes.disk_bytes());
    let agreed = if is_test {
        // In CDI's tests the plugin serves a file of 46137344 bytes, although vSphere reports a
        // disk of 2 GiB. All changes have to lie in that file. Before anything is written, it is
        // checked that the target has room for the file.
        ChangedRanges::new(exported, changes.ranges().iter().cloned())
    } else {
        // Both are the size of one disk in one snapshot. If they differ, vSphere and the library
        // look at different disks, or at states before and after a resize, and the bytes that
        // would be read are not the changed bytes. Upstream copies them.
        (exported == told).then_some(changes)
    };
    agreed.ok_or_else(|| resized_error(told, exported, "the VDDK library"))
}

/// Returns `network` with the TLS settings for the server. Certificates from the user take
/// precedence over the thumbprint. With neither, the server is not verified.
fn verified_network(
    access: &VddkSourceOptions,
    network: &Arc<Network>,
) -> Result<Arc<Network>, SourceError> {
    if access.has_certificates || network.insecure {
        return Ok(Arc::clone(network));
    }
    // CDI's own tests replace the library with a test plugin and pass "testprint" as the
    // thumbprint. With that plugin, such text is ignored. Everywhere else it is rejected, because a
    // user who gives a thumbprint must not be connected to an unverified server.
    let is_test = access.is_for_tests();
    let thumbprint =
        access.thumbprint.as_ref().filter(|text| !is_test || Thumbprint::is_meant(text));
    let tls = match thumbprint {
        Some(thumbprint) => Thumbprint::parse(thumbprint)?.client_config()?,
        None => {
            tracing::warn!(
                "neither certificates nor a thumbprint are given: the vSphere server is not verified"
            );
            let config = https::tls::insecure_client_config();
            let invalid = |error| SourceError::from_cause(SourceErrorKind::Invalid, error);
            Arc::new(config.map_err(invalid)?)
        }
    };
    Ok(network.clone_with(|network| network.tls = tls))
}

/// Fails if VMware's library does not exist for this architecture. `rust_name` is Rust's name of
/// the architecture; the error shows Go's name, which users know.
fn check_architecture(rust_name: &str) -> Result<(), SourceError> {
    let name = match rust_name {
        "x86_64" => return Ok(()),
        "aarch64" => "arm64",
        other => other,
    };
    Err(invalid_error(format!("the {name} architecture does not support VDDK")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_architectures_are_reported_by_their_usual_names() {
        assert!(check_architecture("x86_64").is_ok());
        for (rust_name, name) in [("aarch64", "arm64"), ("s390x", "s390x")] {
            assert_eq!(
                check_architecture(rust_name).unwrap_err().to_string(),
                format!("the {name} architecture does not support VDDK")
            );
        }
    }
}
