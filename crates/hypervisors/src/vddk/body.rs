//! The body of a VMware disk. Errors include reasons from nbdkit's log, and at the end vSphere is
//! asked whether the snapshot is unchanged.

use std::sync::Arc;

use bytes::Bytes;
use fetch::Network;
use fetch::retry::with_lookup_limit;
use stream::error::{SourceError, SourceErrorKind};
use stream::source::SourceBody;
use tokio_util::sync::CancellationToken;

use super::disk::LocatedDisk;
use super::log::ProgramLog;
use super::options::VddkOptions;
use super::soap::VsphereSession;

/// The state of a disk that is being read.
#[derive(Clone)]
pub(super) struct VddkReadState {
    pub(super) options: VddkOptions,
    pub(super) network: Arc<Network>,
    pub(super) found: LocatedDisk,
    /// The log of nbdkit; empty if the disk is read without it.
    pub(super) log: ProgramLog,
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
            SourceErrorKind::Stopped => error,
            kind if !reason.is_empty() => {
                SourceError::new(kind, format!("{error}: {reason}")).with_cause(error)
            }
            _ => error,
        }
    }

    /// Asks vSphere again after everything was read: if the snapshot was removed meanwhile, the
    /// data may have changed during the read.
    fn check_unchanged(&self) -> Result<(), SourceError> {
        let LocatedDisk { snapshot: Some(snapshot), disk, .. } = &self.found else {
            return Ok(());
        };
        let checking =
            VsphereSession::run(&self.options.endpoint, &self.network, async |session| {
                with_lookup_limit(disk.check_unchanged(session, snapshot)).await
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

/// The bytes of the disk. The end is reported only if the snapshot still exists in vSphere.
pub(super) struct VddkBody {
    pub(super) bytes: Box<dyn SourceBody>,
    pub(super) reading: VddkReadState,
    pub(super) is_checked: bool,
}

impl SourceBody for VddkBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let chunk = self.bytes.next_chunk();
        let chunk = chunk.map_err(|error| self.reading.explain_error(error))?;
        if chunk.is_none() && !self.is_checked {
            self.reading.check_unchanged()?;
            self.is_checked = true;
        }
        Ok(chunk)
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let skipped = self.bytes.skip_to(offset);
        skipped.map_err(|error| self.reading.explain_error(error))
    }
}
