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
use std::path::PathBuf;
use std::process::ExitCode;

use program::env::NamedStrings;
use program::flags::{self, OwnFlag};
use program::logging::{self, LogFormat, LogOptions, LogStyle};
use program::panics;
use program::paths::PodPaths;
use program::signal;
use tokio::runtime::Builder;

use self::serve::ServeConfig;

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
    let flags = match flags::read_flags(PROGRAM, &FLAGS, arguments) {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    let port = match flags.parse_value(PORT.0, PORT.1, "a port") {
        Ok(port) => port,
        Err(error) => return error.print_usage(PROGRAM, &FLAGS),
    };
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
    if serve::run(config, shutdown.cancel_token()).await? {
        tracing::info!("Importer has completed");
        return Ok(0);
    }
    Ok(shutdown.first_signal().map_or(1, signal::StopSignal::exit_code))
}
