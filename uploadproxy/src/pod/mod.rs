//! The pod face: CDI's Deployment `cdi-uploadproxy`.

mod config;

use std::ffi::OsString;
use std::process::ExitCode;

use program::cluster;
use program::env::Strings;
use program::exit::Exit;
use program::flags::Flags;
use program::paths::Paths;
use program::signal::Shutdown;

use crate::lifetime;

/// The key that tokens are verified with. Its presence makes the process a pod.
pub const KEY_VARIABLE: &str = "APISERVER_PUBLIC_KEY";

/// Runs the upload proxy of a cluster with flags `arguments` and environment `env`.
pub fn main(arguments: &[OsString], env: &dyn Strings) -> ExitCode {
    program::start::start(
        crate::PROGRAM,
        &cluster::FLAGS,
        arguments,
        env,
        |flags, shutdown| run(flags, env, shutdown),
    )
}

async fn run(flags: Flags, env: &dyn Strings, shutdown: Shutdown) -> Exit {
    let paths = Paths::from_env(env);
    tracing::info!(version = *program::VERSION, "Starting upload proxy");
    let reading = config::read(&flags, env, &paths);
    let config = match shutdown.token().run_until_cancelled(reading).await {
        Some(Ok(config)) => config,
        Some(Err(refusal)) => return fatal(&refusal.to_string()),
        // Told to stop before it began.
        None => return Exit::Done,
    };
    match lifetime::run(config, &shutdown, |_| {}).await {
        Ok(()) => Exit::Done,
        Err(error) => fatal(&error.to_string()),
    }
}

fn fatal(reason: &str) -> Exit {
    tracing::error!("{reason}");
    Exit::Fatal
}
