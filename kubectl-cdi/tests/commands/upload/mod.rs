//! Uploads by the real program, through the real proxy and upload server, in a cluster with a real
//! API server. The tests act as CDI's controllers.

mod completions;
mod cuts;
mod failures;
mod filesystems;
mod imports;
mod outputs;
mod publishers;
mod reach;
mod refused;
mod volumes;
mod windows;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::BINARY;
use rustix::process::Signal;
use tempfile::TempDir;
use testkit::cluster::Cluster;
use testkit::cluster::tokens::TokenServer;
use testkit::fail::OrFail;
use testkit::process::{Finished, Program, Running};
use testkit::relay::Relay;
use testkit::upload_pod::{Server, UploadPod};
use testkit::upload_proxy::{NAMESPACE, UploadProxy, beside};
use testkit::wait;

/// Longer than any step takes here.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Api {
    pub(crate) cluster: Cluster,
    tokens: TokenServer,
}

/// Returns the cluster of all tests. Each test has a claim of its own.
pub(crate) fn api() -> &'static Api {
    static API: OnceLock<Api> = OnceLock::new();
    API.get_or_init(|| {
        let cluster = Cluster::start();
        cluster.install_cdi();
        cluster.install_data_volumes();
        cluster.create_namespace(NAMESPACE);
        let tokens = cluster.serve_upload_tokens();
        Api { cluster, tokens }
    })
}

/// A claim, its upload pod, and a proxy behind a relay that can be cut.
struct Scene {
    claim: String,
    pod: UploadPod,
    upload_server: Server,
    proxy: UploadProxy,
    front: Server,
    wire: Relay,
    folder: TempDir,
}

impl Scene {
    /// Starts a scene with a new claim that is ready for an upload.
    fn new() -> Self {
        Self::with(|pod| pod)
    }

    fn with(change: impl FnOnce(UploadPod) -> UploadPod) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let claim = format!("disk{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let api = api();
        let ready = [("storage.pod.ready", "true")];
        api.cluster.create_upload_pvc(NAMESPACE, &claim, &ready);
        let proxy = UploadProxy::new(&beside(BINARY, "cdi-uploadproxy"));
        std::fs::write(proxy.path("token.pub"), api.tokens.key().public_pem())
            .or_fail("the key of tokens");
        let names = ["127.0.0.1".to_owned()];
        let pod =
            UploadPod::of_cluster(&beside(BINARY, "cdi-uploadserver"), proxy.cluster(), &names);
        let pod = change(pod);
        let upload_server = pod.start();
        let proxy = proxy.route(&claim, upload_server.address());
        let front = proxy.start();
        let wire = Relay::start(front.address());
        Self {
            claim,
            pod,
            upload_server,
            proxy,
            front,
            wire,
            folder: tempfile::tempdir().or_fail("a folder"),
        }
    }

    /// Kills the proxy and starts another one in its place.
    fn restart_proxy(&mut self) {
        self.front = self.proxy.start();
        self.wire.lead_to(self.front.address());
    }

    /// Kills the upload pod and starts it again, like kubelet.
    fn restart_pod(&mut self) {
        self.restart_pod_with(&[]);
    }

    /// Like [`Scene::restart_pod`], with these variables.
    fn restart_pod_with(&mut self, variables: &[(&str, &str)]) {
        let address = self.upload_server.address();
        self.upload_server.signal(Signal::KILL);
        wait::until(|| "the port is in use", || TcpStream::connect(address).is_err());
        let program = self.pod.program().env("LISTEN_PORT", address.port().to_string());
        let variables = variables.iter();
        let program = variables.fold(program, |program, (name, value)| program.env(name, value));
        self.upload_server = self.pod.serve(program);
    }

    /// Returns `kubectl cdi upload` of `image` to the claim.
    fn upload(&self, image: &Path) -> Program {
        // Less than the test waits, so that the program itself reports a timeout.
        self.upload_for(image, "1m")
    }

    /// Like [`Scene::upload`], with this timeout.
    fn upload_for(&self, image: &Path, timeout: &str) -> Program {
        self.upload_into(&format!("pvc/{}", self.claim), image).args([
            "--no-create",
            "--progress",
            "json",
            "--timeout",
            timeout,
        ])
    }

    /// Returns `kubectl cdi upload` of `image` to this target.
    fn upload_into(&self, target: &str, image: &Path) -> Program {
        self.program(&["upload", &image.to_string_lossy(), target])
            .args(["--uploadproxy-url", &self.wire.url(), "--cacert"])
            .arg(self.proxy.path("front-ca.crt"))
    }

    fn program(&self, words: &[&str]) -> Program {
        Program::new(BINARY)
            .args(words.iter().copied())
            .args(["--namespace", NAMESPACE, "--kubeconfig"])
            .arg(api().cluster.administrator())
            .env("XDG_STATE_HOME", self.folder.path())
    }

    /// Writes an image file of these bytes.
    fn image(&self, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join("image");
        std::fs::write(&path, bytes).or_fail("an image");
        path
    }

    /// Waits for the end of the upload, and checks that the disk is `expected`.
    #[track_caller]
    fn finish(self, running: Running, expected: &[u8]) -> Finished {
        self.upload_server.wait().assert_success("the upload server");
        // CDI sets this when the pod has succeeded.
        let succeeded = Some("Succeeded");
        api().cluster.annotate_pvc(NAMESPACE, &self.claim, "storage.pod.phase", succeeded);
        let finished = running.wait();
        finished.assert_success("the upload");
        let disk = std::fs::read(self.pod.disk()).or_fail("the disk");
        assert!(disk == expected, "the disk differs");
        finished
    }

    /// Like [`Scene::finish`]. Returns the bytes that the process has sent, and those of the whole
    /// stream.
    fn finish_counting(self, running: Running, expected: &[u8]) -> [u64; 2] {
        let wire = self.wire.total();
        let event = last_event(&self.finish(running, expected));
        let stream = event["sent_bytes"].as_u64().or_fail("a number");
        [wire.load(Ordering::Relaxed), stream]
    }
}

/// Returns true if the amount that is sent again matters. Programs of another version may not
/// support what saves it (`ci/versions`).
fn is_thrifty() -> bool {
    std::env::var_os("CDI_TEST_KNOWS_LESS").is_none()
}

/// Returns the last event of `--progress json`.
pub(crate) fn last_event(finished: &Finished) -> serde_json::Value {
    let line = finished.stdout.lines().last().or_fail("an event");
    serde_json::from_str(line).or_fail(line)
}
