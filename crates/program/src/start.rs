//! Starts a process: klog flags, logging, panic handling, TLS, the runtime and signals.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::env::NamedStrings;
use crate::flags::{self, KlogFlags, OwnFlag};
use crate::logging::{self, LogFormat, LogOptions, LogStyle};
use crate::panics;
use crate::report;
use crate::signal::{self, ShutdownRequest};
use tokio::runtime::{Builder, Runtime};

use crate::coalesce;
use crate::exit::ExitReason;

/// Maximum number of runtimes for connections. They only copy bytes between sockets; one for each
/// core would waste memory on large nodes.
const MAX_LANES: usize = 4;

/// The reason why a process cannot start or cannot continue.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProcessStartError(String);

/// Runs `main` of the pod `program` with the given `arguments`, which may be klog flags and the
/// flags in `own`. `prepare` is called before, while the process has a single thread, and `main`
/// receives its result and the shutdown request, and returns the exit code. If `prepare` fails, or
/// `main` cannot be started or panics, the error becomes the termination message.
pub fn start_pod<T, F>(
    program: &'static str,
    own: &[OwnFlag],
    arguments: &[OsString],
    env: &dyn NamedStrings,
    prepare: impl FnOnce(&KlogFlags) -> Result<T, String>,
    main: impl FnOnce(KlogFlags, T, ShutdownRequest) -> F,
) -> ExitCode
where
    F: Future,
    F::Output: Into<ExitCode>,
{
    let flags = match flags::read_flags(program, own, arguments) {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    let format = LogStyle::from_env(env).log_format(LogFormat::Klog);
    logging::init(LogOptions { format, verbosity: flags.verbosity, program });
    // The hook writes to the log, so it is installed after logging starts.
    panics::install_hook();
    crate::install_provider();
    let ended = prepare(&flags)
        .map_err(|reason| ProcessStartError(format!("cannot start: {reason}")))
        .and_then(|prepared| {
            let main = async |shutdown| Ok(main(flags, prepared, shutdown).await.into());
            on_runtime::<_, ProcessStartError, _>(main)
        });
    ended.unwrap_or_else(|error| {
        report::log_failure(env, &error.to_string());
        ExitReason::Internal.into()
    })
}

/// Runs `main` on a new runtime and passes it the shutdown request, which is triggered by SIGTERM
/// and SIGINT.
pub fn on_runtime<T, E, F>(main: impl FnOnce(ShutdownRequest) -> F) -> Result<T, E>
where
    E: From<ProcessStartError>,
    F: Future<Output = Result<T, E>>,
{
    let runtime = build_runtime()?;
    let ended = panics::catch_panic(|| {
        runtime.block_on(async {
            let shutdown = signal::watch_signals()
                .map_err(|error| ProcessStartError(format!("cannot watch for signals: {error}")))?;
            main(shutdown).await
        })
    });
    // The runtime shuts down without waiting for threads, because one may hang in the kernel.
    runtime.shutdown_background();
    ended.map_err(|panicked| ProcessStartError(panicked.to_string()))?
}

/// Builds single-threaded runtimes among which connections are distributed, so that no connection
/// has to wait for all others. There is one for each usable CPU, up to four.
pub fn build_runtimes() -> impl Iterator<Item = Result<Runtime, ProcessStartError>> {
    let count = crate::cpus::usable_count().clamp(1, MAX_LANES);
    (0..count).map(|_| build_runtime())
}

/// Builds a runtime with one worker thread. With two threads, the task of a connection and the
/// task that passes on its bytes would wake each other for every read: an upload of a raw disk
/// took 3.9 s of CPU time with two threads and 2.8 s with one.
fn build_runtime() -> Result<Runtime, ProcessStartError> {
    // A current-thread runtime would run only inside `block_on`, which is never called for the
    // runtimes that serve connections.
    let mut builder = Builder::new_multi_thread();
    coalesce::wake_ups(&mut builder).worker_threads(1).enable_all();
    // tokio returns an error if epoll is not available, but panics if it cannot start a thread or
    // create a socket pair for signals.
    panics::catch_panic(|| builder.build())
        .map_err(|panicked| panicked.message)
        .and_then(|built| built.map_err(|error| error.to_string()))
        .map_err(|refused| {
            let advice =
                "raise the limits on processes (pids, ulimit -u) and open files (ulimit -n)";
            ProcessStartError(format!("cannot start: {refused}; {advice}"))
        })
}
