//! `serve`: waits for uploads without a cluster, for example on a laptop.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use datapath::disk;
use https::tls::{AuthorityFiles, ServerFiles, TlsProfile};
use program::cdi::{CURL, UPLOAD};
use program::command_line::values::server_url;
use program::command_line::{CommandError, print_error, print_stdout};
use program::env::ProcessEnv;
use program::exit::ExitReason;
use program::progress::ProgressDisplay;
use program::start;
use sandbox::SandboxMode;
use volume::DiskRequest;

use super::args::ServeArgs;
use crate::PROGRAM;
use crate::access::ClientAccess;
use crate::config::{Config, UploadDestination};
use crate::confine;
use crate::lifetime::{self, ServerExit};

/// Name of the disk file in the directory.
const DISK: &str = "disk.img";

/// Returns the error for a TLS file that cannot be used.
fn tls_error(error: impl Display) -> CommandError {
    usage_error(format_args!("{error}; check --cert, --key, --cacert and --self-signed"))
}

fn usage_error(sentence: impl Display) -> CommandError {
    CommandError::new(ExitReason::Usage, sentence)
}

/// Serves uploads with the settings in `arguments`. `mode` is the mode of the sandbox.
pub(super) fn run_serve(arguments: ServeArgs, mode: SandboxMode) -> Result<(), CommandError> {
    let display = ProgressDisplay::for_server(PROGRAM, &arguments.output);
    let prints_address = arguments.print_address;
    let config = Config { display, ..build_config(arguments)? };
    let tls = config.tls.server_config(&config.profile).map_err(tls_error)?;
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
        let ended = lifetime::run(config, tls, &shutdown, ready).await;
        ended.map_err(|error| CommandError::new(ExitReason::Internal, error))
    })?;
    match exit {
        ServerExit::Success(_) | ServerExit::DeadlinePassed => Ok(()),
        ServerExit::Broken(reason) => Err(CommandError::new(ExitReason::Internal, reason)),
        // Ctrl-C is the normal way to end a server that waits for more uploads.
        ServerExit::Signalled(signal) => Err(CommandError::from_signal(signal)),
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

fn build_config(arguments: ServeArgs) -> Result<Config, CommandError> {
    if arguments.tls.self_signed.is_none() && arguments.tls.cert.is_none() {
        return Err(usage_error(
            "a certificate is needed: use --self-signed DIR to create one, or --cert and --key",
        ));
    }
    if arguments.tls.self_signed.is_none() && arguments.cacert.is_none() && !arguments.insecure {
        return Err(usage_error(
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
                    AuthorityFiles::made_in(&dir.unwrap_or_default(), &arguments.client_name)
                        .map_err(tls_error)?;
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

fn parse_destination(arguments: &ServeArgs) -> Result<UploadDestination, CommandError> {
    let refuse = |path: &Path, reason: &str| {
        let sentence = format_args!("cannot use {}: {reason}", path.display());
        CommandError::new(ExitReason::Target, sentence)
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
