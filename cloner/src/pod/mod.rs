//! The pod face: the source pod of a host-assisted clone.

mod config;
mod figures;
mod names;
mod startup;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use https::metrics;
use program::env::Strings;
use program::exit::Exit;
use program::flags::{Flags, OwnFlag};
use program::metrics::{CLONE_PROGRESS, Progress, Registry};
use program::paths::Paths;
use program::report;
use program::signal::{Shutdown, Signal};
use program::start;

use self::config::Config;
use self::figures::Figures;
pub use self::names::MODE_VARIABLE;
use self::names::{CONTENT_TYPE_FLAG, MOUNT_FLAG, UPLOAD_BYTES_FLAG};
use crate::client::Client;
use crate::clone::{self, Choice, CloneError};
use crate::source::Source;
use crate::source::Tally;

const PROGRAM: &str = "cdi-cloner";

/// The name by which CDI's image starts it.
const SCRIPT: &str = "cloner_startup.sh";

/// Time between two updates of the progress.
const PERIOD: Duration = Duration::from_secs(1);

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
                // The exit code still says it when stderr is closed.
                writeln!(io::stderr(), "{sentence}").ok();
                return ExitCode::FAILURE;
            }
        }
    } else {
        arguments.to_vec()
    };
    start::start(PROGRAM, &FLAGS, &scripted, env, |flags, shutdown| {
        run(flags, env, shutdown)
    })
}

fn say(line: &str) {
    // The log of a pod may be gone; the clone must not be.
    writeln!(io::stdout(), "{line}").ok();
}

async fn run(flags: Flags, env: &dyn Strings, shutdown: Shutdown) -> Exit {
    let upload_bytes = match Config::upload_bytes(&flags) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::error!("{error}");
            return Exit::Usage;
        }
    };
    let config = match Config::read(&flags, upload_bytes, env) {
        Ok(config) => config,
        Err(refusal) => return fatal(&refusal),
    };
    let registry = Registry::default();
    // Controllers look for an owner's series; a clone without an owner has none.
    let progress = config
        .owner_uid
        .as_ref()
        .map(|owner| registry.progress(CLONE_PROGRESS.0, CLONE_PROGRESS.1, owner));
    if let Some(progress) = &progress {
        progress.record(0, config.upload_bytes);
    }
    let figures = Figures::new(&registry);
    metrics::serve(env, registry, shutdown.token()).await;
    let tally = Arc::new(figures.tally());
    let cloning = clone_volume(&config, &figures, &tally);
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
async fn clone_volume(config: &Config, figures: &Figures, tally: &Arc<Tally>) -> Result<(), String> {
    let failed = |error: CloneError| {
        figures.failed(&error);
        match error {
            CloneError::Transport(reason) => format!("Error {reason} POSTing to {}", config.url),
            CloneError::Source(error) => format!("Error reading the volume: {error}"),
            error => error.to_string(),
        }
    };
    let source = if config.is_device {
        Source::device(&config.mount)
    } else {
        Source::files(&config.mount, !config.preallocation)
    };
    let source = source.map_err(|error| failed(error.into()))?;
    let client = Client::new(&config.url, &config.identity())
        .map_err(|error| format!("Error creating http client: {error}"))?;
    let sent = clone::run(source, &client, Choice::Auto, tally).await;
    sent.map(drop).map_err(failed)
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

fn succeed(config: &Config, tally: &Tally, progress: Option<&Progress>, paths: &Paths) -> Exit {
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
    Exit::Done
}

fn stopped(shutdown: &Shutdown) -> Exit {
    let signal = shutdown.signal().unwrap_or(Signal::Terminate);
    tracing::error!("stopped by {}", signal.name());
    Exit::Signalled(signal)
}

fn fatal(reason: &str) -> Exit {
    tracing::error!("{reason}");
    Exit::Fatal
}
