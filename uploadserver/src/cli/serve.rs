//! `serve`: waits for uploads without a cluster, for example on a laptop.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use datapath::disk;
use https::listener::BindError;
use https::tls::{AuthorityFiles, ServerFiles, TlsError, TlsProfile};
use program::cdi::{CURL, UPLOAD};
use program::command_line::values::server_url;
use program::command_line::{FailedCommand, print_error, print_stdout};
use program::env::ProcessEnv;
use program::exit::ExitReason;
use program::progress::ProgressDisplay;
use program::signal::StopSignal;
use program::start::{self, ProcessStartError};
use sandbox::{SandboxError, SandboxMode};
use volume::DiskRequest;

use super::args::ServeArgs;
use crate::PROGRAM;
use crate::access::ClientAccess;
use crate::config::{Config, UploadDestination};
use crate::confine;
use crate::lifetime::{self, ServerExit};

/// Name of the disk file in the directory.
const DISK: &str = "disk.img";

/// Advice after an error with a TLS file.
const TLS_ADVICE: &str = "; check --cert, --key, --cacert and --self-signed";

/// The reason why `serve` failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum UploadServeError {
    #[error("{0}{TLS_ADVICE}")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Listen(#[from] BindError),
    #[error("cannot use {}: {reason}", path.display())]
    Target { path: PathBuf, reason: String },
    #[error("{0}")]
    Usage(&'static str),
    #[error(transparent)]
    Process(#[from] ProcessStartError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("{0}")]
    Broken(String),
    #[error("stopped by {}", .0.name())]
    Signalled(StopSignal),
}

impl FailedCommand for UploadServeError {
    fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Signalled(signal) => ExitReason::Signalled(*signal),
            Self::Usage(_) | Self::Tls(_) => ExitReason::Usage,
            Self::Target { .. } => ExitReason::Target,
            Self::Listen(_) | Self::Process(_) | Self::Broken(_) => ExitReason::Internal,
            Self::Sandbox(error) => error.exit_reason(),
        }
    }
}

/// Serves uploads with the settings in `arguments`. `mode` is the mode of the sandbox.
pub(super) fn run_serve(arguments: ServeArgs, mode: SandboxMode) -> Result<(), UploadServeError> {
    let display = ProgressDisplay::for_server(PROGRAM, &arguments.output);
    let prints_address = arguments.print_address;
    let config = Config { display, ..build_config(arguments)? };
    let tls = config.tls.server_config(&config.profile)?;
    confine::enter_sandbox(mode, &config, None, &ProcessEnv)?;
    let hint = upload_hint(&config);
    let ready = move |address: SocketAddr| {
        // If stdout or stderr is closed, the server still serves uploads.
        if prints_address {
            if let Err(error) = print_stdout(format!("{address}\n").as_bytes()) {
                print_error(PROGRAM, format_args!("cannot write to stdout: {error}"));
            }
        } else {
            writeln!(io::stderr(), "{}", hint(&server_url(address))).ok();
        }
    };
    let exit = start::on_runtime(async |shutdown| {
        Ok::<_, UploadServeError>(lifetime::run(config, tls, &shutdown, ready).await?)
    })?;
    match exit {
        ServerExit::Success(_) | ServerExit::DeadlinePassed => Ok(()),
        ServerExit::Broken(reason) => Err(UploadServeError::Broken(reason)),
        // Ctrl-C is the normal way to end a server that waits for more uploads.
        ServerExit::Signalled(signal) => Err(UploadServeError::Signalled(signal)),
    }
}

/// Returns a function that formats the command line for an upload to a URL.
fn upload_hint(config: &Config) -> impl FnOnce(&str) -> String + use<> {
    let dir = config.tls.certificate.parent().map(Path::to_owned);
    let with_certificate = config.access != ClientAccess::Anyone;
    move |url| {
        let dir = dir.unwrap_or_default();
        let ca = dir.join("ca.crt");
        let client = if with_certificate {
            let files = AuthorityFiles::in_dir(&dir).client;
            format!(" --cert {} --key {}", files.0.display(), files.1.display())
        } else {
            String::new()
        };
        format!("Upload with: {CURL} --http1.1 --cacert {}{client} {url}{UPLOAD}", ca.display())
    }
}

fn build_config(arguments: ServeArgs) -> Result<Config, UploadServeError> {
    if arguments.tls.self_signed.is_none() && arguments.tls.cert.is_none() {
        return Err(UploadServeError::Usage(
            "a certificate is needed: use --self-signed DIR to create one, or --cert and --key",
        ));
    }
    if arguments.tls.self_signed.is_none() && arguments.cacert.is_none() && !arguments.insecure {
        return Err(UploadServeError::Usage(
            "who may upload? Use --cacert FILE for clients of that authority, or --insecure for everybody",
        ));
    }
    volume::limits::of_command(arguments.memory);
    let destination = parse_destination(&arguments)?;
    let access = if arguments.insecure {
        ClientAccess::Anyone
    } else {
        ClientAccess::Named(arguments.client_name.clone())
    };
    Ok(Config {
        address: arguments.listen.0,
        port: arguments.listen.1,
        tls: match (arguments.tls.self_signed, arguments.tls.cert, arguments.tls.key) {
            (None, Some(certificate), Some(key)) => {
                ServerFiles { certificate, key, client_ca: arguments.cacert }
            }
            (dir, ..) => {
                let made =
                    AuthorityFiles::made_in(&dir.unwrap_or_default(), &arguments.client_name)?;
                ServerFiles {
                    certificate: made.server.0,
                    key: made.server.1,
                    client_ca: Some(made.ca),
                }
            }
        },
        profile: TlsProfile::default(),
        access,
        destination,
        wanted: DiskRequest {
            size: arguments.size,
            preallocate: arguments.preallocate,
            ..DiskRequest::default()
        },
        deadline: None,
        stall: arguments.stall_timeout.0,
        resume: arguments.resume_timeout.0,
        limits: arguments.limits,
        once: arguments.once,
        is_pod: false,
        display: None,
    })
}

fn parse_destination(arguments: &ServeArgs) -> Result<UploadDestination, UploadServeError> {
    let refuse = |path: &Path, reason: &str| UploadServeError::Target {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let (disk, dir) = match (&arguments.device, &arguments.dir) {
        (Some(device), _) if !disk::is_block_device(device) => {
            return Err(refuse(device, "it is not a block device; --dir writes to a file"));
        }
        (Some(device), _) => (device.clone(), disk::folder_of(device).to_owned()),
        (None, dir) => {
            let dir = dir.clone().unwrap_or_default();
            if !dir.is_dir() {
                return Err(refuse(&dir, "it is not a directory; create one first"));
            }
            let disk = dir.join(DISK);
            // This is checked at the start; otherwise every upload would fail after its client has
            // begun to send.
            if disk.exists() && !arguments.force {
                return Err(refuse(&disk, "it exists; --force replaces it"));
            }
            (disk, dir)
        }
    };
    Ok(UploadDestination { disk, dir, scratch: arguments.scratch.clone() })
}
