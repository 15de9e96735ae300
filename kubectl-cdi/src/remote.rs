//! Finds the size of the disk in an image at a URL, if this machine can reach the image.

use std::sync::Arc;
use std::time::Duration;

use fetch::Network;
use fetch::http::{HttpConfig, HttpSource};
use fetch::proxy::ProxyConfig;
use fetch::scheme::SourceKind;
use https::tls::{self, TrustedRoots};
use inspect::{Inspection, inspect_image};
use oci::{RegistryOptions, RegistrySource, SeveralDisks};
use program::env::{NamedStrings, ProcessEnv};
use program::exit::ExitReason;
use program::threads;
use stream::error::SourceErrorKind;
use stream::options::{ChosenFormat, PayloadKind, ReadOptions};
use stream::source::Source;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cluster::ClusterImport;
use crate::error::PluginError;
use crate::image::refusal_text;

/// Time limit for inspecting a remote image, which takes a few short requests even if servers are
/// slow. It is short because a user is waiting.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// Longest time for which the first contact is retried. CDI's pod tries longer; a failure here only
/// means that the user gives the size.
const CONTACT_LIMIT: Duration = Duration::from_secs(3);

/// URL prefix of a container image in a registry.
pub(crate) const REGISTRY: &str = "docker://";

/// Returns the size in bytes of the disk in `image`, which has this format if it is given.
/// Servers' certificates are verified against the system's certificate authorities.
pub(crate) async fn disk_bytes(
    image: &ClusterImport,
    format: Option<ChosenFormat>,
) -> Result<u64, PluginError> {
    // The other schemes need credentials, which are stored in a Secret in the cluster.
    if image.kind != SourceKind::Http && !image.url.starts_with(REGISTRY) {
        let reason = "only http://, https:// and docker:// images can be inspected";
        return Err(unknown_size(ExitReason::Usage, reason));
    }
    let url = image.url.clone();
    let inspected = within_read_limit(move |network| inspect_source(&url, format, &network)).await;
    let facts = inspected
        .map_err(|reason| unknown_size(ExitReason::Source, &reason))?
        .map_err(inspection_error)?;
    if let Some(reason) = facts.refused {
        return Err(refused_image(&reason));
    }
    facts
        .virtual_size
        .ok_or_else(|| unknown_size(ExitReason::Usage, "the whole image would have to be read"))
}

/// Creates the error for an image that cannot be inspected from this machine.
fn unknown_size(exit: ExitReason, reason: &str) -> PluginError {
    PluginError::new(exit, format!("cannot determine the disk size: {reason}; give --size"))
}

/// Creates the error for an image that every import would reject.
fn refused_image(reason: &str) -> PluginError {
    PluginError::new(ExitReason::Image, format!("the image would be refused: {reason}"))
}

fn inspection_error(error: stream::Error) -> PluginError {
    let stream::Error::Source(error) = error else {
        return refused_image(&refusal_text(&error));
    };
    let words = error.plain_words();
    if matches!(error.kind(), SourceErrorKind::Status(404 | 410)) {
        let message = format!("image not found: {words}; check the URL");
        return PluginError::unread(message);
    }
    if SeveralDisks::of_error(&error).is_some() {
        // The error's plain words name an option of cdi-importer.
        return refused_image(&format!(
            "{error}; a DataVolume cannot choose one: write it to a file with `cdi-importer import --layer NAME`, then upload the file"
        ));
    }
    let is_usage = error.kind() == SourceErrorKind::Invalid;
    unknown_size(if is_usage { ExitReason::Usage } else { ExitReason::Source }, words)
}

/// Runs `work`, which reads from servers, on a thread of its own, for a limited time. Returns the
/// reason if it does not end.
pub(crate) async fn within_read_limit<T: Send + 'static>(
    work: impl FnOnce(Arc<Network>) -> T + Send + 'static,
) -> Result<T, String> {
    let stop = CancellationToken::new();
    // The guard stops the blocking thread however this function ends, even by the timeout.
    let _guard = stop.clone().drop_guard();
    let tls = tls::client_config(TrustedRoots::from_system()).map_err(|error| error.to_string())?;
    let mut network = Network::new(Handle::current(), stop, Arc::new(tls));
    let proxy = ProxyConfig::from_env(|name| ProcessEnv.get(name));
    network.proxy = proxy.map_err(|error| error.plain_words().to_owned())?;
    network.retry_policy.contact_limit = CONTACT_LIMIT;
    let network = Arc::new(network);
    match timeout(READ_LIMIT, threads::run_blocking(move || work(network))).await {
        Ok(worked) => worked.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the image was not inspected within {} s", READ_LIMIT.as_secs())),
    }
}

fn inspect_source(
    url: &str,
    format: Option<ChosenFormat>,
    network: &Arc<Network>,
) -> Result<Inspection, stream::Error> {
    let source: Box<dyn Source> = if url.starts_with(REGISTRY) {
        Box::new(RegistrySource::open(url, network, &RegistryOptions::default())?)
    } else {
        Box::new(HttpSource::open(HttpConfig::new(url, network)?)?)
    };
    let reading = ReadOptions::with_stop(network.stop.clone());
    inspect_image(&*source, PayloadKind::from(format), &reading)
}
