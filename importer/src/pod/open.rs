//! Opens the source that the environment names.

use std::collections::BTreeMap;
use std::sync::Arc;

use datapath::error::{SourceError, SourceErrorKind};
use datapath::observe::Observer;
use datapath::source::Source;
use program::report::{self, Termination};
use sources::http::read_secret_headers;
use sources::vddk::VddkInfo;
use sources::{Network, Opened, Place, Remarks};

use super::config::Remote;
use super::import::Import;
use super::message::ImportFailed;
use super::node_pull;

/// The source, and the side container that is asked about the image it runs when the disk is complete.
pub(super) struct Connected {
    pub(super) source: Box<dyn Source>,
    remarks: Remarks,
    side_container: Option<(Place, Arc<Network>)>,
}

impl Import {
    /// Opens what `remote` names. What goes wrong here is told apart from what goes wrong with the bytes.
    pub(super) fn open(&self, remote: &Remote) -> Result<Connected, ImportFailed> {
        let file_name = match &self.config.ready_file {
            Some(file) => node_pull::wait_for_ready(file, node_pull::POLL, &self.stop)?,
            None => String::new(),
        };
        tracing::info!("begin import process");
        self.connect(remote, &file_name).map_err(|error| {
            let failed = ImportFailed::connect(remote.place.kind(), &error);
            self.watch.failed(&error.into());
            failed
        })
    }

    /// `file_name` is what a side container calls the disk; empty without one.
    fn connect(&self, remote: &Remote, file_name: &str) -> Result<Connected, SourceError> {
        let opened = remote
            .network
            .clone()
            .open(&self.paths, self.handle.clone(), self.stop.clone());
        let mut network = opened.map_err(|error| {
            SourceError::caused(SourceErrorKind::Invalid, "Error creating http client", error)
        })?;
        network.is_checked = remote.checksum.is_some();
        network.observer = Arc::clone(&self.watch) as Arc<dyn Observer>;
        let network = Arc::new(network);
        let mut place = remote.place.clone();
        if let Place::Http { url, headers } = &mut place {
            *url = node_pull::endpoint_of(url, file_name);
            headers.extend(read_secret_headers(&self.paths.extra_headers())?);
        }
        let Opened { source, remarks } = sources::open(&place, &network)?;
        Ok(Connected {
            source,
            remarks,
            side_container: remote.is_node_pull.then_some((place, network)),
        })
    }

    /// Adds to `message` what came with the disk.
    pub(super) fn complete(&self, connected: Connected, message: Termination) -> Termination {
        if let Some((place, network)) = connected.side_container {
            let labels = labels_of(place, &network);
            return Termination { labels, ..message };
        }
        match connected.remarks {
            Remarks::None => message,
            Remarks::Variables(variables) => Termination {
                labels: node_pull::labels_of(&variables),
                ..message
            },
            Remarks::Library(info) => {
                let VddkInfo { version, host } = info();
                Termination {
                    vddk_info: Some(report::VddkInfo { version, host }),
                    ..message
                }
            }
        }
    }
}

/// The labels for the volume that a side container tells, which serves the disk at `place`.
fn labels_of(mut place: Place, network: &Arc<Network>) -> BTreeMap<String, String> {
    if let Place::Http { url, .. } = &mut place {
        *url = node_pull::info_url(url);
    }
    match sources::open(&place, network) {
        Ok(info) => node_pull::labels(&*info.source),
        Err(error) => {
            tracing::error!("cannot read the labels of the container: {error}");
            BTreeMap::new()
        }
    }
}
