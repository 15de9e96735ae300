//! Opens the source that the environment names.

use std::sync::Arc;

use fetch::Network;
use fetch::http::read_secret_headers;
use oci;
use program::report::TerminationMessage;
use reporting::messages::ProductKind;
use reporting::watch;
use sources::{OpenedSource, SourceInfo, SourceLocation};
use stream::error::{SourceError, SourceErrorKind};
use stream::observe::Observer;
use stream::source::Source;

use super::config::RemoteSource;
use super::image_volume::ImageVolume;
use super::import::PodImport;
use super::message::PodImportError;
use super::provenance::Provenance;
use super::{labels, node_pull};

/// An open source. If a side container serves it, that container is asked about its image once the
/// disk is complete.
pub(super) struct ConnectedSource {
    pub(super) source: Box<dyn Source>,
    info: SourceInfo,
    side_container: Option<(SourceLocation, Arc<Network>)>,
}

impl PodImport {
    /// Opens the source `remote`. Failures to open it are reported apart from failures of the
    /// transfer.
    pub(super) fn open_source(
        &self,
        remote: &RemoteSource,
    ) -> Result<ConnectedSource, PodImportError> {
        if let Some(image) = &self.config.image_volume {
            return self.open_mounted(image);
        }
        let file_name = match &self.config.ready_file {
            Some(file) => node_pull::wait_for_ready(file, node_pull::READY_WAIT, &self.stop)?,
            None => String::new(),
        };
        tracing::info!("begin import process");
        self.connect_source(remote, &file_name).map_err(|error| {
            let failed = PodImportError::from_connect(remote.place.kind().name(), &error);
            self.watch.record_failure(&error.into());
            failed
        })
    }

    /// Opens the disk in an image that the kubelet has mounted. CDI's importer does that in a phase
    /// of its own.
    fn open_mounted(&self, image: &ImageVolume) -> Result<ConnectedSource, PodImportError> {
        tracing::info!("begin import process");
        for phase in ["Info", "TransferScratch"] {
            watch::log_phase(phase);
        }
        let source = image.open_disk(self.stop.clone()).map_err(|error| {
            let failed = SourceError::new(SourceErrorKind::Invalid, error.to_string());
            self.watch.record_failure(&failed.into());
            PodImportError::from_image_volume(&error)
        })?;
        tracing::info!("found the disk {} in the mounted image", source.name());
        Ok(ConnectedSource {
            source: Box::new(source),
            info: SourceInfo::None,
            side_container: None,
        })
    }

    /// Connects to the source. `file_name` is the name of the disk in a side container; it is
    /// empty without one.
    fn connect_source(
        &self,
        remote: &RemoteSource,
        file_name: &str,
    ) -> Result<ConnectedSource, SourceError> {
        let opened = remote.network.clone().open_network(
            &self.paths,
            self.handle.clone(),
            self.stop.clone(),
        );
        let mut network = opened.map_err(|error| {
            SourceError::with_context(SourceErrorKind::Invalid, "Error creating http client", error)
        })?;
        network.is_checked = remote.checksum.is_some();
        network.observer = Arc::clone(&self.watch) as Arc<dyn Observer>;
        let network = Arc::new(network);
        let mut place = remote.place.clone();
        if let SourceLocation::Http { url, headers } = &mut place {
            *url = node_pull::endpoint_of(url, file_name);
            headers.extend(read_secret_headers(&self.paths.extra_headers())?);
        }
        let OpenedSource { mut source, info } = sources::open_source(&place, &network)?;
        // VMware's helper program runs now, so this process need not start another one. In mode
        // `require`, such a pod has not begun.
        sandbox::enter_deferred()
            .map_err(|error| SourceError::new(SourceErrorKind::Invalid, error.to_string()))?;
        let is_http = matches!(place, SourceLocation::Http { .. }) && !remote.is_node_pull;
        if is_http && remote.made == ProductKind::Disk && remote.format.is_none() {
            source = oci::open_layout(source, &remote.layout, remote.checksum.is_some())?;
        }
        Ok(ConnectedSource {
            source,
            info,
            side_container: remote.is_node_pull.then_some((place, network)),
        })
    }

    /// Adds the information that came with the disk to `message`.
    pub(super) fn complete_message(
        &self,
        connected: ConnectedSource,
        mut imported: Provenance,
        mut message: TerminationMessage,
    ) -> TerminationMessage {
        if let Some((place, network)) = connected.side_container {
            labels::add_image_labels(&mut message, &variables_of(place, &network));
        }
        if let Some(image) = &self.config.image_volume {
            labels::add_image_labels(&mut message, &image.read_variables());
        }
        match connected.info {
            SourceInfo::None | SourceInfo::Web(_) => {}
            SourceInfo::Image { variables, digest } => {
                labels::add_image_labels(&mut message, &variables);
                imported.digest = Some(digest);
            }
            SourceInfo::Library(info) => message.vddk_info = Some(info()),
        }
        if self.config.has_provenance {
            imported.add_labels(&mut message);
        }
        message
    }
}

/// Reads the environment of the side container that serves the disk at `place`.
fn variables_of(mut place: SourceLocation, network: &Arc<Network>) -> Vec<String> {
    if let SourceLocation::Http { url, .. } = &mut place {
        *url = node_pull::info_url(url);
    }
    match sources::open_source(&place, network) {
        Ok(info) => node_pull::read_variables(&*info.source),
        Err(error) => {
            tracing::error!("cannot read the labels of the container: {error}");
            Vec::new()
        }
    }
}
