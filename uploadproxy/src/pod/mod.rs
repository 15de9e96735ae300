//! The pod face: CDI's Deployment `cdi-uploadproxy`.

mod config;

use std::ffi::OsString;
use std::process::ExitCode;

use app::cluster;
use daemon::env::Strings;
use daemon::flags::Flags;
use daemon::paths::Paths;
use daemon::signal;

use crate::lifetime;

/// The key that tokens are verified with. Its presence makes the process a pod.
pub const KEY_VARIABLE: &str = "APISERVER_PUBLIC_KEY";

const PROGRAM: &str = "cdi-uploadproxy";

/// The exit code of klog's `Fatal`, by which upstream ends when it cannot start.
const FATAL: u8 = 255;

/// Runs the upload proxy of a cluster with flags `arguments` and environment `env`.
pub fn main(arguments: &[OsString], env: &dyn Strings) -> ExitCode {
    app::start::start(PROGRAM, &cluster::FLAGS, arguments, |flags| run(flags, env))
}

async fn run(flags: Flags, env: &dyn Strings) -> u8 {
    let paths = Paths::from_env(env);
    let shutdown = match signal::watch() {
        Ok(shutdown) => shutdown,
        Err(error) => return fatal(&format!("cannot watch for signals: {error}")),
    };
    tracing::info!(version = crate::VERSION, "Starting upload proxy");
    let reading = config::read(&flags, env, &paths);
    let config = match shutdown.token().run_until_cancelled(reading).await {
        Some(Ok(config)) => config,
        Some(Err(refusal)) => return fatal(&refusal.to_string()),
        // Told to stop before it began.
        None => return 0,
    };
    match lifetime::run(config, &shutdown, |_| {}).await {
        Ok(()) => 0,
        Err(error) => fatal(&error.to_string()),
    }
}

fn fatal(reason: &str) -> u8 {
    tracing::error!("{reason}");
    FATAL
}
