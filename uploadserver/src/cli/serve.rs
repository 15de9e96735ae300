//! `serve`: waits for uploads on a laptop, without a cluster.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use app::command_line::server_verbosity;
use daemon::logging::{self, LogFormat, LogOptions};
use daemon::signal::{self, Signal};
use daemon::tls::{AuthorityFiles, Profile, ServerFiles, TlsError};
use datapath::floor::{SPEED_TIME, SpeedLimit};
use datapath::target;
use volume::Wanted;

use super::PROGRAM;
use super::args::ServeArgs;
use crate::access::Access;
use crate::config::{Config, Destination};
use crate::lifetime::{self, Exit, StartError};

/// The file in the directory.
const DISK: &str = "disk.img";

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeFailed {
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("cannot use {}: {reason}", path.display())]
    Target { path: PathBuf, reason: String },
    #[error("{0}")]
    Usage(&'static str),
    #[error("cannot start: {0}")]
    Runtime(#[from] io::Error),
    #[error("{0}")]
    Broken(String),
    #[error("stopped by {}", .0.name())]
    Signalled(Signal),
}

impl ServeFailed {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Signalled(signal) => signal.exit_code(),
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}

/// Serves as `arguments` say.
pub(super) fn run(arguments: ServeArgs) -> Result<(), ServeFailed> {
    logging::init(LogOptions {
        format: LogFormat::Plain,
        verbosity: server_verbosity(arguments.quiet, arguments.verbose),
        program: PROGRAM,
    });
    daemon::tls::install_provider();
    let config = config(arguments)?;
    let runtime = app::start::runtime()?;
    let exit = runtime.block_on(async {
        let shutdown = signal::watch()?;
        let hint = hint(&config);
        Ok::<_, ServeFailed>(
            lifetime::run(config, &shutdown, |address| {
                let words = hint(&format!("{}:{}", host(&address), address.port()));
                // Nobody reads it when stderr is closed.
                writeln!(io::stderr(), "{words}").ok();
            })
            .await?,
        )
    });
    runtime.shutdown_background();
    match exit? {
        Exit::Success(_) | Exit::DeadlinePassed => Ok(()),
        Exit::Broken(reason) => Err(ServeFailed::Broken(reason)),
        // Ctrl-C is how one ends a server that waits for more.
        Exit::Signalled(signal) => Err(ServeFailed::Signalled(signal)),
    }
}

fn host(address: &std::net::SocketAddr) -> String {
    match address.ip() {
        ip if ip.is_loopback() || ip.is_unspecified() => "localhost".to_owned(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        std::net::IpAddr::V4(ip) => ip.to_string(),
    }
}

/// The command to paste for an upload to an address.
fn hint(config: &Config) -> impl FnOnce(&str) -> String + use<> {
    let dir = config.tls.certificate.parent().map(Path::to_owned);
    let with_certificate = config.access != Access::Anyone;
    move |address| {
        let dir = dir.unwrap_or_default();
        let ca = dir.join("ca.crt");
        let client = if with_certificate {
            let files = AuthorityFiles::in_dir(&dir).client;
            format!(" --cert {} --key {}", files.0.display(), files.1.display())
        } else {
            String::new()
        };
        format!(
            "Upload with: curl --http1.1 --cacert {}{client} -X POST -T IMAGE https://{address}/v1beta1/upload",
            ca.display()
        )
    }
}

fn config(arguments: ServeArgs) -> Result<Config, ServeFailed> {
    if arguments.self_signed.is_none() && arguments.tls_cert.is_none() {
        return Err(ServeFailed::Usage(
            "a certificate is needed: --self-signed DIR makes one, --tls-cert and --tls-key name one",
        ));
    }
    if arguments.self_signed.is_none() && arguments.client_ca.is_none() && !arguments.insecure {
        return Err(ServeFailed::Usage(
            "who may upload? --client-ca FILE names the authority of the client, --insecure accepts everybody",
        ));
    }
    volume::limits::of_command(arguments.memory);
    let destination = destination(&arguments)?;
    let access = if arguments.insecure {
        Access::Anyone
    } else {
        Access::Named(arguments.client_name.clone())
    };
    Ok(Config {
        address: arguments.listen.0,
        port: arguments.listen.1,
        tls: match (arguments.self_signed, arguments.tls_cert, arguments.tls_key) {
            (None, Some(certificate), Some(key)) => ServerFiles {
                certificate,
                key,
                client_ca: arguments.client_ca,
            },
            (dir, ..) => self_signed(&dir.unwrap_or_default(), &arguments.client_name)?,
        },
        profile: Profile::default(),
        access,
        destination,
        wanted: Wanted {
            size: arguments.size,
            preallocate: arguments.preallocate,
            ..Wanted::default()
        },
        full_header: false,
        deadline: None,
        stall: arguments.stall_timeout,
        resume: arguments.resume_timeout,
        speed_limit: arguments.speed_limit.map(|bytes_per_second| SpeedLimit {
            bytes_per_second,
            time: SPEED_TIME,
        }),
        once: arguments.once,
    })
}

fn destination(arguments: &ServeArgs) -> Result<Destination, ServeFailed> {
    let refuse = |path: &Path, reason: &str| ServeFailed::Target {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let (disk, dir) = match (&arguments.device, &arguments.dir) {
        (Some(device), _) if !target::is_block_device(device) => {
            return Err(refuse(device, "it is not a block device"));
        }
        (Some(device), _) => (device.clone(), target::folder_of(device).to_owned()),
        (None, dir) => {
            let dir = dir.clone().unwrap_or_default();
            if !dir.is_dir() {
                return Err(refuse(&dir, "it is not a directory"));
            }
            let disk = dir.join(DISK);
            if disk.exists() && !arguments.force {
                return Err(refuse(&disk, "it exists; --force replaces it"));
            }
            (disk, dir)
        }
    };
    Ok(Destination {
        disk,
        dir,
        scratch: arguments.scratch.clone(),
    })
}

/// The certificates in `dir`, made now if they are not there.
fn self_signed(dir: &Path, client_name: &str) -> Result<ServerFiles, ServeFailed> {
    std::fs::create_dir_all(dir).map_err(|source| ServeFailed::Target {
        path: dir.to_owned(),
        reason: source.to_string(),
    })?;
    let files = AuthorityFiles::in_dir(dir);
    if !files.exist() {
        files.create_for_this_machine(client_name)?;
        tracing::info!("made certificates in {}", dir.display());
    }
    Ok(ServerFiles {
        certificate: files.server.0,
        key: files.server.1,
        client_ca: Some(files.ca),
    })
}
