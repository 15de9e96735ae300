//! `cdi-source-update-poller`: CDI's cron job runs it to check whether a registry contains a new
//! image under the name from which a DataImportCron imports.

mod cron;

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use fetch::pod::PodNetwork;
use oci::resolve_digest;
use program::env::{EnvReader, NamedStrings};
use program::exit::ExitReason;
use program::flags::{KlogFlags, OwnFlag};
use program::paths::PodPaths;
use program::signal::StopSignal;
use program::threads;
use program::{cluster, command_line, report};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use self::cron::DataImportCron;

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

/// The reason why the DataImportCron was not updated.
type PollError = Box<dyn Error + Send + Sync>;

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
    let mut reader = EnvReader::new(env);
    let network = PodNetwork::from_env(&mut reader, env);
    reader.into_result()?;
    let digest = fetch_digest(&url, network, flags, env, stop)
        .await
        .map_err(|cause| format!("Failed getting the digest of {url}: {cause}"))?;
    print_line(&format!("Digest is {digest}\n"))?;
    let config = cluster::client_config(flags, env)
        .await
        .map_err(|error| format!("Failed to find the address of Kubernetes: {error}"))?;
    let cron = DataImportCron::new(config, &namespace, &name)?;
    let said =
        if cron.report_digest(&digest).await? { "Digest updated" } else { "No digest update" };
    print_line(&format!("{said}: DataImportCron {namespace}/{name}\n"))
}

fn print_line(line: &str) -> Result<(), PollError> {
    let printed = command_line::print_stdout(line.as_bytes());
    printed.map_err(|error| format!("cannot write to stdout: {error}").into())
}

/// Returns the digest of the image at `url` in the registry. For an image index, this is the
/// digest of the index itself.
async fn fetch_digest(
    url: &str,
    network: Option<PodNetwork>,
    flags: &KlogFlags,
    env: &dyn NamedStrings,
    stop: &CancellationToken,
) -> Result<String, PollError> {
    let mut network = network.ok_or("internal error: the network settings are missing")?;
    if let Some(folder) = flags.own_value(CERT_DIR).filter(|folder| !folder.is_empty()) {
        network.cert_dir = Some(folder.into());
    }
    let paths = PodPaths::from_env(env);
    let network = Arc::new(network.open_network(&paths, Handle::current(), stop.clone())?);
    let reference = url.to_owned();
    // `resolve_digest` blocks while it waits for responses, so it runs in its own thread.
    Ok(threads::run_blocking(move || resolve_digest(&reference, &network)).await??)
}
