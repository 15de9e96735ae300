//! Secrets and plain HTTP: the command line refuses to send them unless it is told otherwise; the
//! pod sends them with a warning.

use std::net::SocketAddr;

use testkit::certs::PROXIED_NAME;
use testkit::disk;
use testkit::docker_registry::{self, Auth, DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::forward_proxy::ForwardProxy;
use testkit::objects::service_account;
use testkit::oci::{Compression, Image};
use testkit::openstack::script::{self as openstack, Cloud};
use testkit::origin::{Origin, Script};
use testkit::ovirt::{self, Contents, DISK_ID, Engine};
use testkit::process::Program;

use crate::place::{MIB, Place, SOURCE_FAILED};
use crate::pod::{Pod, write};

/// The option that allows it, which every refusal names.
const FLAG: &str = "--cleartext-secrets";

/// A server whose name does not resolve, behind a proxy that could read everything.
struct Scene {
    place: Place,
    proxy: ForwardProxy,
}

impl Scene {
    fn before(server: SocketAddr) -> Self {
        Self { place: Place::new(), proxy: ForwardProxy::start(server).or_fail("a proxy") }
    }

    fn import(&self, source: &str, arguments: &[String], env: &[(&str, &str)]) -> Program {
        let program = self.place.import(source).args(["--retries", "0"]).args(arguments);
        program.env("HTTP_PROXY", format!("http://{}", self.proxy.address())).envs(env)
    }

    /// Everything that somebody on the network path could read.
    fn overheard(&self) -> String {
        format!("{:?}", self.proxy.requests())
    }

    /// Asserts that the import is refused without the flag, before `secret` is sent, and that it
    /// sends `secret` with the flag, under a warning.
    #[track_caller]
    fn check(&self, source: &str, arguments: &[String], env: &[(&str, &str)], secret: &str) {
        let import = || self.import(source, arguments, env);
        let finished = self.place.assert_refused(import(), SOURCE_FAILED, FLAG);
        assert!(finished.stderr.contains(PROXIED_NAME), "{source}: {}", finished.stderr);
        assert!(!self.overheard().contains(secret), "{source}: {}", self.overheard());
        let finished =
            self.place.assert_imports(import().arg(FLAG), &disk::content(1, MIB), source);
        assert!(self.overheard().contains(secret), "{source}: {}", self.overheard());
        let warning = format!("is sent to http://{PROXIED_NAME} without TLS");
        assert_eq!(finished.stderr.matches(&warning).count(), 1, "{source}: {}", finished.stderr);
        assert!(!finished.stderr.contains("hidden"), "{source}: {}", finished.stderr);
    }
}

fn web() -> (Origin, Scene) {
    let origin = Origin::start(Script::new(disk::content(1, MIB))).or_fail("a server");
    let scene = Scene::before(origin.address());
    (origin, scene)
}

#[test]
fn web_servers_get_no_password_and_no_secret_header_over_plain_http() {
    let url = format!("http://{PROXIED_NAME}/disk");
    let with_user_info = format!("http://joe:hidden@{PROXIED_NAME}/disk");
    let header = |line: &str| vec!["--header".to_owned(), line.to_owned()];
    let place = Place::new();
    let file = place.write("header", "X-Token: hidden");
    for (source, arguments, secret) in [
        (&url, place.as_user("joe", "hidden").into(), "Basic "),
        (&with_user_info, Vec::new(), "Basic "),
        (&url, vec!["--secret-header-file".to_owned(), file], "hidden"),
        (&url, header("Authorization: Bearer hidden"), "hidden"),
        (&url, header("Cookie: session=hidden"), "hidden"),
    ] {
        let (_origin, scene) = web();
        scene.check(source, &arguments, &[], secret);
    }
    let (_origin, scene) = web();
    let import = scene.import(&url, &header("Accept: text/plain"), &[]);
    let finished = scene.place.assert_imports(import, &disk::content(1, MIB), "nothing secret");
    assert!(!finished.stderr.contains("without TLS"), "{}", finished.stderr);
}

#[test]
fn object_stores_get_no_token_over_plain_http_but_signatures_are_sent() {
    let endpoint = format!("http://{PROXIED_NAME}");
    let token = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_SESSION_TOKEN", "hidden"),
    ];
    let (_origin, scene) = web();
    scene.check("s3://b/k", &["--ambient-identity".to_owned()], &token, "hidden");

    let (_origin, scene) = web();
    let import = scene.import("s3://b/k", &scene.place.as_user("key", "hidden"), &token[..1]);
    scene.place.assert_imports(import, &disk::content(1, MIB), "a signature shows no key");
    assert!(scene.overheard().contains("AWS4-HMAC-SHA256"), "{}", scene.overheard());

    let (_origin, scene) = web();
    let file = scene.place.write("account.json", service_account());
    let emulator =
        [("STORAGE_EMULATOR_HOST", PROXIED_NAME), ("GOOGLE_APPLICATION_CREDENTIALS", &file)];
    scene.check("gs://b/o", &["--ambient-identity".to_owned()], &emulator, "Bearer ey");
}

