//! The work of the pod: imports an image, or creates a blank disk.

use std::sync::Arc;

use datapath::options::WriteOptions;
use datapath::unpack;
use datapath::{delta, disk, transfer};
use program::paths::PodPaths;
use program::report::TerminationMessage;
use reporting::figures::CountedTransfer;
use reporting::messages::ProductKind;
use reporting::watch;
use stream::Error;
use stream::observe::Observer;
use stream::options::{PayloadKind, ReadOptions};
use stream::source::Source;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use volume::TargetVolume;

use super::config::{Config, RemoteSource, SourceConfig};
use super::message::PodImportError;
use super::provenance::Provenance;

/// Message that the controllers expect after every success.
const COMPLETE: &str = "Import Complete";

/// The settings and resources that the work needs.
pub(super) struct PodImport {
    pub(super) config: Config,
    pub(super) paths: PodPaths,
    pub(super) volume: TargetVolume,
    pub(super) watch: Arc<CountedTransfer>,
    pub(super) handle: Handle,
    pub(super) stop: CancellationToken,
}

impl PodImport {
    /// Fills the disk and makes sure that it is on the medium. Returns the message for the
    /// controller, if there is one.
    pub(super) fn run(&self) -> Result<Option<TerminationMessage>, PodImportError> {
        let message = match &self.config.source {
            SourceConfig::Blank => self.create_blank()?,
            SourceConfig::Remote(remote) => Some(self.import_remote(remote)?),
        };
        // The data path has already synced the disk. CDI's tests look for this message.
        if self.config.product_kind() != ProductKind::Directory {
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

    fn create_blank(&self) -> Result<Option<TerminationMessage>, PodImportError> {
        let options = self.volume.blank_options(&self.config.wanted);
        tracing::info!("creating a blank disk of {} bytes", options.available);
        disk::create_blank(&options, &self.stop).map_err(|error| {
            self.watch.record_failure(&error);
            PodImportError::from_blank(&error, &options)
        })?;
        // Nothing was written to such a device, and the controllers expect no message about it.
        let is_untouched = self.volume.is_device && !self.config.wanted.preallocate;
        Ok((!is_untouched)
            .then(|| TerminationMessage { scratch_space_required: None, ..self.success_message() }))
    }

    fn import_remote(&self, remote: &RemoteSource) -> Result<TerminationMessage, PodImportError> {
        if let Some(checksum) = &remote.checksum {
            tracing::info!("Checksum validation enabled: {checksum}");
        }
        let opened = self.open_source(remote)?;
        let imported = match remote.made {
            ProductKind::Disk => self.transfer_disk(remote, &*opened.source)?,
            ProductKind::Directory => self.unpack_archive(remote, &*opened.source)?,
            ProductKind::Delta | ProductKind::Changes => {
                self.apply_delta(remote, &*opened.source)?
            }
        };
        if let Some(checksum) = &imported.digest {
            tracing::info!("Checksum verification passed: {checksum}");
        }
        Ok(self.complete_message(opened, imported, self.success_message()))
    }

    /// Writes an image to the disk. Returns the facts that are known about it then.
    fn transfer_disk(
        &self,
        remote: &RemoteSource,
        source: &dyn Source,
    ) -> Result<Provenance, PodImportError> {
        let target = self.volume.target_options(&self.config.wanted);
        let report = transfer::transfer_image(
            source,
            PayloadKind::from(remote.format),
            &target,
            &self.read_options(remote),
            &self.write_options(),
        )
        .map_err(|error| self.record_failure(&error, ProductKind::Disk))?;
        watch::log_transfer(report.source_bytes, report.written_bytes, &target.path);
        Ok(Provenance { digest: report.checksum, disk_bytes: Some(report.virtual_size) })
    }

    fn unpack_archive(
        &self,
        remote: &RemoteSource,
        source: &dyn Source,
    ) -> Result<Provenance, PodImportError> {
        if self.volume.is_device {
            return Err(PodImportError::from_process(
                "an archive needs a volume with a filesystem, and this one is a block device",
            ));
        }
        let target = unpack::UnpackOptions {
            dir: self.paths.data_path(),
            overwrite: true,
            available: self.volume.free,
        };
        let report = unpack::unpack_archive(source, &target, &self.read_options(remote))
            .map_err(|error| self.record_failure(&error, ProductKind::Directory))?;
        watch::log_unpacked(report.source_bytes, report.entries, report.data_bytes, &target.dir);
        Ok(Provenance { digest: report.checksum, disk_bytes: None })
    }

    /// Applies the difference to the disk that an earlier stage of a warm import has written.
    fn apply_delta(
        &self,
        remote: &RemoteSource,
        source: &dyn Source,
    ) -> Result<Provenance, PodImportError> {
        let base = delta::DeltaBase {
            disk: disk::DiskOptions {
                preallocate: self.config.wanted.preallocate,
                cache: self.config.wanted.cache,
                ..disk::DiskOptions::new(&self.volume.path, self.volume.available)
            },
            name: Some(remote.base_snapshot().unwrap_or_default().to_owned()),
            may_be_larger: true,
        };
        let report =
            delta::apply_delta(source, &base, &self.read_options(remote), &self.write_options())
                .map_err(|error| self.record_failure(&error, remote.made))?;
        watch::log_transfer(report.source_bytes, report.written_bytes, &base.disk.path);
        Ok(Provenance { digest: report.checksum, disk_bytes: None })
    }

    fn record_failure(&self, error: &Error, made: ProductKind) -> PodImportError {
        self.watch.record_failure(error);
        PodImportError::from_transfer(error, self.watch.current_phase(), made)
    }

    fn read_options(&self, remote: &RemoteSource) -> ReadOptions {
        let observer = Arc::clone(&self.watch) as Arc<dyn Observer>;
        ReadOptions {
            checksum: remote.checksum.clone(),
            full_header: remote.needs_full_header(),
            ..self.config.limits.read_options(self.stop.clone(), observer)
        }
    }

    fn write_options(&self) -> WriteOptions {
        WriteOptions {
            workers: program::job::data_threads(),
            scratch: volume::scratch_volume(self.paths.scratch_path()),
            ..WriteOptions::default()
        }
    }

    fn success_message(&self) -> TerminationMessage {
        TerminationMessage {
            scratch_space_required: Some(false),
            // Nothing is preallocated in a directory.
            preallocation_applied: Some(
                self.config.wanted.preallocate && self.config.product_kind() == ProductKind::Disk,
            ),
            message: Some(COMPLETE.to_owned()),
            ..TerminationMessage::default()
        }
    }
}
