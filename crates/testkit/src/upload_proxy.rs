//! The upload proxy: the keys, certificates and settings that it gets without and in a cluster, in
//! a temporary folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tempfile::TempDir;

use crate::certs::{Authority, KeyKind};
use crate::cgroup::MemoryCgroup;
use crate::fail::OrFail;
use crate::https::Request;
use crate::kube_api::KubeApi;
use crate::process::Program;
use crate::tokens::TokenKey;
use crate::upload_pod::{CLIENT_NAME, Server};
use crate::upstream::{Script, Upstream};

/// The namespace of all PVCs.
pub const NAMESPACE: &str = "default";

/// The upload proxy without a cluster, an example of the package `uploadproxy`.
const DEVELOPMENT: &str = "uploadproxy-dev";

/// Time that a proxy may run: longer than any test.
const LIFETIME: Duration = Duration::from_secs(300);

/// A proxy that is about to start.
pub struct UploadProxy {
    binary: PathBuf,
    folder: TempDir,
    front: Authority,
    cluster: Arc<Authority>,
    key: Arc<TokenKey>,
    routes: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl UploadProxy {
    /// A proxy without routes. In a cluster it is `binary`, otherwise the [`development`] program
    /// of the same build.
    pub fn new(binary: &str) -> Self {
        let front = Authority::new().or_fail("an authority");
        let cluster = Authority::new().or_fail("an authority");
        let server = front.server(KeyKind::Ecdsa).or_fail("a server's certificate");
        let client = cluster.client(CLIENT_NAME, KeyKind::Ecdsa).or_fail("a client's certificate");
        let proxy = Self {
            binary: binary.into(),
            folder: tempfile::tempdir().or_fail("a folder"),
            front,
            cluster: Arc::new(cluster),
            key: shared_key(),
            routes: String::new(),
            args: Vec::new(),
            env: Vec::new(),
        };
        for (name, content) in [
            ("front-ca.crt", proxy.front.pem()),
            ("server.crt", server.certificate_pem.clone()),
            ("server.key", server.key_pem()),
            ("ca.crt", proxy.cluster.pem()),
            ("client.crt", client.certificate_pem.clone()),
            ("client.key", client.key_pem()),
            ("token.key", proxy.key.private_pem()),
            ("token.pub", proxy.key.public_pem()),
        ] {
            std::fs::write(proxy.path(name), content).or_fail(name);
        }
        proxy
    }

    /// The upload server of the PVC `pvc` listens at `address`.
    pub fn route(self, pvc: &str, address: SocketAddr) -> Self {
        self.route_of(pvc, address, "")
    }

    /// The same, for a PVC whose content is `content`.
    pub fn route_with(self, pvc: &str, address: SocketAddr, content: &str) -> Self {
        self.route_of(pvc, address, &format!("content = \"{content}\"\n"))
    }

    fn route_of(mut self, pvc: &str, address: SocketAddr, more: &str) -> Self {
        self.routes += &format!(
            "[[route]]\nnamespace = \"{NAMESPACE}\"\npvc = \"{pvc}\"\nurl = \"https://{address}\"\n{more}\n"
        );
        self
    }

    /// Adds an argument of the command line.
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The authority that signs the certificates of upload servers and of the proxy as their client.
    pub fn cluster(&self) -> &Arc<Authority> {
        &self.cluster
    }

    /// The authority that signs the certificate which the proxy shows.
    pub fn front(&self) -> &Authority {
        &self.front
    }

    /// The key whose tokens count.
    pub fn key(&self) -> &TokenKey {
        &self.key
    }

    /// The value of `Authorization` that lets upload to `pvc`.
    pub fn bearer(&self, pvc: &str) -> String {
        format!("Bearer {}", self.key.token(pvc, NAMESPACE))
    }

    /// A file of the folder: `server.{crt,key}` and `front-ca.crt` of the front door, `client.{crt,key}` and `ca.crt` of
    /// the connections to the upload servers, `token.{key,pub}`, `routes.toml`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The development program: the same proxy without a cluster, with routes from a file.
    pub fn program(&self) -> Program {
        std::fs::write(self.path("routes.toml"), &self.routes).or_fail("routes.toml");
        let program = Program::new(development(&self.binary)).arg("serve");
        let files = [
            ("--static", "routes.toml"),
            ("--public-key", "token.pub"),
            ("--tls-cert", "server.crt"),
            ("--tls-key", "server.key"),
            ("--upload-ca", "ca.crt"),
            ("--upload-cert", "client.crt"),
            ("--upload-key", "client.key"),
        ];
        let program =
            files.iter().fold(program, |program, (flag, name)| program.arg(*flag).arg(self.path(name)));
        self.finish(program.args(["--listen", "127.0.0.1:0"]))
    }

    /// Starts the proxy with the routes from a file, and waits until it listens.
    pub fn start(&self) -> Server {
        self.serve(self.program())
    }

    /// The program of a cluster: PVCs from `api`. All upload servers are looked for at `upload_server`, if there is one.
    pub fn cluster_program(&self, api: &KubeApi, upload_server: Option<SocketAddr>) -> Program {
        api.write_kubeconfig(&self.path("kubeconfig"));
        let program = Program::new(&self.binary)
            .args(["-alsologtostderr", "-v=3", "-kubeconfig"])
            .arg(self.path("kubeconfig"))
            .env("CDI_WORKERS_TEST_ROOT", self.folder.path())
            .env("CDI_UPLOADPROXY_LISTEN", "127.0.0.1:0")
            .env("CDI_UPLOADPROXY_METRICS", "off")
            .env("APISERVER_PUBLIC_KEY", self.key.public_pem())
            .env("SERVER_CERT_FILE", self.path("server.crt"))
            .env("SERVER_KEY_FILE", self.path("server.key"))
            .env("UPLOAD_CLIENT_CERT_FILE", self.path("client.crt"))
            .env("UPLOAD_CLIENT_KEY_FILE", self.path("client.key"));
        let program = match upload_server {
            Some(address) => program.env("CDI_WORKERS_TEST_UPSTREAM", address.to_string()),
            None => program,
        };
        self.finish(program)
    }

    /// Starts the proxy as in a cluster, and waits until it listens.
    pub fn start_in_cluster(&self, api: &KubeApi, upload_server: Option<SocketAddr>) -> Server {
        self.serve(self.cluster_program(api, upload_server))
    }

    fn finish(&self, program: Program) -> Program {
        let program = self.env.iter().fold(program, |program, (name, value)| program.env(name, value));
        program.args(&self.args)
    }

    /// Starts `program` and waits until it listens.
    pub fn serve(&self, program: Program) -> Server {
        let config = self.front.client_config().or_fail("TLS");
        Server::start(program.timeout(LIFETIME), config)
    }
}

/// RSA keys take long to make: all proxies of one test program have the same.
fn shared_key() -> Arc<TokenKey> {
    static KEY: OnceLock<Arc<TokenKey>> = OnceLock::new();
    Arc::clone(KEY.get_or_init(|| Arc::new(TokenKey::generate())))
}

/// The program `name` that lies beside `binary`: of the same build, by the same profile. Fails the test if it was not built.
pub fn beside(binary: &str, name: &str) -> String {
    built(&Path::new(binary).with_file_name(name), "--bin")
}

/// The development program of the upload proxy in the same build as `binary`. Fails the test if it
/// was not built.
pub fn development(binary: impl AsRef<Path>) -> String {
    let examples = binary.as_ref().with_file_name("examples");
    built(&examples.join(DEVELOPMENT), "--example")
}

fn built(path: &Path, kind: &str) -> String {
    assert!(
        path.is_file(),
        "{} is missing: cargo test --workspace builds it, and so does cargo build {kind} {}",
        path.display(),
        path.file_name().or_fail("a name").display()
    );
    path.to_string_lossy().into_owned()
}

/// The PVC of [`Scripted`].
pub const PVC: &str = "disk";

/// A proxy that runs, with one route: from [`PVC`] to an upload server that does as it is told.
pub struct Scripted {
    /// Keys and files.
    pub proxy: UploadProxy,
    /// The server that stands for the upload server.
    pub upstream: Upstream,
    /// The proxy itself.
    pub server: Server,
    /// The names of all PVCs that have a route; the first is [`PVC`].
    pub pvcs: Vec<String>,
}

impl Scripted {
    /// Starts both.
    pub fn start(binary: &str, scripts: Vec<Script>) -> Self {
        Self::start_with(UploadProxy::new(binary), scripts)
    }

