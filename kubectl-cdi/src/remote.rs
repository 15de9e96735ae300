//! Finds the size of the disk in an image at a URL, if this machine can reach the image.

use std::sync::Arc;
use std::time::Duration;

use fetch::Network;
use fetch::http::{HttpConfig, HttpSource};
use fetch::proxy::ProxyConfig;
use https::tls::{self, TlsError, TrustedRoots};
use inspect::{Inspection, inspect_image};
use oci::{RegistryOptions, RegistrySource, SeveralDisks};
use program::env::{NamedStrings, ProcessEnv};
use program::threads;
use stream::error::{SourceError, SourceErrorKind};
use stream::options::{ChosenFormat, PayloadKind, ReadOptions};
use stream::source::Source;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::image::refusal_text;

/// Time limit for inspecting a remote image, which takes a few short requests even if servers are
/// slow. It is short because a user is waiting.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// Longest time for which the first contact is retried. CDI's pod tries longer; a failure here only
/// means that the user gives the size.
const CONTACT_LIMIT: Duration = Duration::from_secs(3);

/// URL prefix of a container image in a registry.
pub(crate) const REGISTRY: &str = "docker://";

/// Reasons why the size of a remote disk is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskSizeError {
    /// The image cannot be inspected from this machine.
    #[error("cannot determine the disk size: {0}; give --size")]
    Unknown(String),
    /// The server does not have the image (HTTP 404 or 410).
    #[error("image not found: {0}; check the URL")]
    NotFound(String),
    /// The image would be rejected by every import.
    #[error("the image would be refused: {0}")]
    Refused(String),
    /// A bug in this program.
    #[error("{0}")]
    Internal(String),
}

impl From<TlsError> for DiskSizeError {
    fn from(error: TlsError) -> Self {
        Self::Unknown(error.to_string())
    }
}

impl From<stream::Error> for DiskSizeError {
    fn from(error: stream::Error) -> Self {
        match error {
            stream::Error::Source(error)
                if matches!(error.kind(), SourceErrorKind::Status(404 | 410)) =>
            {
                Self::NotFound(error.plain_words().to_owned())
            }
            stream::Error::Source(error) if SeveralDisks::of_error(&error).is_some() => {
                // The error's plain words name an option of cdi-importer.
                Self::Refused(format!(
                    "{error}; a DataVolume cannot choose one: write it to a file with `cdi-importer import --layer NAME`, then upload the file"
                ))
            }
            stream::Error::Source(error) => Self::Unknown(error.plain_words().to_owned()),
            error => Self::Refused(refusal_text(&error)),
        }
    }
}

impl From<SourceError> for DiskSizeError {
    fn from(error: SourceError) -> Self {
        stream::Error::from(error).into()
    }
}

/// Returns the size in bytes of the disk in the image at `url`, which has this format if it is
/// given. Servers' certificates are verified against the system's certificate authorities.
pub(crate) async fn disk_bytes(
    url: &str,
    format: Option<ChosenFormat>,
) -> Result<u64, DiskSizeError> {
    // The other schemes need credentials, which are stored in a Secret in the cluster.
    if !["http://", "https://", REGISTRY].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(DiskSizeError::Unknown(
            "only http://, https:// and docker:// images can be inspected".to_owned(),
        ));
    }
    let url = url.to_owned();
    let facts = within_read_limit(move |network| inspect_source(&url, format, &network)).await??;
    match (facts.refused, facts.virtual_size) {
        (Some(reason), _) => Err(DiskSizeError::Refused(reason)),
        (None, Some(bytes)) => Ok(bytes),
        (None, None) => {
            Err(DiskSizeError::Unknown("the whole image would have to be read".to_owned()))
        }
    }
}

/// Runs `work`, which reads from servers, on a thread of its own, for a limited time.
pub(crate) async fn within_read_limit<T: Send + 'static>(
    work: impl FnOnce(Arc<Network>) -> T + Send + 'static,
) -> Result<T, DiskSizeError> {
    let stop = CancellationToken::new();
    // The guard stops the blocking thread however this function ends, even by the timeout.
    let _guard = stop.clone().drop_guard();
    let network = open_network(Handle::current(), stop)?;
    let working = threads::run_blocking(move || work(network));
    let worked = timeout(READ_LIMIT, working).await.map_err(|_| {
        DiskSizeError::Unknown(format!(
            "the image was not inspected within {} s",
            READ_LIMIT.as_secs()
        ))
    })?;
    worked.map_err(|error| DiskSizeError::Internal(error.to_string()))
}

fn open_network(handle: Handle, stop: CancellationToken) -> Result<Arc<Network>, DiskSizeError> {
    let tls = Arc::new(tls::client_config(TrustedRoots::from_system())?);
    let mut network = Network::new(handle, stop, tls);
    network.proxy = ProxyConfig::from_env(|name| ProcessEnv.get(name))?;
    network.retry_policy.contact_limit = CONTACT_LIMIT;
    Ok(Arc::new(network))
}

fn inspect_source(
    url: &str,
    format: Option<ChosenFormat>,
    network: &Arc<Network>,
) -> Result<Inspection, DiskSizeError> {
    let source: Box<dyn Source> = match url.starts_with(REGISTRY) {
        true => Box::new(RegistrySource::open(url, network, &RegistryOptions::default())?),
        false => Box::new(HttpSource::open(HttpConfig::new(url, network)?)?),
    };
    let reading = ReadOptions::with_stop(network.stop.clone());
    let payload = PayloadKind::from(format);
    Ok(inspect_image(&*source, payload, &reading)?)
}