#[test]
#[ignore = "server: docker-registry, htpasswd"]
fn registries_get_no_password_over_plain_http() {
    let images = [Image::of_disk(&disk::content(1, MIB), Compression::None)];
    let setup = Setup { auth: Auth::Basic, ..Setup::default() };
    let registry = DockerRegistry::start_with(setup, &[("a/b:1", &images)]);
    let scene = Scene::before(registry.address());
    let user = scene.place.as_user(docker_registry::USER, docker_registry::PASSWORD);
    let options = ["--insecure", "--architecture", "amd64"].map(str::to_owned);
    let reference = format!("docker://{PROXIED_NAME}/a/b:1");
    scene.check(&reference, &[&user[..], &options].concat(), &[], "Basic ");
}

#[test]
fn an_engine_gets_no_password_over_plain_http() {
    let raw = disk::content(1, MIB).into();
    let engine = Engine::start(ovirt::Script::new(Contents { raw, ..Contents::default() }));
    let scene = Scene::before(engine.addresses()[0]);
    let user = scene.place.as_user(ovirt::USER, ovirt::PASSWORD);
    let source = format!("ovirt+http://{PROXIED_NAME}/ovirt-engine/api/disks/{DISK_ID}");
    scene.check(&source, &user, &[], "oauth/token");
}

#[test]
fn a_cloud_gets_no_password_over_plain_http() {
    let cloud = Cloud::start(openstack::Script::new(disk::content(1, MIB)));
    let scene = Scene::before(cloud.address());
    let user = scene.place.as_user(openstack::USER, openstack::PASSWORD);
    let access = [("OS_PROJECT_ID", "1"), ("OS_DEFAULT_DOMAIN", "default")];
    let source = format!("glance+http://{PROXIED_NAME}/v3?image={}", openstack::IMAGE_ID);
    scene.check(&source, &user, &access, "auth/tokens");
}

#[test]
fn the_pod_sends_the_secrets_of_the_datavolume_and_warns_about_the_host() {
    let (origin, scene) = web();
    let secrets = [("IMPORTER_ACCESS_KEY_ID", "joe"), ("IMPORTER_SECRET_KEY", "hidden")];
    let mut pod = Pod::http(&format!("http://{PROXIED_NAME}/disk"), &secrets);
    write(&pod.path("extraheaders/0/token"), "X-Token: hidden");
    pod.set("HTTP_PROXY", format!("http://{}", scene.proxy.address()));
    let finished = pod.run();
    finished.assert_success("a DataVolume with a password for a server without TLS");
    let warning = format!("is sent to http://{PROXIED_NAME} without TLS");
    assert_eq!(finished.stderr.matches(&warning).count(), 1, "{}", finished.stderr);
    assert!(!finished.stderr.contains("hidden"), "{}", finished.stderr);
    assert!(scene.overheard().contains("Basic "), "{}", scene.overheard());

    // In a node pull nothing leaves the machine, so that there is no warning.
    pod.set("IMPORTER_ENDPOINT", origin.url("/disk"));
    let finished = pod.run();
    finished.assert_success("loopback");
    assert!(!finished.stderr.contains("without TLS"), "{}", finished.stderr);
}
