//! Imports through a forward proxy, which CDI's configuration can set for the whole cluster.

use std::fs;

use kubelet::controller::{Import, PROXY_CERTIFICATES};
use kubelet::volumes::Claim;
use testkit::fail::OrFail;
use testkit::forward_proxy::ForwardProxy;
use testkit::oci;

use super::scene::{CLAIM_BYTES, SERVER, Scene, url};

/// User and password, in the form for a URL and in that for `Proxy-Authorization` (RFC 7617).
const PASSWORD: (&str, &str) = ("joe:hunter2@", "Basic am9lOmh1bnRlcjI=");

/// The method and the user agent that the proxies of CDI's tests look for (contract §1.8, §1.10).
const GET: (&str, &str) = ("GET", "cdi-golang-importer");
const TUNNEL: (&str, &str) = ("CONNECT", "cdi-golang-importer");
const REGISTRY_TUNNEL: (&str, &str) = ("CONNECT", "Go-http-client/1.1");

#[test]
#[ignore = "server: docker-registry, nginx"]
fn sources_are_imported_through_proxies_unless_no_proxy_excludes_them() {
    let (scene, image) = Scene::with_image();
    let qcow2 = fs::read(&image.qcow2).or_fail("the image");
    let container_disk = oci::Image::of_disk(&qcow2, oci::Compression::Gzip);
    // Pods can reach these servers only through a proxy.
    let [plain, tls] = [false, true].map(|tls| scene.start_nginx(tls, "root .;"));
    let registry = scene.start_registry(true, &[("disk:1", container_disk)]);
    let plain = ("http", "http", plain.address(), "image.qcow2");
    let tls = ("http", "https", tls.address(), "image.qcow2");
    let docker = ("registry", "docker", registry.address(), "disk:1");
    for ((source, scheme, server, path), proxy_scheme, password, seen) in [
        (plain, "http", None, Some(GET)),
        (plain, "http", Some(PASSWORD), Some(GET)),
        (tls, "https", None, Some(TUNNEL)),
        (tls, "https", Some(PASSWORD), Some(TUNNEL)),
        (docker, "http", None, Some(REGISTRY_TUNNEL)),
        (docker, "https", Some(PASSWORD), Some(REGISTRY_TUNNEL)),
        (tls, "https", None, None),
    ] {
        let proxy = if proxy_scheme == "https" {
            let config = scene.authority.server_config().or_fail("a certificate");
            ForwardProxy::start_tls(server, config)
        } else {
            ForwardProxy::start(server)
        };
        let proxy = proxy.or_fail("a proxy");
        scene.network.open(proxy.address());
        if seen.is_none() {
            scene.network.open(server);
        }
        let (credentials, header) = password.unzip();
        let (credentials, port) = (credentials.unwrap_or_default(), proxy.address().port());
        let proxy_url = format!("{proxy_scheme}://{credentials}{}:{port}", SERVER.0);
        let variable = if scheme == "http" { "http_proxy" } else { "https_proxy" };
        let env = &[
            ("IMPORTER_SOURCE", source),
            ("IMPORTER_ENDPOINT", &url(scheme, server, path)),
            (variable, &proxy_url),
            ("no_proxy", if seen.is_none() { "*" } else { "" }),
        ];
        let mounts = &[(PROXY_CERTIFICATES, "ca")];
        let claim = Claim::filesystem(CLAIM_BYTES);
        let import = Import { env, mounts, hosts: &[SERVER], ..Import::default() };
        let ended = scene.import(&claim, &import);
        scene.assert_imported(&claim, &ended, "image.raw", false, &[]);
        let requests = proxy.requests();
        assert_eq!(requests.is_empty(), seen.is_none(), "{scheme} {proxy_url}: {requests:?}");
        for request in requests {
            let agent = request.header("user-agent").unwrap_or_default();
            assert_eq!(Some((request.method.as_str(), agent)), seen);
            assert_eq!(request.header("proxy-authorization"), header);
        }
    }
}
