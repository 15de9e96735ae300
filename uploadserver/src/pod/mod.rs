//! The pod face: does what CDI's controller expects of its upload pod.

mod config;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use daemon::env::Strings;
use daemon::paths::Paths;
use daemon::report::{self, Termination};
use daemon::signal;

use self::config::ConfigError;
use crate::job::Success;
use crate::lifetime::{self, Exit};

/// The server's key. Its presence makes the process a pod.
pub const KEY_VARIABLE: &str = "TLS_KEY_FILE";

const PROGRAM: &str = "cdi-uploadserver";

/// The exit code of klog's `Fatal`, by which upstream ends when its configuration is wrong.
const FATAL: u8 = 255;

/// Runs the upload server of a pod with klog flags `arguments` and environment `env`.
pub fn main(arguments: &[OsString], env: &dyn Strings) -> ExitCode {
    app::start::start(PROGRAM, &[], arguments, |_| run(env))
}

async fn run(env: &dyn Strings) -> u8 {
    volume::limits::of_pod();
    let paths = Paths::from_env(env);
    let config = match config::read(env, &paths) {
        Ok(config) => config,
        Err(ConfigError::Deadline(reason)) => {
            tracing::error!("{reason}");
            return FATAL;
        }
        Err(ConfigError::Environment(errors)) => {
            tracing::error!("{errors}");
            return 1;
        }
        Err(ConfigError::Tls) => {
            tracing::error!("Error getting TLS config: invalid TLS config");
            return 1;
        }
    };
    let shutdown = match signal::watch() {
        Ok(shutdown) => shutdown,
        Err(error) => {
            tracing::error!("cannot watch for signals: {error}");
            return 1;
        }
    };
    tracing::info!(
        version = crate::VERSION,
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
            1
        }
    }
}

/// Leaves the message for the controller, and gives the exit code.
fn end(exit: &Exit, termination_log: &Path) -> u8 {
    let message = match exit {
        Exit::Success(success) => {
            tracing::info!("UploadServer successfully exited");
            complete(*success)
        }
        Exit::DeadlinePassed => Termination {
            deadline_passed: Some(true),
            message: Some("Deadline Passed".to_owned()),
            ..Termination::default()
        },
        // No message: the kubelet falls back to the end of the log.
        Exit::Broken(reason) => {
            tracing::error!("UploadServer failed: {reason}");
            return 1;
        }
        // Not zero: a container that ends well is not started again, and its upload would never come.
        Exit::Signalled(signal) => {
            tracing::error!("stopped by {}", signal.name());
            return signal.exit_code();
        }
    };
    match report::write_json(termination_log, &message) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!("{error}");
            1
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
