//! `dev`: runs a proxy and an upload server on one machine, for trying them out.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use https::tls::{AuthorityFiles, ServerFiles};
use program::cdi::{CLIENT_NAME, CURL, UPLOAD};
use program::command_line::values::server_url;
use program::signal::ShutdownRequest;
use program::start::{self, ProcessStartError};
use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use uploadproxy::{
    AuthorityBundle, KeyError, ProxyIdentity, TokenVerifier, UploadContent, UploadGrant,
    UpstreamAddress, WaitingClaim, lifetime,
};

use crate::args::DevArgs;
use crate::{PROGRAM, serve, token};

/// The program that receives the uploads.
const UPLOAD_SERVER: &str = "cdi-uploadserver";

/// The lifetime of the printed token. It is valid for a day of trying things out; the tokens of a
/// cluster are valid for five minutes.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The time by which Ctrl-C may reach this program later than the upload server.
const CTRL_C: Duration = Duration::from_secs(1);

/// The reason why `dev` failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DevFailed {
    #[error(transparent)]
    Serve(#[from] serve::ServeFailed),
    #[error("cannot make a key: {0}")]
    Generate(#[from] rcgen::Error),
    #[error("cannot use the key: {0}")]
    Key(#[from] KeyError),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot start {}: {source} (build it with `cargo build -p uploadserver`, or put it into a folder of PATH)", path.display())]
    UploadServer { path: PathBuf, source: io::Error },
    #[error("{UPLOAD_SERVER} has ended: see its words above")]
    Silent,
    #[error("cannot read from {UPLOAD_SERVER}: {0}")]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Process(#[from] ProcessStartError),
}

/// Runs a proxy and an upload server until Ctrl-C.
pub(super) fn run(arguments: &DevArgs) -> Result<(), DevFailed> {
    arguments.server.output.begin_logging(PROGRAM);
    start::on_runtime(async |shutdown| serve_both(arguments, &shutdown).await)
}

async fn serve_both(arguments: &DevArgs, shutdown: &ShutdownRequest) -> Result<(), DevFailed> {
    let certs = arguments.dir.join("certs");
    let files = AuthorityFiles::made_in(&certs, CLIENT_NAME).map_err(serve::ServeFailed::from)?;
    let key = token_key(&arguments.dir)?;
    let grant = UploadGrant { namespace: "default".to_owned(), pvc: "dev".to_owned() };
    let (server, address) = start_upload_server(&arguments.dir).await?;
    let volume = WaitingClaim {
        place: UpstreamAddress {
            // The numeric address: a minimal root file system has no /etc/hosts that resolves
            // localhost.
            host: address.ip().to_string(),
            port: address.port(),
            older_port: None,
        },
        content: UploadContent::Disk,
    };
    let (certificate, client_key) = files.client.clone();
    let config = serve::config(
        &arguments.server,
        ServerFiles {
            certificate: files.server.0.clone(),
            key: files.server.1.clone(),
            client_ca: None,
        },
        ProxyIdentity::new(certificate, client_key, AuthorityBundle::File(files.ca.clone())),
        (TokenVerifier::new(&key.public_key_pem())?, HashMap::from([(grant.clone(), volume)])),
    );
    let token = token::mint(&key.serialize_pem(), &grant, LIFETIME)?;
    let served = tokio::select! {
        served = lifetime::run(config, shutdown, |address| {
            // The servers run even if stderr is closed.
            io::stderr().write_all(hint(&files, address, &token, &arguments.dir).as_bytes()).ok();
        }) => served.map_err(serve::ServeFailed::from).map_err(DevFailed::from),
        () = ended(server, shutdown) => Err(DevFailed::Silent),
    };
    served
}

/// Returns the text for the user: the command to type, or the page to open.
fn hint(files: &AuthorityFiles, proxy: SocketAddr, token: &str, dir: &Path) -> String {
    let (ca, url) = (files.ca.display(), server_url(proxy));
    format!(
        "\nUpload with:\n  {CURL} --cacert {ca} -H 'Authorization: Bearer {token}' {url}{UPLOAD}\n\
         or in a browser that trusts {ca}:\n  {url}/#token={token}\n\
         The disk is written to {}. Ctrl-C ends both servers.\n\n",
        dir.join("disk.img").display()
    )
}

/// Reads the key pair for tokens from `dir`, or creates it there if it does not exist.
fn token_key(dir: &Path) -> Result<KeyPair, DevFailed> {
    let path = dir.join("token.key");
    if path.exists() {
        let pem = token::read(&path).map_err(serve::ServeFailed::from)?;
        return Ok(KeyPair::from_pem(&pem)?);
    }
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
    let public = dir.join("token.pub");
    https::tls::write_private(&path, &key.serialize_pem()).map_err(serve::ServeFailed::from)?;
    std::fs::write(&public, key.public_key_pem())
        .map_err(|source| DevFailed::Write { path: public, source })?;
    Ok(key)
}

/// Starts the upload server and waits until it listens. The server is killed when the returned
/// [`Child`] is dropped.
async fn start_upload_server(dir: &Path) -> Result<(Child, SocketAddr), DevFailed> {
    let path = upload_server();
    let mut child = Command::new(&path)
        .args([
            "serve",
            "--force",
            "--listen",
            // Port 0 selects a free port, which the server prints. A fixed port may be in use.
            "127.0.0.1:0",
            "--print-address",
            "--dir",
        ])
        .arg(dir)
        .arg("--self-signed")
        .arg(dir.join("certs"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| DevFailed::UploadServer { path, source })?;
    let mut address = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut address).await?;
    }
    let address = address.trim().parse().map_err(|_| DevFailed::Silent)?;
    Ok((child, address))
}

/// Returns when the upload server has ended by itself. Never returns if it ended because of a
/// shutdown.
async fn ended(mut server: Child, shutdown: &ShutdownRequest) {
    server.wait().await.ok();
    // Ctrl-C reaches both processes, and the upload server may end before this one is notified.
    if timeout(CTRL_C, shutdown.cancel_token().cancelled()).await.is_ok() {
        std::future::pending().await
    }
}

/// Returns the path of the upload server. It is next to cargo's directory `examples`, which
/// contains this program, or is looked up in `PATH`.
fn upload_server() -> PathBuf {
    let examples = std::env::current_exe().ok();
    let built = examples.and_then(|program| Some(program.parent()?.with_file_name(UPLOAD_SERVER)));
    built.filter(|path| path.exists()).unwrap_or_else(|| UPLOAD_SERVER.into())
}
