//! `cdi-source-update-poller`: CDI's cron job runs it to check whether a registry contains a new
//! image under the name from which a DataImportCron imports.

mod cron;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use fetch::pod::PodNetwork;
use oci::resolve_digest;
use program::env::{EnvErrors, EnvReader, NamedStrings};
use program::exit::ExitReason;
use program::flags::{FlagError, KlogFlags, OwnFlag};
use program::paths::PodPaths;
use program::signal::StopSignal;
use program::threads;
use program::{cluster, command_line, report};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use self::cron::{CronError, DataImportCron};

pub(crate) const PROGRAM: &str = "cdi-source-update-poller";

const NAMESPACE: &str = "ns";
const CRON: &str = "cron";
const URL: &str = "url";
const CERT_DIR: &str = "certdir";

const OWN_FLAGS: [OwnFlag; 4] = [
    OwnFlag { name: NAMESPACE, purpose: "(mandatory) namespace of the DataImportCron" },
    OwnFlag { name: CRON, purpose: "(mandatory) name of the DataImportCron" },
    OwnFlag { name: URL, purpose: "(mandatory) what it imports: docker://registry/repository:tag" },
    OwnFlag {
        name: CERT_DIR,
        purpose: "directory of additional CA certificates to trust for the registry",
    },
];

/// Reasons why the DataImportCron was not updated.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error(transparent)]
    Missing(#[from] FlagError),
    #[error("{0}")]
    Environment(EnvErrors),
    #[error("Failed getting the digest of {url}: {cause}")]
    Digest { url: String, cause: String },
    #[error("Failed to find the address of Kubernetes: {0}")]
    NoCluster(#[from] cluster::ClusterConfigError),
    #[error(transparent)]
    Cron(#[from] CronError),
    #[error("cannot write to stdout: {0}")]
    Print(#[from] std::io::Error),
}

/// Fetches the digest of the image given in `arguments`, and updates the DataImportCron.
pub(crate) fn main(arguments: &[OsString], env: &dyn NamedStrings) -> ExitCode {
    let flags = [OWN_FLAGS.as_slice(), &cluster::FLAGS].concat();
    // CDI passes no verbosity. At level 0 the retries would not be logged, and the pod would be
    // silent for minutes while a registry does not answer.
    let arguments = [&[OsString::from("-v=1")], arguments].concat();
    program::start::start_pod(
        PROGRAM,
        &flags,
        &arguments,
        env,
        |_| Ok(()),
        async |flags, (), shutdown| {
            let polling = poll_registry(&flags, env, shutdown.cancel_token());
            match shutdown.cancel_token().run_until_cancelled(polling).await {
                Some(Ok(())) => ExitReason::Done,
                // As in upstream, the exit code is the one of Go's `log.Fatal`.
                Some(Err(failure)) => {
                    report::log_failure(env, &failure.to_string());
                    ExitReason::Internal
                }
                None => {
                    ExitReason::Signalled(shutdown.first_signal().unwrap_or(StopSignal::Terminate))
                }
            }
        },
    )
}

async fn poll_registry(
    flags: &KlogFlags,
    env: &dyn NamedStrings,
    stop: &CancellationToken,
) -> Result<(), PollError> {
    let [namespace, name, url] = flags.required_values([NAMESPACE, CRON, URL])?;
    let digest = fetch_digest(&url, flags, env, stop).await?;
    command_line::print_stdout(format!("Digest is {digest}\n").as_bytes())?;
    let cron = DataImportCron::new(cluster::client_config(flags, env).await?, &namespace, &name)?;
    let changed = cron.report_digest(&digest).await?;
    let said = if changed { "Digest updated" } else { "No digest update" };
    command_line::print_stdout(format!("{said}: DataImportCron {namespace}/{name}\n").as_bytes())?;
    Ok(())
}

/// Returns the digest of the image at `url` in the registry. For an image index, this is the
/// digest of the index itself.
async fn fetch_digest(
    url: &str,
    flags: &KlogFlags,
    env: &dyn NamedStrings,
    stop: &CancellationToken,
) -> Result<String, PollError> {
    let failed = |cause: String| PollError::Digest { url: url.to_owned(), cause };
    let mut reader = EnvReader::new(env);
    let network = PodNetwork::from_env(&mut reader, env);
    reader.into_result().map_err(PollError::Environment)?;
    let mut network = network
        .ok_or_else(|| failed("internal error: the network settings are missing".to_owned()))?;
    if let Some(folder) = flags.own_value(CERT_DIR).filter(|folder| !folder.is_empty()) {
        network.cert_dir = Some(folder.into());
    }
    let network = network
        .open_network(&PodPaths::from_env(env), Handle::current(), stop.clone())
        .map_err(|error| failed(error.to_string()))?;
    let reference = url.to_owned();
    // `resolve_digest` blocks while it waits for responses, so it runs in its own thread.
    let asked = threads::run_blocking(move || resolve_digest(&reference, &Arc::new(network))).await;
    let asked = asked.map_err(|error| failed(error.to_string()))?;
    asked.map_err(|error| failed(error.to_string()))
}
