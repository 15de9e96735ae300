//! How a pod's process starts: klog flags, log, panics, TLS, a runtime.

use std::ffi::OsString;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::process::ExitCode;

use daemon::flags::{self, FlagError};
use daemon::logging::{self, LogFormat, LogOptions};
use tokio::runtime::{Builder, Runtime};

use crate::work;

/// Most threads of a runtime. They only carry bytes between sockets and the data path, which has threads of its own;
/// one a core would cost memory on large nodes for nothing.
const MAX_RUNTIME_THREADS: usize = 4;

/// Runs `main` of the pod `program` that was given the klog flags `arguments`; `main` gives the exit code.
pub fn start(program: &'static str, arguments: &[OsString], main: impl Future<Output = u8>) -> ExitCode {
    let arguments = arguments
        .iter()
        .map(|argument| argument.to_string_lossy().into_owned());
    let flags = match flags::parse(arguments) {
        Ok(flags) => flags,
        Err(error) => {
            // Nobody is left to tell when stderr is closed.
            write!(io::stderr(), "{error}\n{}", flags::usage(program)).ok();
            return ExitCode::from(FlagError::EXIT_CODE);
        }
    };
    if flags.help {
        write!(io::stderr(), "{}", flags::usage(program)).ok();
        return ExitCode::SUCCESS;
    }
    logging::init(LogOptions {
        format: LogFormat::Klog,
        verbosity: flags.verbosity,
        program,
    });
    work::catch_panics();
    daemon::tls::install_provider();
    match runtime() {
        Ok(runtime) => {
            let code = runtime.block_on(main);
            runtime.shutdown_background();
            ExitCode::from(code)
        }
        Err(error) => {
            tracing::error!("cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A runtime with a thread for each usable CPU, up to a few.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(daemon::cpus::usable().clamp(1, MAX_RUNTIME_THREADS))
        .enable_all()
        .build()
}

/// Threads for the data path: one a CPU that this process may use.
pub fn data_threads() -> NonZeroUsize {
    NonZeroUsize::new(daemon::cpus::usable()).unwrap_or(NonZeroUsize::MIN)
}
