//! `serve`: the proxy without a cluster.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use app::command_line::server_verbosity;
use daemon::logging::{self, LogFormat, LogOptions};
use daemon::signal;
use daemon::tls::{AuthorityFiles, Profile, ServerFiles, TlsError};
use tokio::sync::watch;

use super::PROGRAM;
use super::args::{ServeArgs, ServerArgs};
use super::token;
use crate::config::Config;
use crate::identity::{Bundle, Identity};
use crate::lifetime::{self, StartError};
use crate::token::{KeyError, Verifier};
use crate::volumes::Volumes;
use crate::volumes::fixed::{Routes, RoutesError};

/// The name in the certificate that upload servers ask for.
pub(super) const CLIENT_NAME: &str = "client.upload-server.cdi.kubevirt.io";

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeFailed {
    #[error(transparent)]
    File(#[from] token::TokenFailed),
    #[error("cannot use the key in {}: {source}", path.display())]
    Key { path: PathBuf, source: KeyError },
    #[error(transparent)]
    Routes(#[from] RoutesError),
    #[error("cannot use {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot start: {0}")]
    Runtime(#[from] io::Error),
}

/// Serves as `arguments` say.
pub(super) fn run(arguments: ServeArgs) -> Result<(), ServeFailed> {
    begin(&arguments.server);
    let key = token::read(&arguments.public_key)?;
    let verifier = Verifier::new(&key).map_err(|source| ServeFailed::Key {
        path: arguments.public_key.clone(),
        source,
    })?;
    let routes = Routes::read(&arguments.routes)?;
    let made = arguments.self_signed.as_deref().map(authority).transpose()?;
    let made = made.as_ref();
    // The command line has made sure that each is there in one way or the other.
    let file = |given: Option<PathBuf>, made: Option<&PathBuf>| given.or(made.cloned()).unwrap_or_default();
    let bundle = Bundle::File(file(arguments.upload_ca, made.map(|made| &made.ca)));
    let config = config(
        &arguments.server,
        ServerFiles {
            certificate: file(arguments.tls_cert, made.map(|made| &made.server.0)),
            key: file(arguments.tls_key, made.map(|made| &made.server.1)),
            client_ca: None,
        },
        Identity::new(
            file(arguments.upload_cert, made.map(|made| &made.client.0)),
            file(arguments.upload_key, made.map(|made| &made.client.1)),
            bundle,
        ),
        (verifier, routes),
    );
    let runtime = app::start::runtime()?;
    let served = runtime.block_on(async {
        let shutdown = signal::watch()?;
        Ok(lifetime::run(config, &shutdown, |_| {}).await?)
    });
    runtime.shutdown_background();
    served
}

/// Logs, and TLS.
pub(super) fn begin(arguments: &ServerArgs) {
    logging::init(LogOptions {
        format: LogFormat::Plain,
        verbosity: server_verbosity(arguments.quiet, arguments.verbose),
        program: PROGRAM,
    });
    daemon::tls::install_provider();
}

/// The configuration of a proxy with routes of its own.
pub(super) fn config(
    arguments: &ServerArgs,
    tls: ServerFiles,
    identity: Identity,
    (verifier, routes): (Verifier, Routes),
) -> Config {
    Config {
        address: arguments.listen.0.clone(),
        port: arguments.listen.1,
        tls,
        profile: watch::channel(Profile::default()).1,
        verifier,
        volumes: Volumes::Fixed(routes),
        identity,
        dial: None,
        allowed: arguments.allowed(),
        metrics: arguments.metrics.into_iter().collect(),
    }
}

/// The certificates in `dir`, made now if they are not there.
pub(super) fn authority(dir: &Path) -> Result<AuthorityFiles, ServeFailed> {
    std::fs::create_dir_all(dir).map_err(|source| ServeFailed::Folder {
        path: dir.to_owned(),
        source,
    })?;
    let files = AuthorityFiles::in_dir(dir);
    if !files.exist() {
        files.create_for_this_machine(CLIENT_NAME)?;
        tracing::info!("made certificates in {}", dir.display());
    }
    Ok(files)
}

/// Where a client on this machine finds a server.
pub(super) fn url(address: SocketAddr) -> String {
    let host = if address.ip().is_loopback() || address.ip().is_unspecified() {
        "localhost".to_owned()
    } else {
        address.ip().to_string()
    };
    format!("https://{host}:{}", address.port())
}
