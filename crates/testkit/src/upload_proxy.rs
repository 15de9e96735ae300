//! The upload proxy: runs it with its keys, certificates and settings in a temporary folder, with
//! or without a cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

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

/// The namespace of all PVCs in the tests.
pub const NAMESPACE: &str = "default";

/// The upload proxy for use without a cluster, an example in the package `uploadproxy`.
const DEVELOPMENT: &str = "uploadproxy-dev";

/// A proxy that has not started yet.
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
    /// A proxy without routes. In a cluster it runs `binary`, otherwise the [`development`]
    /// program of the same build.
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

    /// Routes uploads to the PVC `pvc` to the upload server at `address`.
    pub fn route(self, pvc: &str, address: SocketAddr) -> Self {
        self.route_of(pvc, address, "")
    }

    /// Like [`route`](Self::route), for a PVC whose content type is `content`.
    pub fn route_with(self, pvc: &str, address: SocketAddr, content: &str) -> Self {
        self.route_of(pvc, address, &format!("content = \"{content}\"\n"))
    }

    fn route_of(mut self, pvc: &str, address: SocketAddr, more: &str) -> Self {
        self.routes += &format!(
            "[[route]]\nnamespace = \"{NAMESPACE}\"\npvc = \"{pvc}\"\nurl = \"https://{address}\"\n{more}\n"
        );
        self
    }

    /// Adds a command line argument.
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The authority that signs the certificates of the upload servers, and that of the proxy as
    /// their client.
    pub fn cluster(&self) -> &Arc<Authority> {
        &self.cluster
    }

    /// The authority that signs the proxy's server certificate.
    pub fn front(&self) -> &Authority {
        &self.front
    }

    /// The key whose tokens the proxy accepts.
    pub fn key(&self) -> &TokenKey {
        &self.key
    }

    /// The value of `Authorization` that permits uploads to `pvc`.
    pub fn bearer(&self, pvc: &str) -> String {
        format!("Bearer {}", self.key.token(pvc, NAMESPACE))
    }

    /// A file in the folder: `server.{crt,key}` and `front-ca.crt` for the proxy's clients,
    /// `client.{crt,key}` and `ca.crt` for the connections to upload servers, `token.{key,pub}`,
    /// or `routes.toml`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The development program: the same proxy without a cluster, which reads its routes from a
    /// file.
    pub fn program(&self) -> Program {
        std::fs::write(self.path("routes.toml"), &self.routes).or_fail("routes.toml");
        let program = Program::new(development(&self.binary)).arg("serve");
        let files = [
            ("--static", "routes.toml"),
            ("--public-key", "token.pub"),
            ("--cert", "server.crt"),
            ("--key", "server.key"),
            ("--upload-ca", "ca.crt"),
            ("--upload-cert", "client.crt"),
            ("--upload-key", "client.key"),
        ];
        let program = files
            .iter()
            .fold(program, |program, (flag, name)| program.arg(*flag).arg(self.path(name)));
        self.finish(program.args(["--listen", "127.0.0.1:0"]))
    }

    /// Starts the proxy with routes from a file, and waits until it listens.
    pub fn start(&self) -> Server {
        self.serve(self.program())
    }

    /// The program for a cluster, which reads PVCs from `api`. If `upload_server` is given, it is
    /// used for all PVCs.
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
        let program =
            self.env.iter().fold(program, |program, (name, value)| program.env(name, value));
        program.args(&self.args)
    }

    /// Starts `program` and waits until it listens.
    pub fn serve(&self, program: Program) -> Server {
        let config = self.front.client_config().or_fail("TLS");
        Server::start(program, config)
    }
}

/// RSA keys take long to generate, so all proxies of a test program share one.
fn shared_key() -> Arc<TokenKey> {
    static KEY: OnceLock<Arc<TokenKey>> = OnceLock::new();
    Arc::clone(KEY.get_or_init(|| Arc::new(TokenKey::generate())))
}

/// The path of the program `name` in the same folder as `binary`, so from the same build. Fails
/// the test if it was not built.
pub fn beside(binary: &str, name: &str) -> String {
    built(&Path::new(binary).with_file_name(name), "--bin")
}

/// The path of the upload proxy's development program in the same build as `binary`. Fails the
/// test if it was not built.
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

/// A running proxy that routes [`PVC`] to a scripted upload server.
pub struct Scripted {
    /// The proxy's keys and files.
    pub proxy: UploadProxy,
    /// The scripted upload server.
    pub upstream: Upstream,
    /// The running proxy.
    pub server: Server,
    /// The names of all PVCs that have a route; the first is [`PVC`].
    pub pvcs: Vec<String>,
}

impl Scripted {
    /// Starts the proxy and the upload server.
    pub fn start(binary: &str, scripts: Vec<Script>) -> Self {
        Self::start_with(UploadProxy::new(binary), scripts)
    }

    /// Starts both, with a prepared proxy that may have more routes or arguments.
    pub fn start_with(proxy: UploadProxy, scripts: Vec<Script>) -> Self {
        Self::begin(proxy, 1, scripts)
    }

    /// Starts both and routes this number of PVCs to the upload server.
    pub fn start_for(binary: &str, pvcs: usize, scripts: Vec<Script>) -> Self {
        Self::begin(UploadProxy::new(binary), pvcs, scripts)
    }

    /// Starts both, with the proxy in `group`, and routes this number of PVCs to the upload
    /// server.
    pub fn start_in(
        group: &MemoryCgroup,
        proxy: UploadProxy,
        pvcs: usize,
        scripts: Vec<Script>,
    ) -> Self {
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

    /// A request that is authorised to upload to [`PVC`].
    pub fn request(&self, method: &str, path: &str) -> Request {
        self.request_for(PVC, method, path)
    }

    /// A request that is authorised to upload to `pvc`.
    pub fn request_for(&self, pvc: &str, method: &str, path: &str) -> Request {
        Request::new(method, path).header("Authorization", &self.proxy.bearer(pvc))
    }
}
