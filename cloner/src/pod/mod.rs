//! The pod face: the source pod of a host-assisted clone.

mod config;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use daemon::env::Strings;
use daemon::flags::{FlagError, Flags, OwnFlag};
use daemon::metrics::{CLONE_PROGRESS, Progress, Registry, server};
use daemon::paths::Paths;
use daemon::report;
use daemon::signal::{self, Shutdown, Signal};

use self::config::Config;
use crate::client::Client;
use crate::clone::{self, Choice, CloneError};
use crate::outgoing::Tally;
use crate::source::Source;
use crate::startup;

/// `block` or `filesystem`. Its presence, without any argument, makes the process a pod.
pub const MODE_VARIABLE: &str = "VOLUME_MODE";

/// Whether the target's space is allocated: then holes need not stay holes.
pub(crate) const PREALLOCATION_VARIABLE: &str = "PREALLOCATION";

/// Another address for the metrics, so that tests can run side by side. Not documented for users.
const METRICS_ADDRESS_VARIABLE: &str = "CDI_WORKERS_TEST_METRICS_ADDR";

const PROGRAM: &str = "cdi-cloner";

/// The name by which CDI's image starts it.
const SCRIPT: &str = "cloner_startup.sh";

/// The exit code of klog's `Fatal`, by which upstream ends when it fails.
const FATAL: u8 = 255;

/// How often the progress is brought up to date.
const PERIOD: Duration = Duration::from_secs(1);

pub(crate) const CONTENT_TYPE_FLAG: &str = "content-type";
pub(crate) const UPLOAD_BYTES_FLAG: &str = "upload-bytes";
pub(crate) const MOUNT_FLAG: &str = "mount";

const FLAGS: [OwnFlag; 3] = [
    OwnFlag {
        name: CONTENT_TYPE_FLAG,
        purpose: "filesystem-clone or blockdevice-clone",
    },
    OwnFlag {
        name: UPLOAD_BYTES_FLAG,
        purpose: "approximate number of bytes in the volume",
    },
    OwnFlag {
        name: MOUNT_FLAG,
        purpose: "path of the volume: a directory or a block device",
    },
];

/// True if the program was started as CDI's image starts it.
pub fn is_script(name: &OsStr) -> bool {
    Path::new(name).file_name() == Some(OsStr::new(SCRIPT))
}

/// Runs the cloner of a pod with `arguments` and environment `env`. Without arguments it does first what the script does that
/// would pass them.
pub fn main(arguments: &[OsString], env: &dyn Strings) -> ExitCode {
    let scripted = if arguments.is_empty() {
        match startup::arguments(env, &mut say) {
            Ok(scripted) => scripted,
            Err(sentence) => {
                // Nobody is left to tell when stderr is closed; the exit code still says it.
                writeln!(io::stderr(), "{sentence}").ok();
                return ExitCode::FAILURE;
            }
        }
    } else {
        arguments.to_vec()
    };
    app::start::start(PROGRAM, &FLAGS, &scripted, |flags| run(flags, env))
}

fn say(line: &str) {
    // The log of a pod may be gone; the clone must not be.
    writeln!(io::stdout(), "{line}").ok();
}

async fn run(flags: Flags, env: &dyn Strings) -> u8 {
    let shutdown = match signal::watch() {
        Ok(shutdown) => shutdown,
        Err(error) => return fatal(&format!("cannot watch for signals: {error}")),
    };
    let upload_bytes = match Config::upload_bytes(&flags) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::error!("{error}");
            return FlagError::EXIT_CODE;
        }
    };
    let config = match Config::read(&flags, upload_bytes, env) {
        Ok(config) => config,
        Err(refusal) => return fatal(&refusal),
    };
    let registry = Registry::default();
    // Controllers look for an owner's series; of nobody's clone there is none.
    let progress = config
        .owner_uid
        .as_ref()
        .map(|owner| registry.progress(CLONE_PROGRESS.0, CLONE_PROGRESS.1, owner));
    if let Some(progress) = &progress {
        progress.record(0, config.upload_bytes);
    }
    server::start(&metrics_addresses(env), registry, shutdown.token().clone()).await;
    let tally = Arc::default();
    let cloning = clone_volume(&config, &tally);
    let watching = watch(progress.as_ref(), &tally, config.upload_bytes);
    let ended = tokio::select! {
        result = cloning => result,
        () = watching => Ok(()),
        () = shutdown.token().cancelled() => return stopped(&shutdown),
    };
    match ended {
        Ok(()) => succeed(&config, &tally, progress.as_ref(), &Paths::from_env(env)),
        Err(sentence) => fatal(&sentence),
    }
}

/// Sends the volume; or the sentence that says why not.
async fn clone_volume(config: &Config, tally: &Arc<Tally>) -> Result<(), String> {
    let unreadable = |error: &dyn std::error::Error| format!("Error reading the volume: {error}");
    let source = if config.is_device {
        Source::device(&config.mount)
    } else {
        Source::files(&config.mount, !config.preallocation)
    };
    let source = source.map_err(|error| unreadable(&error))?;
    let client = Client::new(&config.url, &config.identity())
        .map_err(|error| format!("Error creating http client: {error}"))?;
    match clone::run(source, &client, Choice::Auto, tally).await {
        Ok(_) => Ok(()),
        Err(CloneError::Transport(reason)) => Err(format!("Error {reason} POSTing to {}", config.url)),
        Err(CloneError::Source(error)) => Err(unreadable(&error)),
        Err(error) => Err(error.to_string()),
    }
}

/// Brings the progress up to date, for ever.
async fn watch(progress: Option<&Progress>, tally: &Tally, total: u64) {
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        ticks.tick().await;
        if let Some(progress) = progress {
            progress.record(tally.volume_bytes(), total);
        }
    }
}

fn metrics_addresses(env: &dyn Strings) -> Vec<SocketAddr> {
    let other = env
        .get(METRICS_ADDRESS_VARIABLE)
        .and_then(|text| text.parse().ok());
    other.map_or_else(|| server::addresses().to_vec(), |address| vec![address])
}

fn succeed(config: &Config, tally: &Tally, progress: Option<&Progress>, paths: &Paths) -> u8 {
    if let Some(progress) = progress {
        progress.finish();
    }
    tracing::info!("Wrote {} bytes", tally.volume_bytes());
    tracing::info!("sent {} bytes", tally.stream_bytes());
    let mut message = "Clone Complete".to_owned();
    if config.preallocation {
        message.push_str(", Preallocation applied");
    }
    if let Err(error) = report::write_text(&paths.termination_log(), &message) {
        return fatal(&error.to_string());
    }
    tracing::info!("clone complete");
    0
}

fn stopped(shutdown: &Shutdown) -> u8 {
    let signal = shutdown.signal().unwrap_or(Signal::Terminate);
    tracing::error!("stopped by {}", signal.name());
    signal.exit_code()
}

fn fatal(reason: &str) -> u8 {
    tracing::error!("{reason}");
    FATAL
}
