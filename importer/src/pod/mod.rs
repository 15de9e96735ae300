//! Runs the importer as CDI's importer pod, as CDI's controller expects.
//!
//! The steps: flags → log → metrics → environment → volume → source → transfer → fsync → done file
//! → termination message.

mod config;
mod confine;
mod image_volume;
mod import;
mod labels;
mod message;
mod node_pull;
mod open;
mod provenance;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use datapath::disk;
use https::metrics;
use program::env::NamedStrings;
use program::exit::ExitReason;
use program::job::{self, JobOutcome, POD_GRACE};
use program::metrics::{IMPORT_PROGRESS, MetricsRegistry};
use program::paths::PodPaths;
use program::report::{self, TerminationMessage};
use program::signal::{ShutdownRequest, StopSignal};
use program::start;
use reporting::messages;
use tokio::runtime::Handle;
use volume::TargetVolume;

use self::config::Config;
use self::import::PodImport;
use self::message::{PROCESS, PodImportError};
use crate::watch::count_import;

/// The variable with the kind of source (contract §1.2). Its presence makes the process run as a
/// pod.
pub const SOURCE_VARIABLE: &str = "IMPORTER_SOURCE";

/// The beginning of the names of the importer's variables.
const VARIABLES: &str = "IMPORTER_";

/// `node`: a side container with the user's image serves the disk.
pub(crate) const PULL_METHOD: &str = "IMPORTER_PULL_METHOD";

const PROGRAM: &str = "cdi-importer";

/// Runs the importer of a pod with klog flags `arguments` and environment `env`.
pub fn main(arguments: &[OsString], env: &dyn NamedStrings) -> ExitCode {
    let confine = |_: &_| confine::enter_pod(env, confine::import_rules(env));
    start::start_pod(PROGRAM, &[], arguments, env, confine, |_, (), shutdown| {
        run_import(env, shutdown)
    })
}

async fn run_import(env: &dyn NamedStrings, shutdown: ShutdownRequest) -> ExitReason {
    // CDI up to 1.66.0 makes pods for VMware disks only with an init container that brings VMware's
    // library. If the importer's own image is named for it, there is nothing to bring.
    if env.with_prefix(VARIABLES).is_empty() {
        tracing::info!(
            "no variable {VARIABLES}…: nothing to do as the init container of an import without VMware's library"
        );
        return ExitReason::Done;
    }
    let registry = MetricsRegistry::default();
    metrics::serve_metrics(env, registry.clone(), shutdown.cancel_token()).await;
    sandbox::close_listening();
    tracing::info!(version = *program::VERSION, "Starting importer");

    volume::limits::of_pod();
    let paths = PodPaths::from_env(env);
    let (config, volume) = match prepare_import(env, &paths) {
        Ok(prepared) => prepared,
        Err(message) => return report_failure(&paths, &message),
    };
    // This is separate from the import, which may hang: the message has to be written even then.
    let ending =
        ExitReporter { done_file: config.done_file.clone(), paths: paths.clone(), shutdown };
    let import = PodImport {
        watch: count_import(&registry, IMPORT_PROGRESS, &config.owner_uid, config.phase_tracker()),
        config,
        paths,
        volume,
        handle: Handle::current(),
        stop: ending.shutdown.cancel_token().clone(),
    };
    let work = move || import.run();
    let ended = job::run_job(&ending.shutdown, POD_GRACE, disk::remove_unfinished, work).await;
    ending.report_outcome(ended)
}

/// Returns the configuration and the volume. The error is the termination message; it is empty
/// where upstream does not write one.
fn prepare_import(
    env: &dyn NamedStrings,
    paths: &PodPaths,
) -> Result<(Config, TargetVolume), String> {
    let config = Config::from_env(env).map_err(|refusal| {
        refusal.log_errors();
        refusal.termination_message()
    })?;
    let volume = TargetVolume::for_pod(paths, config.wanted.size, config.product_kind()).map_err(
        |error| match config.product_kind() {
            // The previous stage has not left a disk.
            made if made.is_in_place() => format!("{PROCESS}{}", messages::no_base(error, made)),
            _ => {
                tracing::error!("cannot tell the space of the target: {error}");
                String::new()
            }
        },
    )?;
    tracing::info!(
        target = %volume.path.display(),
        available_bytes = volume.available,
        preallocate = config.wanted.preallocate,
        "found the volume"
    );
    Ok((config, volume))
}

/// Logs `message`, writes it to the termination log for the kubelet, and returns the exit code.
fn report_failure(paths: &PodPaths, message: &str) -> ExitReason {
    if !message.is_empty() {
        tracing::error!("{message}");
        if let Err(error) = report::write_text(&paths.termination_log(), message) {
            tracing::error!("{error}");
        }
    }
    ExitReason::Internal
}

/// Reports the end of the process to the kubelet and the controller.
struct ExitReporter {
    done_file: Option<PathBuf>,
    paths: PodPaths,
    shutdown: ShutdownRequest,
}

impl ExitReporter {
    fn report_outcome(
        &self,
        ended: JobOutcome<Result<Option<TerminationMessage>, PodImportError>>,
    ) -> ExitReason {
        match ended {
            JobOutcome::Returned(Ok(message)) => self.report_success(message.as_ref()),
            JobOutcome::Returned(Err(PodImportError::Final(text))) => {
                tracing::error!("{text}");
                self.report_success(Some(&TerminationMessage {
                    message: Some(text),
                    ..TerminationMessage::default()
                }))
            }
            JobOutcome::Returned(Err(PodImportError::Stopped)) => {
                self.report_stopped(self.shutdown.first_signal())
            }
            JobOutcome::Returned(Err(PodImportError::Text(text))) => {
                report_failure(&self.paths, &text)
            }
            JobOutcome::Failed(text) => {
                report_failure(&self.paths, &format!("{}{text}", message::PROCESS))
            }
            JobOutcome::Overdue(signal) => self.report_stopped(Some(signal)),
        }
    }

    /// Reports a success. The done file comes first, so that the side container exits even if the
    /// message cannot be written.
    fn report_success(&self, message: Option<&TerminationMessage>) -> ExitReason {
        if let Some(file) = &self.done_file {
            node_pull::create_done_file(file);
        }
        match message.map(|message| report::write_json(&self.paths.termination_log(), message)) {
            Some(Err(error)) => {
                tracing::error!("the disk is complete, but {error}");
                ExitReason::Internal
            }
            Some(Ok(())) | None => ExitReason::Done,
        }
    }

    fn report_stopped(&self, signal: Option<StopSignal>) -> ExitReason {
        let signal = signal.unwrap_or(StopSignal::Terminate);
        report_failure(&self.paths, &format!("{}stopped by {}", message::PROCESS, signal.name()));
        ExitReason::Signalled(signal)
    }
}
