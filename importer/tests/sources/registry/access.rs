//! Access to registries: passwords, tokens and certificates, and what other servers get to see.

use testkit::adversary::{Adversary, Reply};
use testkit::certs::{Authority, PROXIED_NAME};
use testkit::disk;
use testkit::docker_registry::{Auth, DockerRegistry, PASSWORD, SERVICE, Setup, TokenIssuer, USER};
use testkit::fail::OrFail;
use testkit::forward_proxy::ForwardProxy;
use testkit::gateway::{Gateway, Plan};
use testkit::oci::{Compression, Image};
use testkit::origin::{Origin, Script};

use super::scene::{MIB, SOURCE_FAILED, Scene, behind};

/// A registry with the image `a/b:1`, whose disk has one MiB.
fn with_image(setup: Setup<'_>) -> (DockerRegistry, Vec<u8>) {
    let content = disk::content(1, MIB);
    let images = [Image::of_disk(&content, Compression::Gzip)];
    let registry = DockerRegistry::start_with(setup, &[("a/b:1", &images)]);
    (registry, content)
}

fn authority() -> Authority {
    Authority::new().or_fail("an authority")
}

#[test]
#[ignore = "server: docker-registry"]
fn tls_is_verified_unless_told_otherwise() {
    let (scene, authority) = (Scene::new(), authority());
    let (registry, content) = with_image(Setup { authority: Some(&authority), ..Setup::default() });
    let reference = registry.reference("a/b:1");
    let trusting = scene.strict_import(&reference).args(scene.trusting(&authority));
    scene.assert_imports(trusting, &content, "own authority");
    scene.assert_imports(scene.import(&reference), &content, "--insecure");
    let stranger = scene.strict_import(&reference);
    let finished = scene.assert_refused(
        stranger,
        SOURCE_FAILED,
        "failed to pull image: pinging container registry",
    );
    assert!(finished.stderr.contains("certificate"), "{}", finished.stderr);

    let (plain, _) = with_image(Setup::default());
    let strict = scene.strict_import(&plain.reference("a/b:1"));
    scene.assert_refused(strict, SOURCE_FAILED, "failed to pull image: pinging container registry");
}

#[test]
#[ignore = "server: docker-registry"]
fn a_token_is_requested_with_a_password_or_without() {
    let (scene, issuer, authority) = (Scene::new(), TokenIssuer::new(), authority());
    let service = |basic_auth: Option<&str>| {
        let script = Script {
            basic_auth: basic_auth.map(str::to_owned),
            ..Script::new(issuer.grant("a/b"))
        };
        Origin::start_tls(script, authority.server_config().or_fail("TLS"))
            .or_fail("a token service")
    };
    let open = service(None);
    let registry = |service: &Origin| {
        with_image(Setup {
            authority: Some(&authority),
            auth: Auth::Token(&issuer, &service.url("/token?x=1")),
            ..Setup::default()
        })
    };
    let (for_all, content) = registry(&open);
    let import = |registry: &DockerRegistry| {
        let program = scene.strict_import(&registry.reference("a/b:1"));
        program.args(scene.trusting(&authority))
    };
    scene.assert_imports(import(&for_all), &content, "anonymous");
    let asked = open.requests();
    let target = asked.iter().map(|request| request.request.target.as_str()).collect::<Vec<_>>();
    let service_name = SERVICE.replace(' ', "+");
    let expected = format!("/token?x=1&scope=repository%3Aa%2Fb%3Apull&service={service_name}");
    assert_eq!(target, [expected.as_str()], "one token for everything");

    let closed = service(Some(&format!("{USER}:{PASSWORD}")));
    let (for_joe, _) = registry(&closed);
    scene.assert_imports(import(&for_joe).args(scene.as_registry_user()), &content, "password");
    let first = closed.requests().into_iter().next().or_fail("a request");
    assert!(first.request.target.contains(&format!("account={USER}")), "{first:?}");
    let stranger = import(&for_joe).args(scene.as_user(USER, "swordfish"));
    let finished = scene.assert_refused(
        stranger,
        SOURCE_FAILED,
        "the token service 127.0.0.1 of the registry answers 401",
    );
    assert!(!finished.stderr.contains("swordfish"), "{}", finished.stderr);
}

#[test]
#[ignore = "server: docker-registry"]
fn a_password_is_not_sent_to_a_token_service_without_tls() {
    let (scene, issuer, authority) = (Scene::new(), TokenIssuer::new(), authority());
    let service = Origin::start(Script::new(issuer.grant("a/b"))).or_fail("a token service");
    let (registry, _) = with_image(Setup {
        authority: Some(&authority),
        auth: Auth::Token(&issuer, &service.url("/token")),
        ..Setup::default()
    });
    let program = scene.strict_import(&registry.reference("a/b:1"));
    let program = program.args(scene.trusting(&authority)).args(scene.as_registry_user());
    scene.assert_refused(
        program,
        SOURCE_FAILED,
        "without TLS, where anybody on the path could read it",
    );
    assert!(service.requests().is_empty(), "{:?}", service.requests());
}

