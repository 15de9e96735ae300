//! The pod face: does what CDI's controller expects of its importer pod.
//!
//! Flags → log → metrics → environment → volume → source → transfer → fsync → done file → termination message.

mod config;
mod import;
mod message;
mod node_pull;
mod open;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use datapath::disk;
use https::metrics;
use program::env::Strings;
use program::exit::Exit;
use program::job::{self, Ended, POD_GRACE};
use program::metrics::{IMPORT_PROGRESS, Registry};
use program::paths::Paths;
use program::report::{self, Termination};
use program::signal::{Shutdown, Signal};
use program::start;
use tokio::runtime::Handle;
use volume::Volume;
use volume::wording;

use self::config::Config;
use self::import::Import;
use self::message::{ImportFailed, PROCESS};
use crate::watch::Watch;

/// The kind of source (contract §1.2). Its presence makes the process a pod.
pub const SOURCE_VARIABLE: &str = "IMPORTER_SOURCE";

const PROGRAM: &str = "cdi-importer";

/// Runs the importer of a pod with klog flags `arguments` and environment `env`.
pub fn main(arguments: &[OsString], env: &dyn Strings) -> ExitCode {
    start::start(PROGRAM, &[], arguments, env, |_, shutdown| run(env, shutdown))
}

async fn run(env: &dyn Strings, shutdown: Shutdown) -> Exit {
    let registry = Registry::default();
    metrics::serve(env, registry.clone(), shutdown.token()).await;
    tracing::info!(version = *program::VERSION, "Starting importer");

    volume::limits::of_pod();
    let paths = Paths::from_env(env);
    let (config, volume) = match prepare(env, &paths) {
        Ok(prepared) => prepared,
        Err(message) => return fail(&paths, &message),
    };
    // Apart from the import, which may hang: the message is written all the same.
    let ending = Ending {
        done_file: config.done_file.clone(),
        paths: paths.clone(),
        shutdown,
    };
    let import = Import {
        watch: Arc::new(Watch::new(
            &registry,
            IMPORT_PROGRESS,
            &config.owner_uid,
            config.made(),
        )),
        config,
        paths,
        volume,
        handle: Handle::current(),
        stop: ending.shutdown.token().clone(),
    };
    let work = move || import.run();
    let ended = job::run(&ending.shutdown, POD_GRACE, disk::abandon, work).await;
    ending.with(ended)
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
            made if made.is_in_place() => format!("{PROCESS}{}", wording::no_base(error, made)),
            _ => {
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

/// Logs `message`, leaves it for the kubelet, and gives the exit code.
fn fail(paths: &Paths, message: &str) -> Exit {
    if !message.is_empty() {
        tracing::error!("{message}");
        if let Err(error) = report::write_text(&paths.termination_log(), message) {
            tracing::error!("{error}");
        }
    }
    Exit::Internal
}

/// The end of the process, as the kubelet and the controller see it.
struct Ending {
    done_file: Option<PathBuf>,
    paths: Paths,
    shutdown: Shutdown,
}

impl Ending {
    fn with(&self, ended: Ended<Result<Option<Termination>, ImportFailed>>) -> Exit {
        match ended {
            Ended::Returned(Ok(message)) => self.succeed(message.as_ref()),
            Ended::Returned(Err(ImportFailed::Final(text))) => {
                tracing::error!("{text}");
                self.succeed(Some(&Termination {
                    message: Some(text),
                    ..Termination::default()
                }))
            }
            Ended::Returned(Err(ImportFailed::Stopped)) => self.stopped(self.shutdown.signal()),
            Ended::Returned(Err(ImportFailed::Text(text))) => fail(&self.paths, &text),
            Ended::Failed(text) => fail(&self.paths, &format!("{}{text}", message::PROCESS)),
            Ended::Overdue(signal) => self.stopped(Some(signal)),
        }
    }

    /// A success: the done file first, so that the side container ends even if the message cannot be written.
    fn succeed(&self, message: Option<&Termination>) -> Exit {
        if let Some(file) = &self.done_file {
            node_pull::create_done_file(file);
        }
        match message.map(|message| report::write_json(&self.paths.termination_log(), message)) {
            Some(Err(error)) => {
                tracing::error!("the disk is complete, but {error}");
                Exit::Internal
            }
            Some(Ok(())) | None => Exit::Done,
        }
    }

    fn stopped(&self, signal: Option<Signal>) -> Exit {
        let signal = signal.unwrap_or(Signal::Terminate);
        fail(
            &self.paths,
            &format!("{}stopped by {}", message::PROCESS, signal.name()),
        );
        Exit::Signalled(signal)
    }
}
