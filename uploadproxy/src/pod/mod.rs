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
use program::start;
use sandbox::SandboxRules;

use self::config::ProxySettings;
use crate::{lifetime, memory};

/// The variable that contains the key that verifies tokens. If it is set, the process runs as a
/// pod.
pub const KEY_VARIABLE: &str = "APISERVER_PUBLIC_KEY";

/// Runs the upload proxy of a cluster with the flags `arguments` and the environment `env`.
pub fn main(arguments: &[OsString], env: &dyn NamedStrings) -> ExitCode {
    let prepare = |flags: &KlogFlags| prepare(flags, env);
    let run = |flags, settings, shutdown| run(flags, env, settings, shutdown);
    start::start_pod(crate::PROGRAM, &cluster::FLAGS, arguments, env, prepare, run)
}

/// The settings in the environment, or the reason why the proxy cannot start with them.
type ReadSettings = Result<ProxySettings, String>;

/// Reads the settings and enters the sandbox. The error is the reason why the pod must not
/// continue.
fn prepare(flags: &KlogFlags, env: &dyn NamedStrings) -> Result<ReadSettings, String> {
    // The sandbox leaves no right to change limits.
    lifetime::raise_file_limit();
    let paths = PodPaths::from_env(env);
    let settings = config::read_settings(env, &paths);
    if let Ok(settings) = &settings {
        let mut rules = SandboxRules::new(env);
        settings.extend_rules(&mut rules);
        rules.read(config::ACCOUNT).write_file(paths.termination_log());
        for file in cluster::config_files(flags, env) {
            rules.read(file);
        }
        memory::without_background_thread(|| sandbox::enter_pod(env, rules))
            .map_err(|error| error.to_string())?;
    }
    Ok(settings)
}

async fn run(
    flags: KlogFlags,
    env: &dyn NamedStrings,
    settings: ReadSettings,
    shutdown: ShutdownRequest,
) -> ExitReason {
    tracing::info!(version = *program::VERSION, "Starting upload proxy");
    let reading = ProxySettings::into_config(settings, &flags, env);
    let config = match shutdown.cancel_token().run_until_cancelled(reading).await {
        Some(Ok(config)) => config,
        Some(Err(refusal)) => return fatal_exit(&refusal),
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
