//! The pod face: does what CDI's controller expects of its upload pod.

mod config;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use program::env::Strings;
use program::exit::Exit;
use program::paths::Paths;
use program::report::{self, Termination};
use program::signal::Shutdown;

use self::config::ConfigError;
use crate::job::Success;
use crate::lifetime::{self, Exited};

/// The server's key. Its presence makes the process a pod.
pub const KEY_VARIABLE: &str = "TLS_KEY_FILE";

const PROGRAM: &str = "cdi-uploadserver";

/// Runs the upload server of a pod with klog flags `arguments` and environment `env`.
pub fn main(arguments: &[OsString], env: &dyn Strings) -> ExitCode {
    program::start::start(PROGRAM, &[], arguments, env, |_, shutdown| run(env, shutdown))
}

async fn run(env: &dyn Strings, shutdown: Shutdown) -> Exit {
    volume::limits::of_pod();
    let paths = Paths::from_env(env);
    let config = match config::read(env, &paths) {
        Ok(config) => config,
        // As upstream: klog's fatal (255) for a deadline that is none, 1 for TLS that cannot be set up (contract §0.4, §2.1).
        Err(ConfigError::Deadline(reason)) => {
            tracing::error!("{reason}");
            return Exit::Fatal;
        }
        Err(ConfigError::Environment(errors)) => {
            tracing::error!("{errors}");
            return Exit::Internal;
        }
        Err(ConfigError::Tls) => {
            tracing::error!("Error getting TLS config: invalid TLS config");
            return Exit::Internal;
        }
    };
    tracing::info!(
        version = *program::VERSION,
        destination = %config.destination.disk.display(),
        "Starting upload server"
    );
    if config.tls.client_ca.is_none() {
        tracing::warn!("no authority for client certificates is named: every upload will be refused");
    }
    match lifetime::run(config, &shutdown, |_| {}).await {
        Ok(exit) => end(&exit, &paths.termination_log()),
        Err(error) => {
            tracing::error!("UploadServer failed: {error}");
            Exit::Internal
        }
    }
}

/// Leaves the message for the controller, and gives the exit code.
fn end(exit: &Exited, termination_log: &Path) -> Exit {
    let message = match exit {
        Exited::Success(success) => {
            tracing::info!("UploadServer successfully exited");
            complete(*success)
        }
        Exited::DeadlinePassed => Termination {
            deadline_passed: Some(true),
            message: Some("Deadline Passed".to_owned()),
            ..Termination::default()
        },
        // No message: the kubelet falls back to the end of the log.
        Exited::Broken(reason) => {
            tracing::error!("UploadServer failed: {reason}");
            return Exit::Internal;
        }
        Exited::Signalled(signal) => {
            tracing::error!("stopped by {}", signal.name());
            return Exit::Signalled(*signal);
        }
    };
    match report::write_json(termination_log, &message) {
        Ok(()) => Exit::Done,
        Err(error) => {
            if let Exited::Success(_) = exit {
                tracing::error!("the disk is complete, but {error}");
            } else {
                tracing::error!("{error}");
            }
            Exit::Internal
        }
    }
}

fn complete(success: Success) -> Termination {
    let message = if success.content.is_clone() {
        "Clone Complete"
    } else {
        "Upload Complete"
    };
    Termination {
        preallocation_applied: Some(success.preallocated),
        message: Some(message.to_owned()),
        ..Termination::default()
    }
}
