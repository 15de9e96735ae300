//! Imports through a forward proxy, which CDI's configuration can set for the whole cluster.

use std::net::SocketAddr;

use kubelet::controller::Import;
use kubelet::network::Network;
use kubelet::volumes::Claim;
use testkit::certs::Authority;
use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::forward_proxy::ForwardProxy;
use testkit::nginx::Nginx;
use testkit::oci;
use testkit::tools;
use testkit::wire::Request;

use super::scene::{
    CLAIM_BYTES, SERVER, assert_disk, assert_succeeded, disk_image, http, import, serve, url,
};

/// User and password, in the form for a URL and in that for `Proxy-Authorization` (RFC 7617).
const PASSWORD: (&str, &str) = ("joe:hunter2@", "Basic am9lOmh1bnRlcjI=");

/// The user agent that the proxies of CDI's tests look for (contract §1.8, §1.10).
const IMPORTER: &str = "cdi-golang-importer";
const GO: &str = "Go-http-client/1.1";

/// Servers that pods can reach only through a proxy.
struct Scene {
    network: Network,
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self {
            network: Network::new(),
            authority: Authority::new().or_fail("an authority"),
            folder: tempfile::tempdir().or_fail("a folder"),
        }
    }

    /// Starts a proxy in front of `server` that pods can reach.
    fn proxy(&self, server: SocketAddr, tls: bool) -> ForwardProxy {
        let proxy = if tls {
            let config = self.authority.server_config().or_fail("a certificate");
            ForwardProxy::start_tls(server, config)
        } else {
            ForwardProxy::start(server)
        };
        let proxy = proxy.or_fail("a proxy");
        self.network.open(proxy.address());
        proxy
    }

    /// Imports with these variables. The CA certificate is mounted where CDI puts that of its
    /// proxy.
    fn import(&self, env: &[(&str, &str)], expected: &str) {
        let pod =
            Import { env, proxy_certificates: Some("ca"), hosts: &[SERVER], ..Import::default() };
        let claim = Claim::filesystem(CLAIM_BYTES);
        let map = ("ca", vec![("ca.pem", self.authority.pem())]);
        let ended = import(&self.network, &claim, &pod, &[map]);
        assert_succeeded(&ended.import(), &ended, "Import Complete");
        let expected = self.folder.path().join(expected);
        let bytes = expected.metadata().or_fail(expected.display()).len();
        assert_disk(&claim, &expected, bytes);
    }
}

/// Fails the test unless all requests through the proxy have this method, user agent and password.
#[track_caller]
fn assert_seen(proxy: &ForwardProxy, method: &str, agent: &str, password: Option<&str>) {
    let requests = proxy.requests();
    assert!(!requests.is_empty(), "nothing came by way of the proxy");
    for request in requests {
        let header = |name| Request::header(&request, name);
        assert_eq!(request.method, method);
        assert_eq!(header("user-agent"), Some(agent));
        assert_eq!(header("proxy-authorization"), password);
    }
}

#[test]
#[ignore = "server: nginx"]
fn objects_are_imported_through_a_proxy_with_and_without_a_password() {
    let scene = Scene::new();
    let folder = scene.folder.path();
    disk_image(folder);
    let iso = std::fs::read(disk::iso()).or_fail("an ISO image");
    std::fs::write(folder.join("disk.iso.gz"), tools::filter("gzip", ["-c", "-1"], &iso))
        .or_fail("an ISO image");
    std::fs::write(folder.join("disk.iso"), iso).or_fail("an ISO image");
    let nginx = Nginx::start(folder, false, "root .;");
    for (name, expected, password) in [
        ("image.qcow2", "image.raw", None),
        ("image.qcow2", "image.raw", Some(PASSWORD)),
        ("disk.iso", "disk.iso", Some(PASSWORD)),
        ("disk.iso.gz", "disk.iso", None),
    ] {
        let proxy = scene.proxy(nginx.address(), false);
        let (credentials, header) = password.unzip();
        let proxy_url = format!(
            "http://{}{}:{}",
            credentials.unwrap_or_default(),
            SERVER.0,
            proxy.address().port()
        );
        let url = url("http", nginx.address(), name);
        scene.import(&[&http(&url)[..], &[("http_proxy", &proxy_url)]].concat(), expected);
        assert_seen(&proxy, "GET", IMPORTER, header);
    }
}

#[test]
#[ignore = "server: nginx"]
fn objects_are_imported_over_https_through_a_tls_proxy() {
    let scene = Scene::new();
    disk_image(scene.folder.path());
    // This server is opened to pods only for the last import, which bypasses the proxy.
    let unreachable = Network::new();
    let nginx = serve(&unreachable, scene.folder.path(), &scene.authority);
    let url_of_image = url("https", nginx.address(), "image.qcow2");
    for password in [None, Some(PASSWORD)] {
        let proxy = scene.proxy(nginx.address(), true);
        let (credentials, header) = password.unzip();
        let proxy_url = format!(
            "https://{}{}:{}",
            credentials.unwrap_or_default(),
            SERVER.0,
            proxy.address().port()
        );
        let variables = [("https_proxy", proxy_url.as_str())];
        scene.import(&[&http(&url_of_image)[..], &variables].concat(), "image.raw");
        assert_seen(&proxy, "CONNECT", IMPORTER, header);
    }

    scene.network.open(nginx.address());
    let proxy = scene.proxy(nginx.address(), true);
    let proxy_url = url("https", proxy.address(), "");
    let variables = [("https_proxy", proxy_url.as_str()), ("no_proxy", "*")];
    scene.import(&[&http(&url_of_image)[..], &variables].concat(), "image.raw");
    assert!(proxy.requests().is_empty(), "the proxy received a request");
}

#[test]
#[ignore = "server: docker-registry"]
fn container_disks_are_imported_through_http_and_https_proxies() {
    let scene = Scene::new();
    let image = disk_image(scene.folder.path());
    let qcow2 = std::fs::read(&image.qcow2).or_fail("the image");
    let container_disk = oci::Image::of_disk(&qcow2, oci::Compression::Gzip);
    let setup = Setup { authority: Some(&scene.authority), ..Setup::default() };
    let registry = DockerRegistry::start_with(setup, &[("disk:1", &[container_disk])]);
    let url_of_image = url("docker", registry.address(), "disk:1");
    for (scheme, password) in
        [("http", None), ("http", Some(PASSWORD)), ("https", None), ("https", Some(PASSWORD))]
    {
        let proxy = scene.proxy(registry.address(), scheme == "https");
        let (credentials, header) = password.unzip();
        let proxy_url = format!(
            "{scheme}://{}{}:{}",
            credentials.unwrap_or_default(),
            SERVER.0,
            proxy.address().port()
        );
        let env = [
            ("IMPORTER_SOURCE", "registry"),
            ("IMPORTER_ENDPOINT", url_of_image.as_str()),
            ("https_proxy", proxy_url.as_str()),
        ];
        scene.import(&env, "image.raw");
        assert_seen(&proxy, "CONNECT", GO, header);
    }
}
