//! Runs the cloner as the source pod of a host-assisted clone.

mod config;
mod names;
mod startup;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use https::metrics;
use program::env::NamedStrings;
use program::exit::ExitReason;
use program::flags::{KlogFlags, OwnFlag};
use program::metrics::{CLONE_PROGRESS, MetricsRegistry, ProgressMetric};
use program::paths::PodPaths;
use program::report;
use program::signal::{ShutdownRequest, StopSignal};
use program::start;
use reporting::figures::{CountedTransfer, TransferMetrics};

use self::config::Config;
pub use self::names::MODE_VARIABLE;
use self::names::{CONTENT_TYPE_FLAG, MOUNT_FLAG, UPLOAD_BYTES_FLAG, URL_VARIABLE};
use crate::client::UploadClient;
use crate::clone::{self, CloneError};
use crate::confine;
use crate::source::{Tally, VolumeSource};

const PROGRAM: &str = "cdi-cloner";

/// The name under which CDI's image starts the program.
const SCRIPT: &str = "cloner_startup.sh";

/// Interval between two updates of the progress metric.
const PERIOD: Duration = Duration::from_secs(1);

const FLAGS: [OwnFlag; 3] = [
    OwnFlag { name: CONTENT_TYPE_FLAG, purpose: "filesystem-clone or blockdevice-clone" },
    OwnFlag { name: UPLOAD_BYTES_FLAG, purpose: "approximate number of bytes in the volume" },
    OwnFlag { name: MOUNT_FLAG, purpose: "path of the volume: a directory or a block device" },
];

/// Returns true if the program was started under the name that CDI's image uses.
pub fn is_script(name: &OsStr) -> bool {
    Path::new(name).file_name() == Some(OsStr::new(SCRIPT))
}

/// Runs the cloner of a pod with `arguments` and the environment `env`. Without arguments, it
/// first does the work of the script that would otherwise pass them.
pub fn main(arguments: &[OsString], env: &dyn NamedStrings) -> ExitCode {
    let scripted = if arguments.is_empty() {
        match startup::startup_arguments(env, &mut print_line) {
            Ok(scripted) => scripted,
            Err(sentence) => {
                // The exit code reports the failure even if stderr is closed.
                writeln!(io::stderr(), "{sentence}").ok();
                return ExitCode::FAILURE;
            }
        }
    } else {
        arguments.to_vec()
    };
    let confine = |flags: &KlogFlags| {
        let url = env.get(URL_VARIABLE).unwrap_or_default();
        confine::enter_pod(env, flags.own_value(MOUNT_FLAG), &url)
    };
    let run = |flags, (), shutdown| run(flags, env, shutdown);
    start::start_pod(PROGRAM, &FLAGS, &scripted, env, confine, run)
}

fn print_line(line: &str) {
    // A closed stdout must not make the clone fail.
    writeln!(io::stdout(), "{line}").ok();
}

async fn run(flags: KlogFlags, env: &dyn NamedStrings, shutdown: ShutdownRequest) -> ExitReason {
    let upload_bytes = match Config::upload_bytes(&flags) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::error!("{error}");
            return ExitReason::Usage;
        }
    };
    let config = match Config::read(&flags, upload_bytes, env) {
        Ok(config) => config,
        Err(refusal) => return report_fatal(env, &refusal),
    };
    let registry = MetricsRegistry::default();
    // Controllers look for a metric series by owner, so a clone without an owner gets no series.
    let (name, help) = CLONE_PROGRESS;
    let owner = config.owner_uid.as_ref();
    let progress = owner.map(|owner| registry.add_progress(name, help, owner)).unwrap_or_default();
    progress.record_bytes(0, config.upload_bytes);
    let metrics = TransferMetrics::new(&registry, "cloner", CloneError::TROUBLES.into_iter());
    let counted = Arc::new(CountedTransfer::new(Arc::new(metrics)));
    metrics::serve_metrics(env, registry, shutdown.cancel_token()).await;
    sandbox::close_listening();
    let tally = Arc::new(Tally::with_observer(Arc::clone(&counted) as _));
    let cloning = clone_volume(&config, &counted.metrics, &tally);
    let watching = report_progress(&progress, &tally, config.upload_bytes);
    let ended = tokio::select! {
        result = cloning => result,
        () = watching => Ok(()),
        () = shutdown.cancel_token().cancelled() => return report_stop(&shutdown),
    };
    match ended {
        Ok(()) => {
            counted.log_limits();
            report_success(&config, &tally, &progress, env)
        }
        Err(sentence) => report_fatal(env, &sentence),
    }
}

/// Sends the volume. On failure, returns the message for the log.
async fn clone_volume(
    config: &Config,
    metrics: &TransferMetrics,
    tally: &Arc<Tally>,
) -> Result<(), String> {
    let failed = |error: CloneError| {
        metrics.record_failure(error.stage_and_kind());
        match error {
            CloneError::Transport(reason) => format!("Error {reason} POSTing to {}", config.url),
            CloneError::Source(error) => format!("Error reading the volume: {error}"),
            error => error.to_string(),
        }
    };
    let source = if config.is_device {
        VolumeSource::open_device(&config.mount)
    } else {
        VolumeSource::open_directory(&config.mount, !config.preallocation)
    };
    let source = source.map_err(|error| failed(error.into()))?;
    let client = UploadClient::new(&config.url, &config.client_identity())
        .map_err(|error| format!("Error creating http client: {error}"))?;
    let sent = clone::send_volume(source, &client, None, tally).await;
    sent.map(drop).map_err(failed)
}

/// Updates the progress metric until the future is dropped.
async fn report_progress(progress: &ProgressMetric, tally: &Tally, total: u64) {
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        ticks.tick().await;
        progress.record_bytes(tally.volume_bytes(), total);
    }
}

fn report_success(
    config: &Config,
    tally: &Tally,
    progress: &ProgressMetric,
    env: &dyn NamedStrings,
) -> ExitReason {
    progress.set_complete();
    tracing::info!("Wrote {} bytes", tally.volume_bytes());
    tracing::info!("sent {} bytes", tally.stream_bytes());
    let mut message = "Clone Complete".to_owned();
    if config.preallocation {
        message.push_str(", Preallocation applied");
    }
    let log = PodPaths::from_env(env).termination_log();
    if let Err(error) = report::write_text(&log, &message) {
        // The log is what remains for it.
        tracing::error!("{error}");
        return ExitReason::Fatal;
    }
    tracing::info!("clone complete");
    ExitReason::Done
}

fn report_stop(shutdown: &ShutdownRequest) -> ExitReason {
    let signal = shutdown.first_signal().unwrap_or(StopSignal::Terminate);
    tracing::error!("stopped by {}", signal.name());
    ExitReason::Signalled(signal)
}

fn report_fatal(env: &dyn NamedStrings, reason: &str) -> ExitReason {
    report::log_failure(env, reason);
    ExitReason::Fatal
}
