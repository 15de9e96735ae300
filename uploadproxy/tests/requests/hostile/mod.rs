//! Hostile clusters: API servers and upload servers that lie, are slow or never end.

mod api;
mod upload_server;
mod watch;

use std::time::{Duration, Instant};

use crate::BINARY;
use testkit::https::{Request, Response};
use testkit::kube_api::{Answer, KubeApi, ready_pvc};
use testkit::process::memory;
use testkit::upload_pod::Server;
use testkit::upload_proxy::{NAMESPACE, UploadProxy};
use testkit::upstream::{Script, Upstream};

const PATH: &str = "/v1beta1/upload";

/// How long an upload waits for its pod, and any request for the API server.
const WAIT: Duration = Duration::from_secs(10);

/// What was read of a PVC is shared with other requests for less than this time.
const SHARED: Duration = Duration::from_millis(300);

/// Limit on the growth of the proxy's memory, whatever the API server sends.
const GROWTH_BYTES: u64 = 48 << 20;

/// A proxy in a cluster with the PVCs `disk` and `other`, where one echoing server acts as both
/// upload servers.
struct Scene {
    proxy: UploadProxy,
    api: KubeApi,
    upstream: Upstream,
    server: Server,
}

impl Scene {
    fn start() -> Self {
        let proxy = UploadProxy::new(BINARY);
        let names = ["disk", "other"].map(|name| format!("cdi-upload-{name}.{NAMESPACE}.svc"));
        let upstream = Upstream::start(proxy.cluster(), &names, vec![Script::echo()]);
        let api = KubeApi::start(&proxy.cluster().pem());
        for name in ["disk", "other"] {
            api.set_object(name, ready_pvc(name));
        }
        let server = proxy.start_in_cluster(&api, Some(upstream.address()));
        Self { proxy, api, upstream, server }
    }

    fn request(&self, name: &str) -> Request {
        Request::post(PATH).header("Authorization", &self.proxy.bearer(name))
    }

    fn post(&self, name: &str) -> Response {
        self.server.exchange(&self.request(name), b"body")
    }

    /// Changes the answer for the PVC, and waits until the earlier one is no longer shared.
    fn set_pvc(&self, name: &str, answer: Answer) {
        self.api.set_pvc(name, [answer]);
        std::thread::sleep(SHARED);
    }

    fn set_object(&self, name: &str, object: serde_json::Value) {
        self.set_pvc(name, Answer::Object(object));
    }

    fn rss(&self) -> u64 {
        memory(self.server.id(), "VmRSS")
    }

    fn peak(&self) -> u64 {
        memory(self.server.id(), "VmHWM")
    }

    /// Fails the test unless an upload to another PVC works.
    #[track_caller]
    fn assert_alive(&self, what: &str) {
        let started = Instant::now();
        let response = self.post("other");
        assert_eq!(response.status, 200, "{what}: {response:?}\n{}", self.server.log());
        // A hostile answer may be waited for up to ten seconds, but other uploads must not wait.
        assert!(started.elapsed() < Duration::from_secs(2), "{what}: {:?}", started.elapsed());
    }
}

/// Returns an answer with this body, declared as JSON.
fn json(body: &str) -> Answer {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Answer::Bytes([head.as_bytes(), body.as_bytes()].concat())
}

/// Returns an answer that begins with `begin` and repeats `piece` for ever.
fn endless(begin: &str, piece: &str, pause: Duration) -> Answer {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
    Answer::Endless {
        begin: format!("{head}{begin}").into_bytes(),
        piece: piece.repeat(if pause.is_zero() { (1 << 16) / piece.len() } else { 1 }).into_bytes(),
        pause,
    }
}
