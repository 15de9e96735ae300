//! Hostile clusters: API servers and upload servers that lie, are slow or never end. The memory
//! that their answers take is measured in `robust/hostile.rs`.

mod api;
mod upload_server;
mod watch;

use crate::BINARY;
use testkit::https::{Request, Response};
use testkit::kube_api::{KubeApi, ready_pvc};
use testkit::upload_pod::Server;
use testkit::upload_proxy::{NAMESPACE, UploadProxy};
use testkit::upstream::{Script, Upstream};

const PATH: &str = "/v1beta1/upload";

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

    fn post(&self, name: &str) -> Response {
        let request = Request::post(PATH).header("Authorization", &self.proxy.bearer(name));
        self.server.exchange(&request, b"body")
    }

    /// Fails the test unless an upload to another PVC works.
    #[track_caller]
    fn assert_alive(&self, what: &str) {
        let response = self.post("other");
        assert_eq!(response.status, 200, "{what}: {response:?}\n{}", self.server.log());
    }

    /// Fails the test if the API server was asked for other objects than CDI's own and these PVCs.
    #[track_caller]
    fn assert_only_read(&self, pvcs: &[&str]) {
        let is_known = |request: &String| {
            let pvc = "GET /api/v1/namespaces/default/persistentvolumeclaims/";
            let target = request.split('?').next().unwrap_or_default();
            request.contains("/cdiconfigs")
                || request.contains("/configmaps/")
                || target.strip_prefix(pvc).is_some_and(|name| pvcs.contains(&name))
        };
        let requests = self.api.requests();
        let odd: Vec<_> = requests.iter().filter(|request| !is_known(request)).collect();
        assert!(odd.is_empty(), "{odd:?}");
    }
}