    /// Starts both, with more routes or arguments.
    pub fn start_with(proxy: UploadProxy, scripts: Vec<Script>) -> Self {
        Self::begin(proxy, 1, scripts)
    }

    /// Starts both; this number of PVCs leads to the upload server.
    pub fn start_for(binary: &str, pvcs: usize, scripts: Vec<Script>) -> Self {
        Self::begin(UploadProxy::new(binary), pvcs, scripts)
    }

    /// Starts both, the proxy in `group`; this number of PVCs leads to the upload server.
    pub fn start_in(group: &MemoryCgroup, proxy: UploadProxy, pvcs: usize, scripts: Vec<Script>) -> Self {
        Self::begin_as(proxy, pvcs, scripts, |program| group.wrap(program))
    }

    fn begin(proxy: UploadProxy, pvcs: usize, scripts: Vec<Script>) -> Self {
        Self::begin_as(proxy, pvcs, scripts, |program| program)
    }

    fn begin_as(
        proxy: UploadProxy,
        pvcs: usize,
        scripts: Vec<Script>,
        wrap: impl FnOnce(Program) -> Program,
    ) -> Self {
        let upstream = Upstream::start(proxy.cluster(), &[], scripts);
        let more = (1..pvcs).map(|number| format!("{PVC}-{number}"));
        let pvcs: Vec<String> = [PVC.to_owned()].into_iter().chain(more).collect();
        let proxy = pvcs.iter().fold(proxy, |proxy, pvc| proxy.route(pvc, upstream.address()));
        let server = proxy.serve(wrap(proxy.program()));
        Self { proxy, upstream, server, pvcs }
    }

    /// A request that may upload to [`PVC`].
    pub fn request(&self, method: &str, path: &str) -> Request {
        self.request_for(PVC, method, path)
    }

    /// A request that may upload to `pvc`.
    pub fn request_for(&self, pvc: &str, method: &str, path: &str) -> Request {
        Request::new(method, path).header("Authorization", &self.proxy.bearer(pvc))
    }
}
