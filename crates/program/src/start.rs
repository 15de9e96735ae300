//! The start of a process: klog flags, log, panics, TLS, a runtime, signals.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::env::NamedStrings;
use crate::flags::{self, FlagError, KlogFlags, OwnFlag};
use crate::logging::{self, LogFormat, LogOptions, LogStyle};
use crate::panics::{self, CaughtPanic};
use crate::paths::PodPaths;
use crate::report;
use crate::signal::{self, ShutdownRequest};
use tokio::runtime::{Builder, Runtime};

use crate::exit::ExitReason;
use crate::{coalesce, command_line};

/// Most threads for connections. They only carry bytes between sockets; one a core would cost memory on large nodes for nothing.
const MAX_LANES: usize = 4;

/// The reasons why a process cannot do anything, or nothing more.
#[derive(Debug, thiserror::Error)]
pub enum ProcessStartError {
    /// The system refuses what a runtime consists of: a thread, or descriptors.
    #[error(
        "cannot start: {0}; raise the limits of processes (pids, ulimit -u) and of open files (ulimit -n)"
    )]
    Runtime(String),
    /// The handlers cannot be installed.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    /// What ran on the runtime has panicked.
    #[error(transparent)]
    Panicked(#[from] CaughtPanic),
}

/// Runs `main` of the pod `program` that was given `arguments`: klog flags and those of its `own`. `main` is told of signals, and gives
/// the exit code. If it cannot begin, or panics, the termination message says so.
pub fn start_pod<F>(
    program: &'static str,
    own: &[OwnFlag],
    arguments: &[OsString],
    env: &dyn NamedStrings,
    main: impl FnOnce(KlogFlags, ShutdownRequest) -> F,
) -> ExitCode
where
    F: Future,
    F::Output: Into<ExitCode>,
{
    let arguments = arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
    let flags = match flags::parse_flags(own, arguments) {
        Ok(flags) => flags,
        Err(error) => {
            // The exit code still says it when stderr is closed.
            write!(io::stderr(), "{error}\n{}", flags::usage_text(program, own)).ok();
            return ExitCode::from(FlagError::EXIT_CODE);
        }
    };
    if flags.help {
        write!(io::stderr(), "{}", flags::usage_text(program, own)).ok();
        return ExitCode::SUCCESS;
    }
    if flags.version {
        return print_version(program);
    }
    let format = LogStyle::from_env(env).log_format(LogFormat::Klog);
    logging::init(LogOptions { format, verbosity: flags.verbosity, program });
    panics::install_hook();
    crate::install_provider();
    let ended = on_runtime(async |shutdown| Ok::<_, ProcessStartError>(main(flags, shutdown).await.into()));
    ended.unwrap_or_else(|error| {
        tracing::error!("{error}");
        let message = report::write_text(&PodPaths::from_env(env).termination_log(), &error.to_string());
        if let Err(error) = message {
            tracing::error!("{error}");
        }
        ExitReason::Internal.into()
    })
}

/// Runs `main` on a runtime, under the signals that end it.
pub fn on_runtime<T, E, F>(main: impl FnOnce(ShutdownRequest) -> F) -> Result<T, E>
where
    E: From<ProcessStartError>,
    F: Future<Output = Result<T, E>>,
{
    let runtime = build_runtime()?;
    let ended = panics::catch_panic(|| {
        runtime.block_on(async {
            let shutdown = signal::watch_signals().map_err(ProcessStartError::Signals)?;
            main(shutdown).await
        })
    });
    // A thread that hangs in the kernel is not waited for.
    runtime.shutdown_background();
    ended.map_err(ProcessStartError::Panicked)?
}

/// Runtimes for connections of which none may wait for all others: one for each usable CPU, up to four.
pub fn build_runtimes() -> impl Iterator<Item = Result<Runtime, ProcessStartError>> {
    let count = crate::cpus::usable_count().clamp(1, MAX_LANES);
    (0..count).map(|_| build_runtime())
}

/// A runtime of one thread. Two would wake each other for every read, between the task of a connection and the one that hands the bytes
/// on: an upload of a raw disk took 3.9 s of the processor with two and 2.8 with one.
fn build_runtime() -> Result<Runtime, ProcessStartError> {
    let mut builder = Builder::new_multi_thread();
    coalesce::wake_ups(&mut builder).worker_threads(1).enable_all();
    // tokio returns an error if there is no epoll, and panics if there is no thread or no socket
    // pair for signals.
    panics::catch_panic(|| builder.build())
        .map_err(|panicked| panicked.words)
        .and_then(|built| built.map_err(|error| error.to_string()))
        .map_err(ProcessStartError::Runtime)
}

/// Prints the version, which all our programs share.
fn print_version(program: &str) -> ExitCode {
    let line = format!("{program} {}\n", *crate::VERSION);
    match command_line::print_stdout(line.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
