//! The server for a node pull, in which the kubelet pulls the user's image to the node. It is
//! copied into a container of that image, where it serves the disk in the image to the importer in
//! the same pod (contract, section 5.2 and appendix B).
//!
//! ```text
//!  image-dir ─► disk ─► listener on localhost ─► ready file ─► importer ─► done file ─► end
//!                                                    (ranges of the disk, /info)
//! ```
//!
//! The container may contain nothing else: no libraries, no `/etc`, perhaps no `/tmp`, and only an
//! unprivileged user. The server is therefore linked statically, needs only the files named by its
//! flags, and contains no TLS.

#![forbid(unsafe_code)]

mod answer;
mod contents;
mod disk;
mod handoff;
#[doc(hidden)] // for the fuzz targets
pub mod range;
mod serve;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use program::env::NamedStrings;
use program::flags::{self, FlagError, KlogFlags, OwnFlag};
use program::logging::{self, LogFormat, LogOptions, LogStyle};
use program::panics;
use program::paths::PodPaths;
use program::signal;
use tokio::runtime::Builder;

use self::serve::{ServeConfig, ServeOutcome};

const PROGRAM: &str = "cdi-containerimage-server";

/// Log level without `-v`. At this level, the start and the end of serving are logged.
const VERBOSITY: u8 = 1;

/// Flags and their defaults (contract, appendix B).
const PORT: (&str, &str) = ("p", "8100");
const IMAGE_DIR: (&str, &str) = ("image-dir", ".");
const READY_FILE: (&str, &str) = ("ready-file", "/shared/ready");
const DONE_FILE: (&str, &str) = ("done-file", "/shared/done");

const FLAGS: [OwnFlag; 4] = [
    OwnFlag { name: PORT.0, purpose: "port on localhost (default 8100)" },
    OwnFlag {
        name: IMAGE_DIR.0,
        purpose: "folder that holds the disk and nothing else (default .)",
    },
    OwnFlag {
        name: READY_FILE.0,
        purpose: "file that gets the name of the disk when it is served (default /shared/ready)",
    },
    OwnFlag {
        name: DONE_FILE.0,
        purpose: "file that ends the server when it appears, and is then removed (default /shared/done)",
    },
];

/// Serves the disk described by `arguments`, until the importer is done.
pub fn main(arguments: &[OsString], env: &dyn NamedStrings) -> ExitCode {
    let arguments = arguments.iter().map(|word| word.to_string_lossy().into_owned());
    let config = flags::parse_flags(&FLAGS, arguments).and_then(|flags| {
        let port = parse_port(&flags, PORT)?;
        Ok((flags, port))
    });
    let (flags, port) = match config {
        Ok(config) => config,
        Err(error) => {
            print_stderr(&format!("{error}\n{}", flags::usage_text(PROGRAM, &FLAGS)));
            return ExitCode::from(FlagError::EXIT_CODE);
        }
    };
    if flags.help {
        print_stderr(&flags::usage_text(PROGRAM, &FLAGS));
        return ExitCode::SUCCESS;
    }
    if flags.version {
        return print_stdout(&format!("{PROGRAM} {}\n", *program::VERSION));
    }
    logging::init(LogOptions {
        format: LogStyle::from_env(env).log_format(LogFormat::Klog),
        verbosity: flags.verbosity.max(VERBOSITY),
        program: PROGRAM,
    });
    let path =
        |(name, default): (&str, &str)| PathBuf::from(flags.own_value(name).unwrap_or(default));
    let config = ServeConfig {
        port,
        image_dir: path(IMAGE_DIR),
        ready_file: path(READY_FILE),
        done_file: path(DONE_FILE),
        paths: PodPaths::from_env(env),
        // All variables are served, because the importer turns some of them into labels.
        environment: env.with_prefix(""),
    };
    // One thread suffices: there is only one client, and separate threads read files.
    panics::install_hook();
    let ended = panics::catch_panic(|| {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
        runtime.block_on(run(&config))
    });
    match ended.unwrap_or_else(|panicked| Err(format!("internal error: {}", panicked.message))) {
        Ok(code) => ExitCode::from(code),
        Err(sentence) => {
            tracing::error!("{sentence}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: &ServeConfig) -> Result<u8, String> {
    let shutdown =
        signal::watch_signals().map_err(|error| format!("cannot watch for signals: {error}"))?;
    match serve::run(config, shutdown.cancel_token()).await {
        Ok(ServeOutcome::Done) => {
            tracing::info!("Importer has completed");
            Ok(0)
        }
        Ok(ServeOutcome::Stopped) => {
            Ok(shutdown.first_signal().map_or(1, signal::StopSignal::exit_code))
        }
        Err(failure) => Err(failure.to_string()),
    }
}

fn parse_port(flags: &KlogFlags, (name, default): (&str, &str)) -> Result<u16, FlagError> {
    let text = flags.own_value(name).unwrap_or(default);
    text.parse().map_err(|_| FlagError::Value {
        name: name.to_owned(),
        value: text.to_owned(),
        expected: "a port",
    })
}

/// Prints text for people to stderr. If stderr is closed, the text is lost.
fn print_stderr(text: &str) {
    io::stderr().write_all(text.as_bytes()).ok();
}

fn print_stdout(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
