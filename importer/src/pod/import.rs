//! The work of the pod: a transferred image, or a blank disk.

use std::sync::Arc;

use datapath::observe::Observer;
use datapath::options::{Payload, Reading, Writing};
use datapath::source::Source;
use datapath::{Error, archive, delta, disk, transfer};
use program::paths::Paths;
use program::report::Termination;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use volume::wording::Made;
use volume::{Volume, watch};

use super::config::{Config, Remote, SourceConfig};
use super::message::ImportFailed;
use crate::watch::Watch;

/// Message that the controllers expect after every success.
const COMPLETE: &str = "Import Complete";

/// Everything that the work needs.
pub(super) struct Import {
    pub(super) config: Config,
    pub(super) paths: Paths,
    pub(super) volume: Volume,
    pub(super) watch: Arc<Watch>,
    pub(super) handle: Handle,
    pub(super) stop: CancellationToken,
}

impl Import {
    /// Fills the disk and makes sure that it is on the medium. Returns the message for the controller, if any.
    pub(super) fn run(&self) -> Result<Option<Termination>, ImportFailed> {
        let message = match &self.config.source {
            SourceConfig::Blank => self.blank()?,
            SourceConfig::Remote(remote) => Some(self.remote(remote)?),
        };
        // The data path has synced it. CDI's tests look for these words.
        if self.config.made() != Made::Directory {
            tracing::debug!(
                "Successfully completed fsync({}) syscall, committed to disk",
                self.volume.path.display()
            );
        }
        if !matches!(self.config.source, SourceConfig::Blank) {
            self.watch.finish();
        }
        Ok(message)
    }

    fn blank(&self) -> Result<Option<Termination>, ImportFailed> {
        let options = self.volume.blank_options(&self.config.wanted);
        tracing::info!("creating a blank disk of {} bytes", options.available);
        disk::create_blank(&options, &self.stop).map_err(|error| {
            self.watch.failed(&error);
            ImportFailed::blank(&error, &options)
        })?;
        // Nothing was done to such a device, and the controllers expect nothing to be said about it.
        let is_untouched = self.volume.is_device && !self.config.wanted.preallocate;
        Ok((!is_untouched).then(|| Termination {
            scratch_space_required: None,
            ..self.success()
        }))
    }

    fn remote(&self, remote: &Remote) -> Result<Termination, ImportFailed> {
        if let Some(checksum) = &remote.checksum {
            tracing::info!("Checksum validation enabled: {checksum}");
        }
        let opened = self.open(remote)?;
        let verified = match remote.made {
            Made::Disk => self.transfer(remote, &*opened.source)?,
            Made::Directory => self.unpack(remote, &*opened.source)?,
            Made::Delta | Made::Changes => self.apply(remote, &*opened.source)?,
        };
        if let Some(checksum) = verified {
            tracing::info!("Checksum verification passed: {checksum}");
        }
        Ok(self.complete(opened, self.success()))
    }

    /// Gives, as the two below do, the checksum that was verified.
    fn transfer(&self, remote: &Remote, source: &dyn Source) -> Result<Option<String>, ImportFailed> {
        let target = self.volume.target_options(&self.config.wanted);
        let report = transfer::transfer(
            source,
            Payload::default(),
            &target,
            &self.reading(remote),
            &self.writing(),
        )
        .map_err(|error| self.failed(&error, Made::Disk))?;
        watch::log_transfer(report.source_bytes, report.written_bytes, &target.path);
        Ok(report.checksum)
    }

    fn unpack(&self, remote: &Remote, source: &dyn Source) -> Result<Option<String>, ImportFailed> {
        if self.volume.is_device {
            return Err(ImportFailed::process(
                "an archive needs a volume with a filesystem, and this one is a block device",
            ));
        }
        let target = archive::Options {
            dir: self.paths.data(),
            overwrite: true,
            available: self.volume.free,
        };
        let report = archive::unpack(source, &target, &self.reading(remote))
            .map_err(|error| self.failed(&error, Made::Directory))?;
        watch::log_unpacked(&report, &target.dir);
        Ok(report.checksum)
    }

    /// The difference to what an earlier stage of a warm import brought.
    fn apply(&self, remote: &Remote, source: &dyn Source) -> Result<Option<String>, ImportFailed> {
        let base = delta::Base {
            path: self.volume.path.clone(),
            available: self.volume.available,
            name: remote.base().unwrap_or_default().to_owned(),
            preallocated: self.config.wanted.preallocate,
            cache: self.config.wanted.cache,
        };
        let report = delta::apply(source, &base, &self.reading(remote), &self.writing())
            .map_err(|error| self.failed(&error, remote.made))?;
        watch::log_transfer(report.source_bytes, report.written_bytes, &base.path);
        Ok(report.checksum)
    }

    fn failed(&self, error: &Error, made: Made) -> ImportFailed {
        self.watch.failed(error);
        ImportFailed::transfer(error, self.watch.current_phase(), made)
    }

    fn reading(&self, remote: &Remote) -> Reading {
        let observer = Arc::clone(&self.watch) as Arc<dyn Observer>;
        Reading {
            checksum: remote.checksum.clone(),
            full_header: remote.needs_full_header(),
            ..self.config.limits.reading(self.stop.clone(), observer)
        }
    }

    fn writing(&self) -> Writing {
        Writing {
            workers: program::job::data_threads(),
            scratch: volume::scratch(self.paths.scratch()),
            ..Writing::default()
        }
    }

    fn success(&self) -> Termination {
        Termination {
            scratch_space_required: Some(false),
            // Nothing is preallocated in a directory.
            preallocation_applied: Some(self.config.wanted.preallocate && self.config.made() == Made::Disk),
            message: Some(COMPLETE.to_owned()),
            ..Termination::default()
        }
    }
}
