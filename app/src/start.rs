//! How a pod's process starts: klog flags, log, panics, TLS, a runtime.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use daemon::flags::{self, FlagError, Flags, OwnFlag};
use daemon::logging::{self, LogFormat, LogOptions};
use tokio::runtime::{Builder, Runtime};

use crate::{command_line, panics};

/// Most threads of a runtime. They only carry bytes between sockets and the data path, which has threads of its own;
/// one a core would cost memory on large nodes for nothing.
const MAX_RUNTIME_THREADS: usize = 4;

/// Runs `main` of the pod `program` that was given `arguments`: klog flags and those of its `own`. `main` gives the exit
/// code.
pub fn start<F: Future<Output = u8>>(
    program: &'static str,
    own: &[OwnFlag],
    arguments: &[OsString],
    main: impl FnOnce(Flags) -> F,
) -> ExitCode {
    let arguments = arguments
        .iter()
        .map(|argument| argument.to_string_lossy().into_owned());
    let flags = match flags::parse(own, arguments) {
        Ok(flags) => flags,
        Err(error) => {
            // Nobody is left to tell when stderr is closed.
            write!(io::stderr(), "{error}\n{}", flags::usage(program, own)).ok();
            return ExitCode::from(FlagError::EXIT_CODE);
        }
    };
    if flags.help {
        write!(io::stderr(), "{}", flags::usage(program, own)).ok();
        return ExitCode::SUCCESS;
    }
    if flags.version {
        return print_version(program);
    }
    logging::init(LogOptions {
        format: LogFormat::Klog,
        verbosity: flags.verbosity,
        program,
    });
    panics::catch();
    daemon::install_provider();
    match runtime() {
        Ok(runtime) => {
            let code = runtime.block_on(main(flags));
            runtime.shutdown_background();
            ExitCode::from(code)
        }
        Err(error) => {
            tracing::error!("cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

/// All our programs have the same version.
fn print_version(program: &str) -> ExitCode {
    let line = format!("{program} {}\n", env!("CARGO_PKG_VERSION"));
    match command_line::print(line.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A runtime with a thread for each usable CPU, up to a few.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(daemon::cpus::usable().clamp(1, MAX_RUNTIME_THREADS))
        .enable_all()
        .build()
}