#[test]
#[ignore = "server: docker-registry"]
fn a_password_goes_to_a_foreign_token_service_only_if_it_is_named() {
    let (scene, issuer, authority) = (Scene::new(), TokenIssuer::new(), authority());
    let tls = authority.server_config().or_fail("TLS");
    let service =
        Origin::start_tls(Script::new(issuer.grant("a/b")), tls).or_fail("a token service");
    // A host name, which differs from the address of the registry.
    let realm = service.url("/token").replace("127.0.0.1", "localhost");
    let (registry, content) = with_image(Setup {
        authority: Some(&authority),
        auth: Auth::Token(&issuer, &realm),
        ..Setup::default()
    });
    let reference = registry.reference("a/b:1");
    let import = || scene.strict_import(&reference).args(scene.trusting(&authority));
    let finished = scene.assert_refused(
        import().args(scene.as_registry_user()),
        SOURCE_FAILED,
        "failed to pull image: ",
    );
    for part in ["registry 127.0.0.1", "token service localhost", "--token-service"] {
        assert!(finished.stderr.contains(part), "{part}: {}", finished.stderr);
    }
    assert!(service.requests().is_empty(), "{:?}", service.requests());

    let named = import().args(scene.as_registry_user()).args(["--token-service", "localhost"]);
    scene.assert_imports(named, &content, "named");
    assert!(service.requests()[0].request.header("authorization").is_some());
    scene.assert_imports(import(), &content, "what has no password needs no permission");
}

#[test]
#[ignore = "server: docker-registry, htpasswd"]
fn a_server_to_which_blobs_are_redirected_gets_no_password() {
    let scene = Scene::new();
    let (filled, content) = with_image(Setup::default());
    let storage = filled.storage();
    let elsewhere = Adversary::start(move |request, _| {
        let file = storage.join(request.path().trim_start_matches('/'));
        std::fs::read(file).map_or_else(|_| Reply::status(404, ""), Reply::of)
    });
    let images = [Image::of_disk(&content, Compression::Gzip)];
    let setup = Setup { auth: Auth::Basic, redirect: Some(&elsewhere.url("")), ..Setup::default() };
    let registry = DockerRegistry::start_with(setup, &[("a/b:1", &images)]);
    let program = scene.import(&registry.reference("a/b:1")).args(scene.as_registry_user());
    scene.assert_imports(program, &content, "redirected");
    let requests = elsewhere.requests();
    assert_eq!(requests.len(), 2, "configuration and layer: {requests:?}");
    for (request, _) in requests {
        assert_eq!(request.header("authorization"), None, "{request:?}");
    }
}

#[test]
#[ignore = "server: docker-registry"]
fn proxies_and_registries_see_the_user_agents_of_cdi() {
    let (scene, authority) = (Scene::new(), authority());
    let (registry, content) = with_image(Setup::default());
    let tls = authority.server_config().or_fail("TLS");
    let gateway = Gateway::start_tls(registry.address(), Plan::default(), tls).or_fail("a gateway");
    let proxy = ForwardProxy::start(gateway.address()).or_fail("a proxy");
    let program = scene
        .strict_import(&format!("docker://{PROXIED_NAME}/a/b:1"))
        .args(scene.trusting(&authority))
        .env("HTTPS_PROXY", format!("http://{}", proxy.address()));
    scene.assert_imports(program, &content, "through a proxy");
    for tunnel in proxy.requests() {
        assert_eq!(tunnel.method, "CONNECT");
        assert_eq!(tunnel.header("user-agent"), Some("Go-http-client/1.1"), "{tunnel:?}");
    }
    let seen = gateway.requests();
    assert!(seen.len() == 4, "ping, manifest, configuration, layer: {seen:?}");
    for request in seen {
        let name = request.request.header("user-agent");
        assert_eq!(name, Some("containers/5.32.0 (github.com/containers/image)"), "{request:?}");
    }
}

#[test]
#[ignore = "server: docker-registry"]
fn manifest_types_are_requested_in_cdis_order() {
    let (scene, (registry, content)) = (Scene::new(), with_image(Setup::default()));
    let tls = authority().server_config().or_fail("TLS");
    let gateway = Gateway::start_tls(registry.address(), Plan::default(), tls).or_fail("a gateway");
    scene.assert_imports(scene.import(&behind(&gateway, "a/b:1")), &content, "order");
    let requests = gateway.requests();
    let manifest = requests.iter().find(|seen| seen.request.path().contains("/manifests/"));
    let accepted: Vec<_> = manifest
        .or_fail("a manifest")
        .request
        .headers
        .iter()
        .filter(|(name, _)| name == "accept")
        .filter_map(|(_, value)| value.strip_prefix("application/vnd."))
        .collect();
    let expected = [
        "oci.image.manifest.v1+json",
        "docker.distribution.manifest.v2+json",
        "docker.distribution.manifest.v1+prettyjws",
        "docker.distribution.manifest.v1+json",
        "docker.distribution.manifest.list.v2+json",
        "oci.image.index.v1+json",
    ];
    assert_eq!(accepted, expected);
}
