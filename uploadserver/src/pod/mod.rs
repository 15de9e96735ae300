//! Runs the server as CDI's upload pod, in the way that CDI's controller expects.

mod config;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use program::command_line::{CommandError, FailedCommand};
use program::env::NamedStrings;
use program::exit::ExitReason;
use program::paths::PodPaths;
use program::report::{self, TerminationMessage};
use program::signal::ShutdownRequest;
use rustls::ServerConfig;
use sandbox::SandboxMode;

use crate::PROGRAM;
use crate::config::Config;
use crate::confine;
use crate::job::UploadSuccess;
use crate::lifetime::{self, ServerExit};

/// The variable that contains the path of the server's key. If it is set, the process runs as a
/// pod.
pub const KEY_VARIABLE: &str = "TLS_KEY_FILE";

/// Runs the upload server of a pod with the klog flags `arguments` and the environment `env`.
pub fn main(arguments: &[OsString], env: &dyn NamedStrings) -> ExitCode {
    let run = |_, prepared, shutdown| run(env, prepared, shutdown);
    program::start::start_pod(PROGRAM, &[], arguments, env, |_| prepare(env), run)
}

/// The settings of a server, and its certificate.
type PreparedServer = Result<(Config, ServerConfig), CommandError>;

/// Reads the settings and the key, and enters the sandbox. The error is the reason why the pod must
/// not continue.
fn prepare(env: &dyn NamedStrings) -> Result<PreparedServer, String> {
    let paths = PodPaths::from_env(env);
    let prepared = config::read_config(env, &paths).and_then(|config| {
        let tls = config.tls.server_config(&config.profile).map_err(|error| {
            let sentence = format_args!("UploadServer failed: Error getting TLS config: {error}");
            CommandError::new(ExitReason::Internal, sentence)
        })?;
        Ok((config, tls))
    });
    if let Ok((config, _)) = &prepared {
        let log = paths.termination_log();
        SandboxMode::of_pod(env)
            .and_then(|mode| confine::enter_sandbox(mode, config, Some(&log), env))
            .map_err(|error| error.to_string())?;
    }
    Ok(prepared)
}

async fn run(
    env: &dyn NamedStrings,
    prepared: PreparedServer,
    shutdown: ShutdownRequest,
) -> ExitReason {
    volume::limits::of_pod();
    let (config, tls) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            tracing::error!("{error}");
            return error.exit_reason();
        }
    };
    tracing::info!(
        version = *program::VERSION,
        destination = %config.destination.disk.display(),
        "Starting upload server"
    );
    if config.tls.client_ca.is_none() {
        tracing::warn!(
            "no authority for client certificates is configured: every upload will be rejected"
        );
    }
    match lifetime::run(config, tls, &shutdown, |_| {}).await {
        Ok(exit) => exit_with_message(&exit, &PodPaths::from_env(env).termination_log()),
        Err(error) => {
            tracing::error!("UploadServer failed: {error}");
            ExitReason::Internal
        }
    }
}

/// Writes the termination message for the controller, and returns the exit code.
fn exit_with_message(exit: &ServerExit, termination_log: &Path) -> ExitReason {
    let message = match exit {
        ServerExit::Success(success) => {
            tracing::info!("UploadServer successfully exited");
            completion_message(*success)
        }
        ServerExit::DeadlinePassed => TerminationMessage {
            deadline_passed: Some(true),
            message: Some("Deadline Passed".to_owned()),
            ..TerminationMessage::default()
        },
        // Without a termination message, the kubelet uses the end of the log.
        ServerExit::Broken(reason) => {
            tracing::error!("UploadServer failed: {reason}");
            return ExitReason::Internal;
        }
        ServerExit::Signalled(signal) => {
            tracing::error!("stopped by {}", signal.name());
            return ExitReason::Signalled(*signal);
        }
    };
    match report::write_json(termination_log, &message) {
        Ok(()) => ExitReason::Done,
        Err(error) => {
            if let ServerExit::Success(_) = exit {
                tracing::error!("the disk is complete, but {error}");
            } else {
                tracing::error!("{error}");
            }
            ExitReason::Internal
        }
    }
}

fn completion_message(success: UploadSuccess) -> TerminationMessage {
    let message = if success.content.is_clone() { "Clone Complete" } else { "Upload Complete" };
    TerminationMessage {
        preallocation_applied: Some(success.preallocated),
        message: Some(message.to_owned()),
        ..TerminationMessage::default()
    }
}
