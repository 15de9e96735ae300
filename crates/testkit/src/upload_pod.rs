//! An upload pod: runs `cdi-uploadserver` with the environment, certificates and volumes that
//! CDI's controller gives it, in a temporary folder.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::Signal;
use rustls::ClientConfig;
use tempfile::TempDir;

use crate::certs::{Authority, Identity, KeyKind, Offer};
use crate::fail::OrFail;
use crate::https::{Connection, Request, Response};
use crate::loopdev::LoopDevice;
use crate::process::{Finished, Program, Running};
use crate::wait;

/// The common name that the server requires of its clients.
pub const CLIENT_NAME: &str = "client.upload-server.cdi.kubevirt.io";

/// The text before the address in the log line of a listening server.
const LISTENING: &str = "Running server on ";

/// A pod that has not started yet.
pub struct UploadPod {
    binary: PathBuf,
    root: TempDir,
    authority: Arc<Authority>,
    client: Identity,
    env: Vec<(String, String)>,
}

impl UploadPod {
    /// A pod in filesystem mode that runs `binary`.
    pub fn new(binary: &str) -> Self {
        Self::with_keys(binary, CLIENT_NAME, KeyKind::Ecdsa)
    }

    /// A pod with keys of this type whose clients must have this common name.
    pub fn with_keys(binary: &str, client_name: &str, kind: KeyKind) -> Self {
        let authority = Authority::new().or_fail("an authority");
        Self::made(binary, client_name, kind, Arc::new(authority), &[])
    }

    /// One of several pods in a cluster whose certificates are all signed by `authority`. This
    /// one's certificate is for `names`.
    pub fn of_cluster(binary: &str, authority: &Arc<Authority>, names: &[String]) -> Self {
        Self::made(binary, CLIENT_NAME, KeyKind::Ecdsa, Arc::clone(authority), names)
    }

    fn made(
        binary: &str,
        client_name: &str,
        kind: KeyKind,
        authority: Arc<Authority>,
        names: &[String],
    ) -> Self {
        let root = tempfile::tempdir().or_fail("a folder");
        for folder in ["data", "dev", "tls"] {
            std::fs::create_dir(root.path().join(folder)).or_fail(folder);
        }
        let server = authority.server_named(names, kind).or_fail("a server's certificate");
        let client = authority.client(client_name, kind).or_fail("a client's certificate");
        let pod = Self { binary: binary.into(), root, authority, client, env: Vec::new() };
        for (name, pem) in [
            ("ca.crt", pod.authority.pem()),
            ("server.crt", server.certificate_pem.clone()),
            ("server.key", server.key_pem()),
            ("client.crt", pod.client.certificate_pem.clone()),
            ("client.key", pod.client.key_pem()),
        ] {
            std::fs::write(pod.tls(name), pem).or_fail(name);
        }
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let root = path(pod.root.path().to_owned());
        let files = ["ca.crt", "server.crt", "server.key"].map(|name| path(pod.tls(name)));
        let [ca, certificate, key] = &files;
        pod.env("CDI_WORKERS_TEST_ROOT", &root)
            .env("LISTEN_ADDRESS", "127.0.0.1")
            .env("LISTEN_PORT", "0")
            .env("CLIENT_CERT_FILE", ca)
            .env("TLS_CERT_FILE", certificate)
            .env("TLS_KEY_FILE", key)
            .env("CLIENT_NAME", client_name)
            .env("FILESYSTEM_OVERHEAD", "0")
            .env("PREALLOCATION", "false")
    }

    /// Sets an environment variable. If it is set twice, the last value counts.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Switches the pod to block mode, with `device` as its volume.
    pub fn block(self, device: &Path) -> Self {
        let volume = self.path("dev/cdi-block-volume");
        std::os::unix::fs::symlink(device, &volume).or_fail(volume.display());
        self.env("DESTINATION", "/dev/cdi-block-volume")
    }

