//! The work of the pod: a transferred image, or a blank disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use daemon::paths::Paths;
use daemon::report::Termination;
use datapath::error::{SourceError, SourceErrorKind, errno_text};
use datapath::observe::Observer;
use datapath::{archive, target, transfer};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use url::Url;
use worker::volume::Volume;
use worker::wording::Made;

use super::config::{Config, HttpSettings, SourceConfig};
use super::message::Failure;
use super::node_pull;
use super::watch::Watch;
use crate::source::http::{Credentials, HttpConfig, HttpSource, read_secret_headers};

/// What the controllers expect to read after every success.
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
    pub(super) fn run(&self) -> Result<Option<Termination>, Failure> {
        let message = match &self.config.source {
            SourceConfig::Blank => self.blank()?,
            SourceConfig::Http(settings, made) => Some(self.http(settings, *made)?),
        };
        // An archive is synced when its files become visible.
        if self.config.made() == Made::Disk {
            self.sync()?;
        }
        if !matches!(self.config.source, SourceConfig::Blank) {
            self.watch.finish();
        }
        Ok(message)
    }

    fn blank(&self) -> Result<Option<Termination>, Failure> {
        let options = self.volume.blank_options(&self.config.wanted);
        tracing::info!("creating a blank disk of {} bytes", options.available);
        target::create_blank(&options, &self.stop).map_err(|error| Failure::blank(&error, &options))?;
        // Nothing was done to such a device, and the controllers expect nothing to be said about it.
        let is_untouched = self.volume.is_device && !self.config.wanted.preallocate;
        Ok((!is_untouched).then(|| Termination {
            scratch_space_required: None,
            ..self.success(BTreeMap::new())
        }))
    }

    fn http(&self, settings: &HttpSettings, made: Made) -> Result<Termination, Failure> {
        let mut endpoint = settings.endpoint.clone();
        if let Some(file) = &self.config.ready_file {
            let name = node_pull::wait_for_ready(file, node_pull::POLL, &self.stop)?;
            endpoint = node_pull::endpoint_of(&endpoint, &name);
        }
        tracing::info!("begin import process");
        if let Some(checksum) = &settings.checksum {
            tracing::info!("Checksum validation enabled: {checksum}");
        }
        let source = self
            .open(settings, &endpoint)
            .map_err(|error| Failure::connect(&error))?;
        match made {
            Made::Disk => self.transfer(settings, &source)?,
            Made::Directory => self.unpack(settings, &source)?,
        }
        let labels = if settings.is_node_pull {
            self.labels(settings, &endpoint)
        } else {
            BTreeMap::new()
        };
        Ok(self.success(labels))
    }

    fn transfer(&self, settings: &HttpSettings, source: &HttpSource) -> Result<(), Failure> {
        let target = self.volume.target_options(&self.config.wanted);
        let report = transfer::transfer(source, &target, &self.options(settings))
            .map_err(|error| Failure::transfer(&error, self.watch.current_phase(), Made::Disk))?;
        let path = self.volume.path.display();
        tracing::info!(
            "Read {} bytes, wrote {} bytes to {path}",
            report.source_bytes,
            report.written_bytes
        );
        log_checksum(report.checksum.as_deref());
        Ok(())
    }

    fn unpack(&self, settings: &HttpSettings, source: &HttpSource) -> Result<(), Failure> {
        if self.volume.is_device {
            return Err(Failure::process(
                "an archive needs a volume with a filesystem, and this one is a block device",
            ));
        }
        let target = archive::Options {
            dir: self.paths.data(),
            available: self.volume.free,
        };
        let report = archive::unpack(source, &target, &self.options(settings))
            .map_err(|error| Failure::transfer(&error, self.watch.current_phase(), Made::Directory))?;
        tracing::info!(
            "Read {} bytes, unpacked {} entries with {} bytes into {}",
            report.source_bytes,
            report.entries,
            report.data_bytes,
            target.dir.display()
        );
        log_checksum(report.checksum.as_deref());
        Ok(())
    }

    fn options(&self, settings: &HttpSettings) -> transfer::Options {
        transfer::Options {
            checksum: settings.checksum.clone(),
            workers: worker::work::data_threads(),
            scratch: self.scratch(),
            stop: self.stop.clone(),
            observer: Arc::clone(&self.watch) as Arc<dyn Observer>,
            ..transfer::Options::default()
        }
    }

    fn open(&self, settings: &HttpSettings, url: &Url) -> Result<HttpSource, SourceError> {
        let invalid = |text: String| SourceError::new(SourceErrorKind::Invalid, text);
        let tls =
            daemon::tls::pod_client_config(&self.paths, settings.cert_dir.as_deref(), settings.insecure)
                .map_err(|error| invalid(format!("Error creating http client: {error}")))?;
        let mut headers = settings.headers.clone();
        headers.extend(read_secret_headers(&self.paths.extra_headers())?);
        let text = |secret: &Option<daemon::secret::Secret>| {
            secret
                .as_ref()
                .map(|secret| secret.expose().to_owned())
                .unwrap_or_default()
        };
        let config = HttpConfig {
            credentials: Credentials::new(&text(&settings.user), &text(&settings.password)),
            headers,
            proxy: settings.proxy.clone(),
            trust_unvalidated: settings.checksum.is_some(),
            ..HttpConfig::new(url.as_str(), Arc::new(tls))?
        };
        HttpSource::open(config, self.handle.clone(), self.stop.clone())
    }

    fn labels(&self, settings: &HttpSettings, endpoint: &Url) -> BTreeMap<String, String> {
        match self.open(settings, &node_pull::info_url(endpoint)) {
            Ok(info) => node_pull::labels(&info),
            Err(error) => {
                tracing::error!("cannot read the labels of the container: {error}");
                BTreeMap::new()
            }
        }
    }

    /// The scratch volume, if one is mounted and has room; almost no image needs it, so none is ever asked for.
    fn scratch(&self) -> Option<PathBuf> {
        let folder = self.paths.scratch();
        target::free_space(&folder)
            .is_ok_and(|free| free > 0)
            .then_some(folder)
    }

    fn success(&self, labels: BTreeMap<String, String>) -> Termination {
        Termination {
            scratch_space_required: Some(false),
            // Nothing is preallocated in a directory.
            preallocation_applied: Some(self.config.wanted.preallocate && self.config.made() == Made::Disk),
            labels,
            message: Some(COMPLETE.to_owned()),
            ..Termination::default()
        }
    }

    /// The last word before success is the kernel's: also for a blank disk, and for a file's new mode.
    fn sync(&self) -> Result<(), Failure> {
        let path = &self.volume.path;
        File::open(path)
            .and_then(|file| file.sync_all())
            .map_err(|error| {
                Failure::process(format_args!("fsync {}: {}", path.display(), errno_text(&error)))
            })?;
        tracing::debug!(
            "Successfully completed fsync({}) syscall, committed to disk",
            path.display()
        );
        Ok(())
    }
}

fn log_checksum(checksum: Option<&str>) {
    if let Some(checksum) = checksum {
        tracing::info!("Checksum verification passed: {checksum}");
    }
}
