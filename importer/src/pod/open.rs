//! Opens the source that the environment names.

use std::collections::BTreeMap;

use daemon::report::{self, Termination};
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::Source;
use url::Url;

use super::config::{Kind, Remote};
use super::import::Import;
use super::message::ImportFailed as Failure;
use super::node_pull;
use sources::access::{Access, STORE_CONNECTIONS};
use sources::gcs::{self, GcsOptions};
use sources::http::{Header, HttpConfig, HttpSource, read_secret_headers};
use sources::imageio::ImageIoSource;
use sources::registry::{RegistryOptions, RegistrySource};
use sources::s3::{self, S3Options};
use sources::vddk::{Installation, VddkInfo, VddkOptions, VddkSource};

/// Where CDI mounts the key file of a DataVolume.
const GOOGLE_SECRET: &str = "/google/credentials.json";

/// A source that is open, and what it knows besides bytes.
pub(super) struct Opened {
    pub(super) source: Box<dyn Source>,
    after: After,
}

/// What is asked for when the disk is complete.
enum After {
    /// Nothing.
    Nothing,
    /// A side container is asked about the image it runs.
    SideContainer(Box<HttpConfig>),
    /// What is known already is handed on.
    Labels(BTreeMap<String, String>),
    /// A library is asked what it is and where it read.
    Library(Box<dyn Fn() -> VddkInfo>),
}

impl Opened {
    fn alone(source: impl Source + 'static) -> Self {
        Self {
            source: Box::new(source),
            after: After::Nothing,
        }
    }
}

impl Import {
    /// Opens what `remote` names. What goes wrong here is told apart from what goes wrong with the bytes.
    pub(super) fn open(&self, remote: &Remote) -> Result<Opened, Failure> {
        let file_name = match &self.config.ready_file {
            Some(file) => node_pull::wait_for_ready(file, node_pull::POLL, &self.stop)?,
            None => String::new(),
        };
        tracing::info!("begin import process");
        self.connect(remote, &file_name)
            .map_err(|error| Failure::connect(remote.kind.name(), &error))
    }

    /// `file_name` is what a side container calls the disk; empty without one.
    fn connect(&self, remote: &Remote, file_name: &str) -> Result<Opened, SourceError> {
        let access = remote.access.open(&self.paths).map_err(|error| {
            let text = format!("Error creating http client: {error}");
            SourceError::new(SourceErrorKind::Invalid, text)
        })?;
        let access = Access {
            is_checked: remote.checksum.is_some(),
            ..access
        };
        let of_store = || Access {
            connections: STORE_CONNECTIONS,
            ..access.clone()
        };
        let (handle, stop) = (self.handle.clone(), self.stop.clone());
        match &remote.kind {
            Kind::Http {
                endpoint,
                headers,
                is_node_pull,
            } => {
                let endpoint = node_pull::endpoint_of(endpoint, file_name);
                let config = self.http_config(&access, endpoint, headers)?;
                let after = match is_node_pull {
                    true => After::SideContainer(Box::new(HttpConfig {
                        url: node_pull::info_url(&config.url),
                        ..config.clone()
                    })),
                    false => After::Nothing,
                };
                Ok(Opened {
                    source: Box::new(HttpSource::open(config, handle, stop)?),
                    after,
                })
            }
            Kind::Registry {
                reference,
                architecture,
            } => {
                let options = RegistryOptions {
                    architecture: architecture.clone(),
                };
                let source = RegistrySource::open(reference, &access, options, handle, stop)?;
                Ok(Opened {
                    after: After::Labels(node_pull::labels_of(source.environment())),
                    source: Box::new(source),
                })
            }
            Kind::ImageIo {
                endpoint,
                disk_id,
                checkpoints,
            } => {
                ImageIoSource::open(endpoint, disk_id, checkpoints, &access, handle, stop).map(Opened::alone)
            }
            Kind::Vddk {
                endpoint,
                uuid,
                backing_file,
                thumbprint,
                checkpoints,
            } => {
                let options = VddkOptions {
                    endpoint: endpoint.clone(),
                    uuid: uuid.clone(),
                    backing_file: backing_file.clone(),
                    thumbprint: thumbprint.clone(),
                    current_checkpoint: checkpoints.current.clone(),
                    previous_checkpoint: checkpoints.previous.clone(),
                    has_certificates: remote.access.cert_dir.is_some(),
                    installation: Installation::of_pod(|path| self.paths.at(path)),
                };
                let source = VddkSource::open(&options, &access, handle, stop)?;
                Ok(Opened {
                    after: After::Library(Box::new(source.informer())),
                    source: Box::new(source),
                })
            }
            Kind::S3 { endpoint } => {
                let options = S3Options::default();
                s3::open(endpoint, &of_store(), options, handle, stop).map(Opened::alone)
            }
            Kind::Gcs { endpoint, key_file } => {
                // Another file is not the DataVolume's: it was mounted into the pod, and is the policy's business.
                let given = self.paths.at(GOOGLE_SECRET);
                let options = GcsOptions {
                    key_file: key_file.clone().filter(|file| *file == given),
                    anonymous: false,
                };
                gcs::open(endpoint, &of_store(), options, handle, stop).map(Opened::alone)
            }
        }
    }

    /// Adds to `message` what came with the disk.
    pub(super) fn complete(&self, opened: Opened, message: Termination) -> Termination {
        match opened.after {
            After::Nothing => message,
            After::Labels(labels) => Termination { labels, ..message },
            After::SideContainer(config) => Termination {
                labels: self.labels_of(*config),
                ..message
            },
            After::Library(info) => {
                let VddkInfo { version, host } = info();
                Termination {
                    vddk_info: Some(report::VddkInfo { version, host }),
                    ..message
                }
            }
        }
    }

    /// The labels for the volume that a side container tells.
    fn labels_of(&self, config: HttpConfig) -> BTreeMap<String, String> {
        match HttpSource::open(config, self.handle.clone(), self.stop.clone()) {
            Ok(info) => node_pull::labels(&info),
            Err(error) => {
                tracing::error!("cannot read the labels of the container: {error}");
                BTreeMap::new()
            }
        }
    }

    fn http_config(
        &self,
        access: &Access,
        endpoint: Url,
        headers: &[Header],
    ) -> Result<HttpConfig, SourceError> {
        let mut headers = headers.to_vec();
        headers.extend(read_secret_headers(&self.paths.extra_headers())?);
        Ok(HttpConfig {
            credentials: access.credentials.clone(),
            headers,
            ..access.http(endpoint)
        })
    }
}
