//! The state of a VMware disk that is being read. Errors include reasons from nbdkit's log, and at
//! the end vSphere is asked whether the snapshot is unchanged.

use std::sync::Arc;

use fetch::Network;
use fetch::error::invalid_error;
use fetch::retry::with_lookup_limit;
use stream::changes::ChangedRanges;
use stream::error::{SourceError, SourceErrorKind};
use tokio_util::sync::CancellationToken;

use super::answer::resized_error;
use super::disk::LocatedDisk;
use super::log::ProgramLog;
use super::options::VddkOptions;
use super::soap::VsphereSession;

/// The program or the tickets that the bytes of a disk depend on, until it is dropped.
pub(super) type DiskSupply = Option<Box<dyn Send + Sync>>;

/// The state of a disk that is being read.
#[derive(Clone)]
pub(super) struct VddkReadState {
    /// The name of the source in logs.
    pub(super) name: String,
    pub(super) options: VddkOptions,
    pub(super) network: Arc<Network>,
    pub(super) found: LocatedDisk,
    /// The log of nbdkit; empty if the disk is read without it.
    pub(super) log: Arc<ProgramLog>,
    /// Cancelled when nbdkit has ended, so that every wait for it ends at once instead of at its
    /// time limit.
    pub(super) gone: CancellationToken,
}

impl VddkReadState {
    /// Adds the reason from nbdkit's log to `error`.
    pub(super) fn explain_error(&self, error: SourceError) -> SourceError {
        // The connection to nbdkit is cancelled as soon as nbdkit has ended, so its error looks
        // like a stop.
        let is_dead = self.gone.is_cancelled() && !self.network.stop.is_cancelled();
        let reason = self.log.last_errors();
        match error.kind() {
            SourceErrorKind::Stopped if is_dead => {
                let message = format!("nbdkit ended while the disk was read: {reason}");
                SourceError::new(SourceErrorKind::Io, message).with_cause(error)
            }
            kind if kind != SourceErrorKind::Stopped && !reason.is_empty() => {
                SourceError::new(kind, format!("{error}: {reason}")).with_cause(error)
            }
            _ => error,
        }
    }

    /// Checks `changes` against the size of the open disk.
    pub(super) fn on_exported(
        &self,
        changes: ChangedRanges,
        exported: u64,
    ) -> Result<ChangedRanges, SourceError> {
        let told = changes.disk_bytes();
        let agreed = if self.options.access.is_for_tests() {
            // In CDI's tests the plugin serves a file of 46137344 bytes, although vSphere reports a
            // disk of 2 GiB. All changes have to lie in that file. Before anything is written, it
            // is checked that the target has room for the file.
            ChangedRanges::new(exported, changes.ranges().iter().cloned())
        } else {
            // Both are the size of one disk in one snapshot. If they differ, vSphere and the
            // library look at different disks, or at states before and after a resize, and the
            // bytes that would be read are not the changed bytes. Upstream copies them.
            (exported == told).then_some(changes)
        };
        agreed.ok_or_else(|| resized_error(told, exported, "the VDDK library"))
    }

    /// Asks vSphere again after everything was read: if the snapshot was removed meanwhile, the
    /// data may have changed during the read.
    pub(super) fn check_unchanged(&self) -> Result<(), SourceError> {
        let LocatedDisk { snapshot: Some(snapshot), disk, .. } = &self.found else {
            return Ok(());
        };
        let checking =
            VsphereSession::run(&self.options.endpoint, &self.network, async |session| {
                let finding = disk.at_snapshot(session, snapshot, &snapshot.name);
                let now = with_lookup_limit(finding).await?;
                (now == *disk).then_some(()).ok_or_else(|| {
                    invalid_error(format!(
                        "the disk in the snapshot {} was {} when reading began and is {} now",
                        snapshot.name, disk.file, now.file
                    ))
                })
            });
        self.network.block_on(checking).map_err(|error| match error.kind() {
            SourceErrorKind::Stopped => error,
            _ => SourceError::with_context(
                SourceErrorKind::Changed,
                "the snapshot has changed since reading began, start this stage again",
                error,
            ),
        })
    }
}
