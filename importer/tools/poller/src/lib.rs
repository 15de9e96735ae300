//! `cdi-source-update-poller`: CDI's cron job asks it whether a registry has something new under the name that a DataImportCron
//! imports from.

#![forbid(unsafe_code)]

mod cron;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use program::env::{EnvErrors, EnvReader, Strings};
use program::exit::Exit;
use program::flags::{FlagError, Flags, OwnFlag};
use program::paths::Paths;
use program::signal::Signal;
use program::threads;
use program::{cluster, command_line};
use sources::pod::PodNetwork;
use sources::registry::resolve_digest;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use self::cron::{Cron, CronError};

const PROGRAM: &str = "cdi-source-update-poller";

const NAMESPACE: &str = "ns";
const CRON: &str = "cron";
const URL: &str = "url";
const CERT_DIR: &str = "certdir";

const OWN_FLAGS: [OwnFlag; 4] = [
    OwnFlag {
        name: NAMESPACE,
        purpose: "(mandatory) namespace of the DataImportCron",
    },
    OwnFlag {
        name: CRON,
        purpose: "(mandatory) name of the DataImportCron",
    },
    OwnFlag {
        name: URL,
        purpose: "(mandatory) what it imports: docker://registry/repository:tag",
    },
    OwnFlag {
        name: CERT_DIR,
        purpose: "folder with further certificates that the registry may be signed with",
    },
];

/// The reason why the DataImportCron was not updated.
#[derive(Debug, thiserror::Error)]
enum PollFailed {
    #[error(transparent)]
    Missing(#[from] FlagError),
    #[error("{0}")]
    Environment(EnvErrors),
    #[error("Failed getting the digest of {url}: {cause}")]
    Digest { url: String, cause: String },
    #[error("Failed to find the way to Kubernetes: {0}")]
    NoCluster(#[from] cluster::NoCluster),
    #[error(transparent)]
    Cron(#[from] CronError),
    #[error("cannot write to stdout: {0}")]
    Print(#[from] std::io::Error),
}

/// Compares what `arguments` name with what the DataImportCron knows, and tells it.
pub fn main(arguments: &[OsString], env: &dyn Strings) -> ExitCode {
    let flags = [OWN_FLAGS.as_slice(), &cluster::FLAGS].concat();
    program::start::start(PROGRAM, &flags, arguments, env, async |flags, shutdown| {
        let polling = poll(&flags, env, shutdown.token());
        match shutdown.token().run_until_cancelled(polling).await {
            Some(Ok(())) => Exit::Done,
            // As upstream, which ends by the exit code of Go's `log.Fatal`.
            Some(Err(failure)) => {
                tracing::error!("{failure}");
                Exit::Internal
            }
            None => Exit::Signalled(shutdown.signal().unwrap_or(Signal::Terminate)),
        }
    })
}

async fn poll(flags: &Flags, env: &dyn Strings, stop: &CancellationToken) -> Result<(), PollFailed> {
    let [namespace, name, url] = flags.mandatory([NAMESPACE, CRON, URL])?;
    let digest = digest(&url, flags, env, stop).await?;
    command_line::print(format!("Digest is {digest}\n").as_bytes())?;
    let cron = Cron::new(cluster::config(flags, env).await?, &namespace, &name)?;
    let changed = cron.report(&digest).await?;
    let said = if changed {
        "Digest updated"
    } else {
        "No digest update"
    };
    command_line::print(format!("{said}: DataImportCron {namespace}/{name}\n").as_bytes())?;
    Ok(())
}

/// The digest of what the registry has at `url`: that of the index if it is one.
async fn digest(
    url: &str,
    flags: &Flags,
    env: &dyn Strings,
    stop: &CancellationToken,
) -> Result<String, PollFailed> {
    let failed = |cause: String| PollFailed::Digest {
        url: url.to_owned(),
        cause,
    };
    let mut reader = EnvReader::new(env);
    let network = PodNetwork::read(&mut reader, env);
    reader.finish().map_err(PollFailed::Environment)?;
    let mut network = network.ok_or_else(|| failed("the environment does not say how".to_owned()))?;
    if let Some(folder) = flags.own(CERT_DIR).filter(|folder| !folder.is_empty()) {
        network.cert_dir = Some(folder.into());
    }
    let network = network
        .open(&Paths::from_env(env), Handle::current(), stop.clone())
        .map_err(|error| failed(error.to_string()))?;
    let reference = url.to_owned();
    // It waits for its answers on a thread of its own.
    let asked = threads::run(move || resolve_digest(&reference, &Arc::new(network))).await;
    let asked = asked.map_err(|error| failed(error.to_string()))?;
    asked.map_err(|error| failed(error.to_string()))
}
