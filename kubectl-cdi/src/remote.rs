//! An image at a URL: the size of its disk, as far as a look from here can tell.

use std::sync::Arc;
use std::time::Duration;

use datapath::error::{SourceError, SourceErrorKind};
use datapath::inspect::{Inspection, inspect_image};
use datapath::options::{PayloadKind, ReadOptions};
use datapath::source::Source;
use https::tls::{self, TlsError, TrustedRoots};
use program::env::{NamedStrings, ProcessEnv};
use program::threads;
use sources::Network;
use sources::http::{HttpConfig, HttpSource};
use sources::proxy::ProxyConfig;
use sources::registry::{RegistryOptions, RegistrySource};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::image::refusal_text;

/// Time for the look: a few short requests, and what a slow server takes for them. A person waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// The beginning of the address of a container image in a registry.
const REGISTRY: &str = "docker://";

/// A disk whose size is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskSizeError {
    /// It cannot be looked at.
    #[error("how large the disk is cannot be told from here: {0}; give --size")]
    Unknown(String),
    /// A server that has no such image.
    #[error("there is no image at that address: {0}; check the URL")]
    NotFound(String),
    /// An image that no import takes.
    #[error("the image would be refused: {0}")]
    Refused(String),
    /// A bug.
    #[error("{0}")]
    Internal(String),
}

impl From<TlsError> for DiskSizeError {
    fn from(error: TlsError) -> Self {
        Self::Unknown(error.to_string())
    }
}

impl From<datapath::Error> for DiskSizeError {
    fn from(error: datapath::Error) -> Self {
        match error {
            datapath::Error::Source(error) if matches!(error.kind(), SourceErrorKind::Status(404 | 410)) => {
                Self::NotFound(error.plain_words().to_owned())
            }
            datapath::Error::Source(error) => Self::Unknown(error.plain_words().to_owned()),
            error => Self::Refused(refusal_text(&error)),
        }
    }
}

impl From<SourceError> for DiskSizeError {
    fn from(error: SourceError) -> Self {
        datapath::Error::from(error).into()
    }
}

/// Bytes of the disk in the image at `url`, which is trusted by the system's authorities.
pub(crate) async fn disk_bytes(url: &str) -> Result<u64, DiskSizeError> {
    // The others want credentials, which are in a Secret of the cluster.
    if !["http://", "https://", REGISTRY].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(DiskSizeError::Unknown("only http://, https:// and docker:// are looked at".to_owned()));
    }
    let stop = CancellationToken::new();
    // Ends the thread, whatever ends the wait for it.
    let _guard = stop.clone().drop_guard();
    let (url, handle) = (url.to_owned(), Handle::current());
    let looking = threads::run_blocking(move || inspect_source(&url, handle, stop));
    let looked = timeout(PATIENCE, looking).await;
    let looked = looked
        .map_err(|_| DiskSizeError::Unknown(format!("a look took longer than {} s", PATIENCE.as_secs())))?;
    let facts = looked.map_err(|error| DiskSizeError::Internal(error.to_string()))??;
    match (facts.refused, facts.virtual_size) {
        (Some(reason), _) => Err(DiskSizeError::Refused(reason)),
        (None, Some(bytes)) => Ok(bytes),
        (None, None) => Err(DiskSizeError::Unknown("all of the image would have to be read".to_owned())),
    }
}

fn inspect_source(url: &str, handle: Handle, stop: CancellationToken) -> Result<Inspection, DiskSizeError> {
    let tls = Arc::new(tls::client_config(TrustedRoots::from_system())?);
    let mut network = Network::new(handle, stop.clone(), tls);
    network.proxy = ProxyConfig::from_env(|name| ProcessEnv.get(name))?;
    let network = Arc::new(network);
    let source: Box<dyn Source> = match url.starts_with(REGISTRY) {
        true => Box::new(RegistrySource::open(url, &network, &RegistryOptions::default())?),
        false => Box::new(HttpSource::open(HttpConfig::new(url, &network)?)?),
    };
    Ok(inspect_image(&*source, PayloadKind::default(), &ReadOptions::with_stop(stop))?)
}
