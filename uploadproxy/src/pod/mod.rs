//! Runs the proxy in the pod of CDI's Deployment `cdi-uploadproxy`.

mod config;

use std::ffi::OsString;
use std::process::ExitCode;

use program::cluster;
use program::env::NamedStrings;
use program::exit::ExitReason;
use program::flags::KlogFlags;
use program::paths::PodPaths;
use program::signal::ShutdownRequest;

use crate::lifetime;

/// The variable that contains the key that verifies tokens. If it is set, the process runs as a
/// pod.
pub const KEY_VARIABLE: &str = "APISERVER_PUBLIC_KEY";

/// Runs the upload proxy of a cluster with the flags `arguments` and the environment `env`.
pub fn main(arguments: &[OsString], env: &dyn NamedStrings) -> ExitCode {
    program::start::start_pod(crate::PROGRAM, &cluster::FLAGS, arguments, env, |flags, shutdown| {
        run(flags, env, shutdown)
    })
}

async fn run(flags: KlogFlags, env: &dyn NamedStrings, shutdown: ShutdownRequest) -> ExitReason {
    let paths = PodPaths::from_env(env);
    tracing::info!(version = *program::VERSION, "Starting upload proxy");
    let reading = config::read_config(&flags, env, &paths);
    let config = match shutdown.cancel_token().run_until_cancelled(reading).await {
        Some(Ok(config)) => config,
        Some(Err(refusal)) => return fatal_exit(&refusal.to_string()),
        // A signal arrived before the proxy could start.
        None => return ExitReason::Done,
    };
    match lifetime::run(config, &shutdown, |_| {}).await {
        Ok(()) => ExitReason::Done,
        Err(error) => fatal_exit(&error.to_string()),
    }
}

fn fatal_exit(reason: &str) -> ExitReason {
    tracing::error!("{reason}");
    ExitReason::Fatal
}
