//! Opens the source that the environment names.

use std::collections::BTreeMap;
use std::sync::Arc;

use datapath::error::{SourceError, SourceErrorKind};
use datapath::observe::Observer;
use datapath::source::Source;
use program::report::{self, TerminationMessage};
use sources::http::read_secret_headers;
use sources::registry;
use sources::vddk::VddkLibraryInfo;
use sources::{Network, OpenedSource, SourceInfo, SourceLocation};
use volume::messages::ProductKind;

use super::config::RemoteSource;
use super::import::PodImport;
use super::message::PodImportError;
use super::node_pull;

/// An open source. If a side container serves it, that container is asked about its image once the
/// disk is complete.
pub(super) struct ConnectedSource {
    pub(super) source: Box<dyn Source>,
    remarks: SourceInfo,
    side_container: Option<(SourceLocation, Arc<Network>)>,
}

impl PodImport {
    /// Opens the source `remote`. Failures to open it are reported apart from failures of the
    /// transfer.
    pub(super) fn open_source(&self, remote: &RemoteSource) -> Result<ConnectedSource, PodImportError> {
        let file_name = match &self.config.ready_file {
            Some(file) => node_pull::wait_for_ready(file, node_pull::POLL, &self.stop)?,
            None => String::new(),
        };
        tracing::info!("begin import process");
        self.connect_source(remote, &file_name).map_err(|error| {
            let failed = PodImportError::from_connect(remote.place.kind().name(), &error);
            self.watch.record_failure(&error.into());
            failed
        })
    }

    /// Connects to the source. `file_name` is the name of the disk in a side container; it is
    /// empty without one.
    fn connect_source(&self, remote: &RemoteSource, file_name: &str) -> Result<ConnectedSource, SourceError> {
        let opened = remote.network.clone().open_network(&self.paths, self.handle.clone(), self.stop.clone());
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
        let OpenedSource { mut source, remarks } = sources::open_source(&place, &network)?;
        let is_http = matches!(place, SourceLocation::Http { .. }) && !remote.is_node_pull;
        if is_http && remote.made == ProductKind::Disk {
            source = registry::open_layout(source, &remote.layout, remote.checksum.is_some())?;
        }
        Ok(ConnectedSource {
            source,
            remarks,
            side_container: remote.is_node_pull.then_some((place, network)),
        })
    }

    /// Adds the information that came with the disk to `message`.
    pub(super) fn complete_message(
        &self,
        connected: ConnectedSource,
        message: TerminationMessage,
    ) -> TerminationMessage {
        if let Some((place, network)) = connected.side_container {
            let labels = labels_of(place, &network);
            return TerminationMessage { labels, ..message };
        }
        match connected.remarks {
            SourceInfo::None => message,
            SourceInfo::Variables(variables) => {
                TerminationMessage { labels: node_pull::labels_of(&variables), ..message }
            }
            SourceInfo::Library(info) => {
                let VddkLibraryInfo { version, host } = info();
                TerminationMessage { vddk_info: Some(report::VddkInfo { version, host }), ..message }
            }
        }
    }
}

/// Reads the labels for the volume from the side container that serves the disk at `place`.
fn labels_of(mut place: SourceLocation, network: &Arc<Network>) -> BTreeMap<String, String> {
    if let SourceLocation::Http { url, .. } = &mut place {
        *url = node_pull::info_url(url);
    }
    match sources::open_source(&place, network) {
        Ok(info) => node_pull::read_labels(&*info.source),
        Err(error) => {
            tracing::error!("cannot read the labels of the container: {error}");
            BTreeMap::new()
        }
    }
}
