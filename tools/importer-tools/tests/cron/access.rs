//! Access of the poller: passwords, certificates, the proxy, and the API server.

use testkit::certs::{Authority, PROXIED_NAME};
use testkit::docker_registry::{Auth, DockerRegistry, PASSWORD, Setup, USER};
use testkit::fail::OrFail;
use testkit::forward_proxy::ForwardProxy;

use super::scene::{Scene, cluster, digest, image};

/// The digest of `a/b:1`, which is the same image in each registry of these tests.
fn known_digest() -> String {
    let registry = DockerRegistry::start_with(Setup::default(), &[("a/b:1", &[image(1)])]);
    digest(&registry, "a/b:1")
}

fn registry(setup: Setup<'_>) -> DockerRegistry {
    DockerRegistry::start_with(setup, &[("a/b:1", &[image(1)])])
}

#[test]
#[ignore = "server: Kubernetes, docker-registry, htpasswd"]
fn only_the_right_password_opens_the_registry() {
    let scene = Scene::new("password");
    let registry = registry(Setup { auth: Auth::Basic, ..Setup::default() });
    let program = |user: &str, password: &str| {
        let program = scene.insecure(&registry.reference("a/b:1"));
        program.env("IMPORTER_ACCESS_KEY_ID", user).env("IMPORTER_SECRET_KEY", password)
    };
    for (user, password) in [(USER, "swordfish"), ("", "")] {
        let refused = scene.assert_refused(program(user, password), "401 Unauthorized");
        assert!(!refused.stderr.contains("swordfish"), "{}", refused.stderr);
    }
    scene.assert_finds(program(USER, PASSWORD), &known_digest(), "password");
}

#[test]
#[ignore = "server: Kubernetes, docker-registry"]
fn certificates_are_verified_unless_told_otherwise() {
    let scene = Scene::new("certificates");
    let authority = Authority::new().or_fail("an authority");
    let registry = registry(Setup { authority: Some(&authority), ..Setup::default() });
    let url = registry.reference("a/b:1");
    scene.assert_refused(scene.program(&url), "certificate");
    let other = scene.certificates(&Authority::new().or_fail("another authority"));
    scene.assert_refused(scene.program(&url).args(["-certdir", &other]), "certificate");
    let missing = scene.program(&url).args(["-certdir", "/nowhere"]);
    scene.assert_refused(missing, "/nowhere");
    let known = scene.certificates(&authority);
    scene.assert_finds(scene.program(&url).args(["-certdir", &known]), &known_digest(), "-certdir");
    scene.assert_finds(scene.insecure(&url), &known_digest(), "INSECURE_TLS");
}

#[test]
#[ignore = "server: Kubernetes, docker-registry"]
fn the_proxy_is_used_for_the_registry_but_not_for_the_cluster() {
    let scene = Scene::new("proxy");
    let authority = Authority::new().or_fail("an authority");
    let registry = registry(Setup { authority: Some(&authority), ..Setup::default() });
    let proxy = ForwardProxy::start(registry.address()).or_fail("a proxy");
    let url = format!("docker://{PROXIED_NAME}/a/b:1");
    for names in [["https_proxy", "http_proxy"], ["HTTPS_PROXY", "HTTP_PROXY"]] {
        let before = proxy.requests().len();
        let program = scene.program(&url).args(["-certdir", &scene.certificates(&authority)]);
        let address = format!("http://{}", proxy.address());
        let program = names.iter().fold(program, |program, name| program.env(name, &address));
        scene.assert_finds(program, &known_digest(), names[0]);
        let requests = proxy.requests();
        assert!(requests.len() > before, "{}", names[0]);
        for request in requests {
            // CDI's functional tests look for this name in the proxy's log.
            assert_eq!(request.target, format!("{PROXIED_NAME}:443"), "{request:?}");
            assert_eq!(request.header("user-agent"), Some("Go-http-client/1.1"), "{request:?}");
        }
    }
}

#[test]
#[ignore = "server: Kubernetes, docker-registry"]
fn the_api_server_can_be_given_by_an_option() {
    let scene = Scene::new("server");
    let registry = registry(Setup::default());
    let url = registry.reference("a/b:1");
    let nowhere = scene.insecure(&url).args(["-server", "https://127.0.0.1:1"]);
    scene.assert_refused(
        nowhere,
        "Failed getting DataImportCron, cronNamespace default cronName server: ",
    );
    let server = format!("https://{}", cluster().address());
    scene.assert_finds(scene.insecure(&url).args(["-server", &server]), &known_digest(), "-server");
    let outside = scene.insecure(&url).env("KUBECONFIG", "");
    outside.run().assert_failure(1, "Failed to find the address of Kubernetes: ");
}