    /// Switches the pod to block mode if there is a device for it.
    pub fn block_on(self, device: Option<&LoopDevice>) -> Self {
        match device {
            Some(device) => self.block(device.path()),
            None => self,
        }
    }

    /// A path in the pod's file system.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// The disk: a file, or the device in block mode.
    pub fn disk(&self) -> PathBuf {
        let device = self.path("dev/cdi-block-volume");
        if device.is_symlink() { device } else { self.path("data/disk.img") }
    }

    /// Names of the files in the data volume, sorted.
    pub fn data_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("data")).or_fail("the data volume");
        let mut names: Vec<_> = entries
            .map(|entry| entry.or_fail("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// The path of `ca.crt`, `server.{crt,key}` or `client.{crt,key}`.
    pub fn tls(&self, name: &str) -> PathBuf {
        self.path("tls").join(name)
    }

    /// The authority that signed the certificates of the server and of its clients.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The certificate of the client that may upload.
    pub fn client(&self) -> &Identity {
        &self.client
    }

    /// The termination message, if one was written.
    pub fn message(&self) -> Option<String> {
        std::fs::read_to_string(self.path("dev/termination-log")).ok()
    }

    /// The server with its arguments in a pod.
    pub fn program(&self) -> Program {
        let program = Program::new(&self.binary).args(["-alsologtostderr", "-v=3"]);
        self.env.iter().fold(program, |program, (name, value)| program.env(name, value))
    }

    /// Starts the server and waits until it listens.
    pub fn start(&self) -> Server {
        self.serve(self.program())
    }

    /// Starts `program`, a variation of [`Self::program`], and waits until it listens.
    pub fn serve(&self, program: Program) -> Server {
        self.try_serve(program)
            .unwrap_or_else(|ended| panic!("it does not listen: {}", ended.stderr))
    }

    /// Like [`serve`](Self::serve), for a program that may end before it listens.
    pub fn try_serve(&self, program: Program) -> Result<Server, Box<Finished>> {
        Server::try_start(program, self.client_config())
    }

    /// The TLS configuration of the client that may upload.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        let offer = Offer { identity: Some(&self.client), ..Offer::default() };
        self.authority.client_config_for(&offer).or_fail("TLS")
    }
}

