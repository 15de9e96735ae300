//! `serve`: runs the proxy without a cluster.

use std::collections::HashMap;
use std::path::PathBuf;

use https::tls::{AuthorityFiles, ServerFiles, TlsError, TlsProfile};
use program::cdi::CLIENT_NAME;
use program::start::{self, ProcessStartError};
use tokio::sync::watch;
use uploadproxy::lifetime::{self, ProxyStartError};
use uploadproxy::{
    AuthorityBundle, ClaimDirectory, Config, KeyError, ProxyIdentity, TokenVerifier, UploadGrant,
    WaitingClaim,
};

use crate::PROGRAM;
use crate::args::{ServeArgs, ServerArgs};
use crate::routes::{self, RoutesError};
use crate::token;

/// Advice for a TLS file that cannot be used.
const TLS_ADVICE: &str = "; check the files of --tls-…, --upload-… and --self-signed";

/// The reason why `serve` failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeFailed {
    #[error(transparent)]
    File(#[from] token::TokenFailed),
    #[error("cannot use the key in {}: {source}; check --public-key", path.display())]
    Key { path: PathBuf, source: KeyError },
    #[error(transparent)]
    Routes(#[from] RoutesError),
    #[error("{0}{TLS_ADVICE}")]
    Tls(#[from] TlsError),
    #[error("{error}{advice}", error = .0, advice = if matches!(.0, ProxyStartError::Tls(_)) { TLS_ADVICE } else { "" })]
    Start(#[from] ProxyStartError),
    #[error(transparent)]
    Process(#[from] ProcessStartError),
}

impl ServeFailed {
    /// Returns true if a file that the command line names is missing or cannot be used.
    pub(super) fn is_about_files(&self) -> bool {
        match self {
            Self::File(failed) => failed.is_about_files(),
            Self::Key { .. }
            | Self::Routes(_)
            | Self::Tls(_)
            | Self::Start(ProxyStartError::Tls(_)) => true,
            Self::Start(_) | Self::Process(_) => false,
        }
    }
}

/// Runs the proxy with the options in `arguments`.
pub(super) fn run(arguments: ServeArgs) -> Result<(), ServeFailed> {
    arguments.server.output.begin_logging(PROGRAM);
    let key = token::read(&arguments.public_key)?;
    let verifier = TokenVerifier::new(&key)
        .map_err(|source| ServeFailed::Key { path: arguments.public_key.clone(), source })?;
    let routes = routes::read(&arguments.routes)?;
    let made = arguments.tls.self_signed.as_deref();
    let made = made.map(|dir| AuthorityFiles::made_in(dir, CLIENT_NAME)).transpose()?;
    let made = made.as_ref();
    // clap has verified that each file is given by its own option or by --self-signed.
    let file = |given: Option<PathBuf>, made: Option<&PathBuf>| {
        given.or(made.cloned()).unwrap_or_default()
    };
    for given in
        [&arguments.upload_ca, &arguments.upload_cert, &arguments.upload_key].into_iter().flatten()
    {
        // The proxy reads these files for each connection. Reading them here as well reports a
        // mistake at the start.
        token::read(given)?;
    }
    let bundle = AuthorityBundle::File(file(arguments.upload_ca, made.map(|made| &made.ca)));
    let config = config(
        &arguments.server,
        ServerFiles {
            certificate: file(arguments.tls.cert, made.map(|made| &made.server.0)),
            key: file(arguments.tls.key, made.map(|made| &made.server.1)),
            client_ca: None,
        },
        ProxyIdentity::new(
            file(arguments.upload_cert, made.map(|made| &made.client.0)),
            file(arguments.upload_key, made.map(|made| &made.client.1)),
            bundle,
        ),
        (verifier, routes),
    );
    start::on_runtime(async |shutdown| Ok(lifetime::run(config, &shutdown, |_| {}).await?))
}

/// Returns the configuration of a proxy with fixed routes.
pub(super) fn config(
    arguments: &ServerArgs,
    tls: ServerFiles,
    identity: ProxyIdentity,
    (verifier, routes): (TokenVerifier, HashMap<UploadGrant, WaitingClaim>),
) -> Config {
    Config {
        address: arguments.listen.0.clone(),
        port: arguments.listen.1,
        tls,
        profile: watch::channel(TlsProfile::default()).1,
        verifier,
        volumes: ClaimDirectory::Fixed(routes),
        identity,
        dial: None,
        allowed: arguments.allowed(),
        metrics: arguments.metrics.into_iter().collect(),
    }
}
