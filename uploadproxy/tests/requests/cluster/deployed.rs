//! The proxy as CDI's operator deploys it, next to an upload pod.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use testkit::certs::Authority;
use testkit::cluster::Cluster;
use testkit::cluster::cdi::{CDI_NAMESPACE, PROXY_ACCOUNT};
use testkit::fail::OrFail;
use testkit::https::{Request, Response};
use testkit::process::Program;
use testkit::random::Random;
use testkit::upload_pod::{Server, UploadPod};
use testkit::upload_proxy::{UploadProxy, beside};

use crate::cluster::{BINARY, NAMESPACE};

/// An address without a listener, for proxies that must not contact an upload server.
pub(crate) const NOWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A proxy whose claim and whose ConfigMap of authorities both have the name of the test.
pub(crate) struct Deployed<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) name: &'static str,
    /// Keys and certificates.
    pub(crate) files: UploadProxy,
}

impl<'a> Deployed<'a> {
    /// Creates a claim whose upload pod is ready, and the ConfigMap with the authority of the pod.
    pub(crate) fn new(cluster: &'a Cluster, name: &'static str) -> Self {
        let deployed = Self::without_claim(cluster, name);
        cluster.create_upload_pvc(NAMESPACE, name, &[("storage.pod.ready", "true")]);
        deployed
    }

    /// Creates the same without the claim.
    pub(crate) fn without_claim(cluster: &'a Cluster, name: &'static str) -> Self {
        let files = UploadProxy::new(BINARY);
        cluster.set_ca_bundle(name, &files.cluster().pem());
        Self { cluster, name, files }
    }

    /// Returns the claim's upload pod; `authority` signs its certificate and those of its clients.
    pub(crate) fn pod_of(&self, authority: &Arc<Authority>) -> UploadPod {
        let name = format!("cdi-upload-{}.{NAMESPACE}.svc", self.name);
        UploadPod::of_cluster(&beside(BINARY, "cdi-uploadserver"), authority, &[name])
    }

    /// Returns the claim's upload pod.
    pub(crate) fn pod(&self) -> UploadPod {
        self.pod_of(self.files.cluster())
    }

    /// Returns the proxy with its own ServiceAccount; `upload_server` stands in for the claim's
    /// Service.
    pub(crate) fn program(&self, upload_server: SocketAddr) -> Program {
        let kubeconfig = self.cluster.service_account(CDI_NAMESPACE, PROXY_ACCOUNT);
        self.bare_program(upload_server).arg("-kubeconfig").arg(kubeconfig)
    }

    /// Returns the proxy in a pod without access to a cluster.
    pub(crate) fn bare_program(&self, upload_server: SocketAddr) -> Program {
        Program::new(BINARY)
            .args(["-alsologtostderr", "-v=3"])
            .env("CDI_WORKERS_TEST_ROOT", self.files.path(""))
            .env("CDI_UPLOADPROXY_LISTEN", "127.0.0.1:0")
            .env("CDI_UPLOADPROXY_METRICS", "off")
            .env("CDI_WORKERS_TEST_UPSTREAM", upload_server.to_string())
            .env("APISERVER_PUBLIC_KEY", self.files.key().public_pem())
            .env("UPLOAD_SERVER_CA_BUNDLE_CONFIG_MAP", self.name)
            .env("SERVER_CERT_FILE", self.files.path("server.crt"))
            .env("SERVER_KEY_FILE", self.files.path("server.key"))
            .env("UPLOAD_CLIENT_CERT_FILE", self.files.path("client.crt"))
            .env("UPLOAD_CLIENT_KEY_FILE", self.files.path("client.key"))
    }

    /// Starts the proxy and waits until it listens.
    pub(crate) fn start(&self, upload_server: SocketAddr) -> Server {
        self.files.serve(self.program(upload_server))
    }

    /// Returns a POST to `/v1beta1/upload` with a token for the claim.
    pub(crate) fn request(&self) -> Request {
        self.request_for(self.name)
    }

    /// Returns a POST to `/v1beta1/upload` with a token for `claim`.
    pub(crate) fn request_for(&self, claim: &str) -> Request {
        let token = self.files.key().token(claim, NAMESPACE);
        Request::post("/v1beta1/upload").header("Authorization", &format!("Bearer {token}"))
    }

    /// Uploads `disk` to the claim.
    #[track_caller]
    pub(crate) fn upload(&self, server: &Server, disk: &[u8]) -> Response {
        server.exchange(&self.request(), disk)
    }
}

/// Returns a raw disk of 1 MiB.
pub(crate) fn disk() -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    Random::new(1).fill(&mut disk);
    disk
}

/// Fails the test unless the pod's disk is `disk`.
#[track_caller]
pub(crate) fn assert_disk(pod: &UploadPod, disk: &[u8]) {
    let written = std::fs::read(pod.disk()).or_fail("the disk");
    assert!(
        written == disk,
        "the disk has {} bytes that differ from the {} that were sent",
        written.len(),
        disk.len()
    );
}
