//! The pod face: does what CDI's controller expects of its importer pod.
//!
//! Flags → log → metrics → environment → volume → source → transfer → fsync → done file → termination message.

mod config;
mod import;
mod message;
mod node_pull;
mod open;
mod watch;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use daemon::env::Strings;
use daemon::metrics::{Registry, server};
use daemon::paths::Paths;
use daemon::report::{self, Termination};
use daemon::signal::{self, Shutdown, Signal};
use datapath::observe::Phase;
use tokio::runtime::Handle;
use volume::Volume;
use volume::wording::{self, Made};
use volume::work::{self, Ended};

pub use self::config::AccessConfig;
use self::config::Config;
use self::import::Import;
use self::message::{Failure, PROCESS};
use self::watch::Watch;

/// What fills the disk: `http` or `none`. Its presence makes the process a pod.
pub const SOURCE_VARIABLE: &str = "IMPORTER_SOURCE";

/// Another address for the metrics, so that tests can run side by side. Not documented for users.
const METRICS_ADDRESS_VARIABLE: &str = "CDI_WORKERS_TEST_METRICS_ADDR";

const PROGRAM: &str = "cdi-importer";

/// How long the work may clean up after a signal. The kubelet kills after 30 s by default
/// (`terminationGracePeriodSeconds`), so the partial target is gone well before that.
const GRACE: Duration = Duration::from_secs(10);

/// Runs the importer of a pod with klog flags `arguments` and environment `env`.
pub fn main(arguments: &[OsString], env: &dyn Strings) -> ExitCode {
    app::start::start(PROGRAM, &[], arguments, |_| run(env))
}

async fn run(env: &dyn Strings) -> u8 {
    let shutdown = match signal::watch() {
        Ok(shutdown) => shutdown,
        Err(error) => {
            tracing::error!("cannot watch for signals: {error}");
            return 1;
        }
    };
    let registry = Registry::default();
    server::start(
        &metrics_addresses(env),
        registry.clone(),
        shutdown.token().clone(),
    )
    .await;
    tracing::info!(version = crate::VERSION, "Starting importer");

    volume::limits::of_pod();
    let paths = Paths::from_env(env);
    let (config, volume) = match prepare(env, &paths) {
        Ok(prepared) => prepared,
        Err(message) => return fail(&paths, &message),
    };
    let exit = Exit {
        done_file: config.done_file.clone(),
        paths: paths.clone(),
        shutdown,
    };
    let import = Import {
        watch: Arc::new(Watch::new(&registry, &config.owner_uid, config.made())),
        config,
        paths,
        volume,
        handle: Handle::current(),
        stop: exit.shutdown.token().clone(),
    };
    let ended = work::run(&exit.shutdown, GRACE, move || import.run()).await;
    exit.with(ended)
}

/// The configuration and the volume; or the termination message, which is empty where upstream leaves none.
fn prepare(env: &dyn Strings, paths: &Paths) -> Result<(Config, Volume), String> {
    let config = Config::read(env).map_err(|refusal| {
        refusal.log();
        refusal.message()
    })?;
    let volume =
        Volume::find(paths, config.wanted.size, config.made()).map_err(|error| match config.made() {
            // The stage before has left no disk.
            Made::Delta => format!(
                "{PROCESS}{}",
                wording::transfer(&error.into(), Phase::Transfer, Made::Delta)
            ),
            Made::Disk | Made::Directory => {
                tracing::error!("cannot tell the space of the target: {error}");
                String::new()
            }
        })?;
    tracing::info!(
        target = %volume.path.display(),
        available_bytes = volume.available,
        preallocate = config.wanted.preallocate,
        "found the volume"
    );
    Ok((config, volume))
}

fn metrics_addresses(env: &dyn Strings) -> Vec<SocketAddr> {
    let other = env
        .get(METRICS_ADDRESS_VARIABLE)
        .and_then(|text| text.parse().ok());
    other.map_or_else(|| server::addresses().to_vec(), |address| vec![address])
}

/// Logs `message`, leaves it for the kubelet, and gives the exit code.
fn fail(paths: &Paths, message: &str) -> u8 {
    if !message.is_empty() {
        tracing::error!("{message}");
        if let Err(error) = report::write_text(&paths.termination_log(), message) {
            tracing::error!("{error}");
        }
    }
    1
}

/// How the process ends.
struct Exit {
    done_file: Option<PathBuf>,
    paths: Paths,
    shutdown: Shutdown,
}

impl Exit {
    fn with(&self, ended: Ended<Result<Option<Termination>, Failure>>) -> u8 {
        match ended {
            Ended::Returned(Ok(message)) => self.succeed(message.as_ref()),
            Ended::Returned(Err(Failure::Final(text))) => {
                tracing::error!("{text}");
                self.succeed(Some(&Termination {
                    message: Some(text),
                    ..Termination::default()
                }))
            }
            Ended::Returned(Err(Failure::Stopped)) => self.stopped(self.shutdown.signal()),
            Ended::Returned(Err(Failure::Text(text))) => fail(&self.paths, &text),
            Ended::Panicked(text) => fail(&self.paths, &format!("{}{text}", message::PROCESS)),
            Ended::Overdue(signal) => self.stopped(Some(signal)),
        }
    }

    /// Exit 0: the done file first, so that the side container ends even if the message cannot be written.
    fn succeed(&self, message: Option<&Termination>) -> u8 {
        if let Some(file) = &self.done_file {
            node_pull::create_done_file(file);
        }
        match message.map(|message| report::write_json(&self.paths.termination_log(), message)) {
            Some(Err(error)) => {
                tracing::error!("{error}");
                1
            }
            Some(Ok(())) | None => 0,
        }
    }

    fn stopped(&self, signal: Option<Signal>) -> u8 {
        let signal = signal.unwrap_or(Signal::Terminate);
        fail(
            &self.paths,
            &format!("{}stopped by {}", message::PROCESS, signal.name()),
        );
        signal.exit_code()
    }
}