/// A listening server. It is killed when dropped.
pub struct Server {
    running: Option<Running>,
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Server {
    /// Starts `program` and waits until it listens. [`Self::connect`] uses `config`.
    pub fn start(program: Program, config: Arc<ClientConfig>) -> Self {
        Self::try_start(program, config)
            .unwrap_or_else(|ended| panic!("it does not listen: {}", ended.stderr))
    }

    /// Like [`start`](Self::start), for a program that may end before it listens.
    pub fn try_start(program: Program, config: Arc<ClientConfig>) -> Result<Self, Box<Finished>> {
        let running = program.start();
        let Some(line) = running.wait_for_line_or_end(LISTENING) else {
            return Err(Box::new(running.wait()));
        };
        let address = line.split(LISTENING).nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.and_then(|address| address.parse().ok());
        Ok(Self {
            running: Some(running),
            address: address.or_fail(format!("an address in {line:?}")),
            config,
        })
    }

    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of `path` on this server.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Connects as the client that may upload.
    #[track_caller]
    pub fn connect(&self) -> Connection {
        Connection::open(self.address, &self.config).or_fail("connect to the server")
    }

    /// Connects as another client.
    #[track_caller]
    pub fn connect_as(&self, config: &Arc<ClientConfig>) -> Connection {
        Connection::open(self.address, config).or_fail("connect to the server")
    }

    /// Sends a request on a new connection.
    #[track_caller]
    pub fn exchange(&self, request: &Request, body: &[u8]) -> Response {
        self.connect().exchange(request, body).or_fail("an answer")
    }

    /// Posts `body` to `path` on a new connection.
    #[track_caller]
    pub fn post(&self, path: &str, body: &[u8]) -> Response {
        self.exchange(&Request::post(path), body)
    }

    /// Posts `body` to `path` and fails the test unless the server then ends with success.
    #[track_caller]
    pub fn post_last(self, path: &str, body: &[u8]) -> Finished {
        self.post(path, body).assert_uploaded();
        let finished = self.wait();
        finished.assert_success(path);
        finished
    }

    /// Begins an upload, waits until the server has accepted it, and sends `part` of its `total`
    /// bytes.
    #[track_caller]
    pub fn begin_upload(&self, path: &str, total: usize, part: &[u8]) -> Connection {
        begin_upload_over(self.connect(), path, total, part)
    }

    /// Waits until `/v1beta1/status` reports that no upload is in progress. Fails the test after
    /// ten seconds.
    #[track_caller]
    pub fn wait_until_idle(&self) {
        self.wait_for_state("idle");
    }

    /// Waits until `/v1beta1/status` reports this `state`. Fails the test after ten seconds.
    #[track_caller]
    pub fn wait_for_state(&self, state: &str) {
        self.wait_for_status(&[&format!("\"state\":\"{state}\"")]);
    }

    /// Waits until the status contains all of these texts.
    #[track_caller]
    pub fn wait_for_status(&self, wanted: &[&str]) {
        self.wait_until_status(&format!("{wanted:?}"), |status| {
            wanted.iter().all(|part| status.contains(part))
        });
    }

    /// Waits until the server has received at least `bytes` bytes of the body.
    #[track_caller]
    pub fn wait_for_received(&self, bytes: u64) {
        self.wait_until_status(&format!("{bytes} bytes received"), |status| {
            let status: serde_json::Value = serde_json::from_str(status).or_fail("the status");
            status["received_bytes"].as_u64().is_some_and(|received| received >= bytes)
        });
    }

    #[track_caller]
    fn wait_until_status(&self, wanted: &str, is_so: impl Fn(&str) -> bool) {
        let mut connection = self.connect();
        let last = RefCell::new(String::new());
        let complaint = || format!("{wanted} in the status {}\n{}", last.borrow(), self.log());
        wait::until(complaint, || {
            let status = connection.exchange(&Request::new("GET", "/v1beta1/status"), &[]);
            let status = status.or_fail("the status").text();
            let is_so = is_so(&status);
            last.replace(status);
            is_so
        });
    }

    /// Waits for a line in the log that contains `needle`, and returns it.
    #[track_caller]
    pub fn wait_for_line(&self, needle: &str) -> String {
        self.running().wait_for_line(needle)
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.running().stderr_so_far()
    }

    /// The process ID, for reading `/proc`.
    pub fn id(&self) -> u32 {
        self.running().id()
    }

    /// True if the server has ended.
    pub fn has_ended(&self) -> bool {
        self.running().has_ended()
    }

    /// Connects as the client that may upload, or returns the error.
    pub fn try_connect(&self) -> std::io::Result<Connection> {
        Connection::open(self.address, &self.config)
    }

    /// Sends a signal to the server.
    pub fn signal(&self, signal: Signal) {
        self.running().signal(signal);
    }

    /// Waits until the server ends.
    pub fn wait(mut self) -> Finished {
        self.running.take().or_fail("a server that runs").wait()
    }

    fn running(&self) -> &Running {
        self.running.as_ref().or_fail("a server that runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.signal(Signal::KILL);
        }
    }
}

/// Like [`Server::begin_upload`], over this connection.
#[track_caller]
pub fn begin_upload_over(
    mut connection: Connection,
    path: &str,
    total: usize,
    part: &[u8],
) -> Connection {
    let request = Request::post(path).length(total).header("Expect", "100-continue");
    connection.begin(&request).or_fail("send the head");
    let interim = connection.response().or_fail("an answer");
    assert_eq!(interim.status, 100, "the upload was not taken on: {interim:?}");
    connection.send(part).or_fail("send a part of the body");
    connection
}
