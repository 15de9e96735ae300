//! A VMware disk that is open, and its body.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fetch::Network;
use fetch::error::invalid_error;
use fetch::retry::with_lookup_limit;
use program::report::VddkInfo;
use stream::changes::ChangedRanges;
use stream::error::SourceError;
use stream::options::StatedDisk;
use stream::source::{Source, SourceBody};

use super::changes::{find_changes, list_used_areas};
use super::disk::find_disk;
use super::lease::{delta_error, open_lease};
use super::log::ProgramLog;
use super::nbdkit::NbdkitProcess;
use super::options::{VddkOptions, VmwareTransport};
use super::reading::{DiskSupply, VddkReadState};
use super::soap::VsphereSession;
use crate::blocks::RangedDisk;
use crate::nbd::{NbdSource, NbdUri};
use crate::nfc::{NfcSource, TicketDesk};

/// Longest time for which connecting to nbdkit is retried. nbdkit closes the connection if VMware's
/// library does not open the disk, which is nearly always final; vSphere has answered before.
const OPEN_LIMIT: Duration = Duration::from_secs(3);

/// A disk that nbdkit, its ESXi host or a lease serves. All methods block, so they must not be
/// called inside an asynchronous task.
pub struct VddkSource {
    // This field is dropped before `_supply`, so that its connections are closed first.
    disk: Box<dyn RangedDisk>,
    _supply: DiskSupply,
    changes: Option<ChangedRanges>,
    reading: VddkReadState,
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
        let network = options.access.verified_network(network)?;
        let finding = VsphereSession::run(&options.endpoint, &network, async |session| {
            let found = with_lookup_limit(find_disk(session, options)).await?;
            tracing::info!(?found, "found the disk in vSphere");
            let changes = find_changes(session, &found, options, &network).await?;
            Ok((found, changes))
        });
        let (found, changes) = network.block_on(finding)?;
        let (file, machine) = (&found.disk.file, &options.machine);
        let name = match &found.snapshot {
            Some(snapshot) => format!("{file} of {machine} in {}", snapshot.name),
            None => format!("{file} of {machine}"),
        };
        let (options, gone) = (options.clone(), network.stop.child_token());
        let log = Arc::new(ProgramLog::default());
        let reading = VddkReadState { name, options, network, found, log, gone };
        let (disk, supply) = if reading.options.access.uses_nbdkit() {
            open_with_nbdkit(&reading)?
        } else {
            open_on_host(&reading)?
        };
        let exported = disk.total_bytes().unwrap_or_default();
        let changes = changes.map(|changes| reading.on_exported(changes, exported)).transpose()?;
        Ok(Self { disk, _supply: supply, changes, reading })
    }

    /// Returns a function that returns the library's information about itself so far, even after
    /// the source was dropped. It is complete when the first byte has been read.
    pub fn library_info_reader(&self) -> impl Fn() -> VddkInfo + use<> {
        let log = Arc::clone(&self.reading.log);
        move || log.library_info()
    }
}

/// Takes the disk from its ESXi host, or by a lease.
fn open_on_host(reading: &VddkReadState) -> Result<(Box<dyn RangedDisk>, DiskSupply), SourceError> {
    let VddkReadState { options: VddkOptions { endpoint, access, .. }, network, found, .. } =
        reading;
    if access.transport != VmwareTransport::Lease {
        let desk = TicketDesk::open(&reading.options, &found.machine, network);
        let listing = list_used_areas(endpoint, found, network);
        let is_optional = access.transport == VmwareTransport::Auto && found.since.is_none();
        let (file, capacity) = (&found.disk.file, found.disk.capacity);
        let disk = NfcSource::open(Arc::clone(&desk.0), file, capacity, listing, is_optional)?;
        reading.log.note_host(desk.0.host());
        if let Some(disk) = disk {
            return Ok((Box::new(disk), Some(Box::new(desk))));
        }
    }
    open_lease(reading)
}

/// Starts nbdkit for the disk and connects to it.
fn open_with_nbdkit(
    reading: &VddkReadState,
) -> Result<(Box<dyn RangedDisk>, DiskSupply), SourceError> {
    let nbdkit = NbdkitProcess::start(reading)?;
    let uri = NbdUri::from_unix_path(&nbdkit.socket_path());
    let local = reading.network.clone_with(|network| {
        network.stop = reading.gone.clone();
        network.retry_policy.contact_limit = OPEN_LIMIT;
    });
    match NbdSource::open_uri(uri, &local) {
        Ok(disk) => Ok((Box::new(disk), Some(Box::new(nbdkit)))),
        Err(error) => {
            // The socket only shows that nbdkit is gone; the log shows what the library rejected.
            drop(nbdkit);
            Err(reading.explain_error(error))
        }
    }
}

impl Source for VddkSource {
    fn name(&self) -> String {
        self.reading.name.clone()
    }

    fn total_bytes(&self) -> Option<u64> {
        let changed = self.changes.as_ref().map(ChangedRanges::changed_bytes);
        changed.or_else(|| self.disk.total_bytes())
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
        Ok(Box::new(VddkBody { bytes, reading: self.reading.clone() }))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        self.disk.read_range(range).map_err(|error| self.reading.explain_error(error))
    }
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

/// The bytes of the disk. The end is reported only if the snapshot still exists in vSphere.
struct VddkBody {
    bytes: Box<dyn SourceBody>,
    reading: VddkReadState,
}

impl SourceBody for VddkBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let chunk = self.bytes.next_chunk().map_err(|error| self.reading.explain_error(error))?;
        if chunk.is_none() {
            self.reading.check_unchanged()?;
        }
        Ok(chunk)
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        self.bytes.skip_to(offset).map_err(|error| self.reading.explain_error(error))
    }
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
