//! Secrets and plain HTTP: the command line refuses to send them unless it is told otherwise; the
//! pod sends them with a warning.

use std::path::{Path, PathBuf};

use testkit::certs::{Authority, KeyKind, PROXIED_NAME};
use testkit::disk;
use testkit::docker_registry;
use testkit::docker_registry::{Auth, DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::forward_proxy::ForwardProxy;
use testkit::oci::{Compression, Image};
use testkit::openstack::script::{self as openstack, Cloud};
use testkit::origin::{Origin, Script};
use testkit::ovirt::{self, Contents, DISK_ID, Engine};
use testkit::process::{Finished, Program};

const MIB: u64 = 1 << 20;

/// The option that allows it, which every refusal names.
const FLAG: &str = "--cleartext-secrets";

/// Servers whose names do not resolve, behind a proxy that could read everything.
struct Scene {
    folder: tempfile::TempDir,
    proxy: ForwardProxy,
}

impl Scene {
    fn before(server: std::net::SocketAddr) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        std::fs::write(folder.path().join("password"), docker_registry::PASSWORD)
            .or_fail("a password");
        std::fs::write(folder.path().join("header"), "X-Token: hidden").or_fail("a header");
        Self { folder, proxy: ForwardProxy::start(server).or_fail("a proxy") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, source: &str, arguments: &[&str], env: &[(&str, &str)]) -> Finished {
        let program = Program::new(crate::BINARY)
            .args(["import", "--force", "--retries", "0"])
            .args(arguments)
            .arg(source)
            .arg(self.path("disk.img"))
            .env("HTTP_PROXY", format!("http://{}", self.proxy.address()));
        let program = env.iter().fold(program, |program, (name, value)| program.env(name, *value));
        program.start().wait()
    }

    /// Everything that somebody on the network path could read.
    fn overheard(&self) -> String {
        format!("{:?}", self.proxy.requests())
    }

    fn as_user(&self) -> Vec<String> {
        let password = self.path("password").display().to_string();
        ["--user", docker_registry::USER, "--password-file", &password].map(str::to_owned).into()
    }
}

/// Asserts that the import is refused without the flag, before `secret` is sent, and that it
/// sends `secret` with the flag, under a warning.
#[track_caller]
fn check(scene: &Scene, source: &str, arguments: &[&str], env: &[(&str, &str)], secret: &str) {
    let finished = scene.run(source, arguments, env);
    finished.assert_failure(3, FLAG);
    assert!(finished.stderr.contains(PROXIED_NAME), "{source}: {}", finished.stderr);
    assert!(!scene.overheard().contains(secret), "{source}: {}", scene.overheard());
    let finished = scene.run(source, &[arguments, &[FLAG]].concat(), env);
    finished.assert_success(source);
    assert!(scene.overheard().contains(secret), "{source}: {}", scene.overheard());
    let warning = format!("is sent to http://{PROXIED_NAME} without TLS");
    assert_eq!(finished.stderr.matches(&warning).count(), 1, "{source}: {}", finished.stderr);
    assert!(!finished.stderr.contains("hidden"), "{source}: {}", finished.stderr);
}

fn web() -> (Origin, Scene) {
    let origin = Origin::start(Script::new(disk::content(1, MIB))).or_fail("a server");
    let scene = Scene::before(origin.address());
    (origin, scene)
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[test]
fn web_servers_get_no_password_and_no_secret_header_over_plain_http() {
    let (_origin, scene) = web();
    let url = format!("http://{PROXIED_NAME}/disk");
    let user = scene.as_user();
    check(&scene, &url, &words(&user), &[], "Basic ");

    let (_origin, scene) = web();
    let with_user_info = format!("http://joe:hidden@{PROXIED_NAME}/disk");
    check(&scene, &with_user_info, &[], &[], "Basic ");

    let (_origin, scene) = web();
    let file = scene.path("header").display().to_string();
    check(&scene, &url, &["--secret-header-file", &file], &[], "hidden");

    for header in ["Authorization: Bearer hidden", "Cookie: session=hidden"] {
        let (_origin, scene) = web();
        check(&scene, &url, &["--header", header], &[], "hidden");
    }

    let (_origin, scene) = web();
    let finished = scene.run(&url, &["--header", "Accept: text/plain"], &[]);
    finished.assert_success("nothing secret");
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
    check(&scene, "s3://b/k", &["--ambient-identity"], &token, "hidden");

    let (_origin, scene) = web();
    let finished = scene.run("s3://b/k", &words(&scene.as_user()), &token[..1]);
    finished.assert_success("a signature shows no key");
    assert!(scene.overheard().contains("AWS4-HMAC-SHA256"), "{}", scene.overheard());

    let (_origin, scene) = web();
    let key = Authority::new().and_then(|authority| authority.server(KeyKind::Rsa));
    let account = serde_json::json!({
        "type": "service_account",
        "client_email": "importer@project.iam.gserviceaccount.com",
        "private_key": key.or_fail("a key").key_pem(),
        "private_key_id": "1",
    });
    let file = scene.path("account.json");
    std::fs::write(&file, account.to_string()).or_fail("an account");
    let arguments = ["--key-file", file.to_str().or_fail("a path")];
    let emulator = [("STORAGE_EMULATOR_HOST", PROXIED_NAME)];
    check(&scene, "gs://b/o", &arguments, &emulator, "Bearer ey");
}

#[test]
#[ignore = "server: docker-registry, htpasswd"]
fn registries_get_no_password_over_plain_http() {
    let images = [Image::of_disk(&disk::content(1, MIB), Compression::None)];
    let setup = Setup { auth: Auth::Basic, ..Setup::default() };
    let registry = DockerRegistry::start_with(setup, &[("a/b:1", &images)]);
    let scene = Scene::before(registry.address());
    let user = scene.as_user();
    let arguments = [words(&user), vec!["--insecure", "--architecture", "amd64"]].concat();
    let reference = format!("docker://{PROXIED_NAME}/a/b:1");
    check(&scene, &reference, &arguments, &[], "Basic ");
}

#[test]
fn an_engine_gets_no_password_over_plain_http() {
    let engine = Engine::start(ovirt::Script::new(Contents {
        raw: disk::content(1, MIB).into(),
        ..Contents::default()
    }));
    let api = url_of(&engine);
    let scene = Scene::before(api);
    std::fs::write(scene.path("password"), ovirt::PASSWORD).or_fail("a password");
    let password = scene.path("password").display().to_string();
    let arguments = ["--user", ovirt::USER, "--password-file", &password];
    let source = format!("ovirt+http://{PROXIED_NAME}/ovirt-engine/api/disks/{DISK_ID}");
    check(&scene, &source, &arguments, &[], "oauth/token");
}

#[test]
fn a_cloud_gets_no_password_over_plain_http() {
    let cloud = Cloud::start(openstack::Script::new(disk::content(1, MIB)));
    let scene = Scene::before(cloud.address());
    std::fs::write(scene.path("password"), openstack::PASSWORD).or_fail("a password");
    let password = scene.path("password").display().to_string();
    let arguments = ["--user", openstack::USER, "--password-file", &password];
    let access = [("OS_PROJECT_ID", "1"), ("OS_DEFAULT_DOMAIN", "default")];
    let source = format!("glance+http://{PROXIED_NAME}/v3?image={}", openstack::IMAGE_ID);
    check(&scene, &source, &arguments, &access, "auth/tokens");
}

/// The address on which the engine listens.
fn url_of(engine: &Engine) -> std::net::SocketAddr {
    let url = engine.api_url();
    let rest = url.strip_prefix("http://").or_fail("plain HTTP");
    let (address, _) = rest.split_once('/').or_fail("a path");
    address.parse().or_fail("an address")
}

#[test]
fn the_pod_sends_the_secrets_of_the_datavolume_and_warns_about_the_host() {
    let (origin, scene) = web();
    let root = scene.path("pod");
    for folder in ["data", "dev", "extraheaders/0"] {
        std::fs::create_dir_all(root.join(folder)).or_fail(folder);
    }
    std::fs::write(root.join("extraheaders/0/token"), "X-Token: hidden").or_fail("a header");
    let finished = pod(&root, &format!("http://{PROXIED_NAME}/disk"))
        .env("HTTP_PROXY", format!("http://{}", scene.proxy.address()))
        .start()
        .wait();
    finished.assert_success("a DataVolume with a password for a server without TLS");
    let warning = format!("is sent to http://{PROXIED_NAME} without TLS");
    assert_eq!(finished.stderr.matches(&warning).count(), 1, "{}", finished.stderr);
    assert!(!finished.stderr.contains("hidden"), "{}", finished.stderr);
    assert!(scene.overheard().contains("Basic "), "{}", scene.overheard());

    // In a node pull nothing leaves the machine, so that there is no warning.
    let finished = pod(&root, &origin.url("/disk")).start().wait();
    finished.assert_success("loopback");
    assert!(!finished.stderr.contains("without TLS"), "{}", finished.stderr);
}

fn pod(root: &Path, url: &str) -> Program {
    let [metrics] = testkit::ports::free();
    [
        ("CDI_WORKERS_TEST_ROOT", root.to_str().or_fail("a path")),
        ("CDI_WORKERS_TEST_METRICS_ADDR", &metrics.to_string()),
        ("IMPORTER_SOURCE", "http"),
        ("IMPORTER_ENDPOINT", url),
        ("IMPORTER_ACCESS_KEY_ID", "joe"),
        ("IMPORTER_SECRET_KEY", "hidden"),
        ("PREALLOCATION", "false"),
    ]
    .iter()
    .fold(
        Program::new(crate::BINARY).args(["-alsologtostderr", "-v=3"]),
        |program, (name, value)| program.env(name, *value),
    )
}
