//! Servers that cannot be reached: the error says which, by which way and why, without secrets.

use std::net::SocketAddr;

use testkit::certs::{Authority, PROXIED_NAME};
use testkit::fail::OrFail;
use testkit::forward_proxy::ForwardProxy;
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};

/// Part of passwords and URLs that no error may show.
const SECRET: &str = "hidden";

/// A name that no name server knows.
const UNKNOWN: &str = "no-such-host.invalid";

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        std::fs::write(folder.path().join("password"), SECRET).or_fail("a password");
        for name in ["pod/data", "pod/dev"] {
            std::fs::create_dir_all(folder.path().join(name)).or_fail(name);
        }
        Self { folder }
    }

    fn import(&self, source: &str, env: &[(&str, &str)]) -> Finished {
        let program = Program::new(crate::BINARY)
            .args(["import", "--retries", "0", "--user", "joe", "--password-file"])
            .arg(self.folder.path().join("password"))
            .args(["--cleartext-secrets", source])
            .arg(self.folder.path().join("disk.img"));
        let program = env.iter().fold(program, |program, (name, value)| program.env(name, *value));
        program.start().wait()
    }

    /// Runs a pod that must fail. Returns its termination message.
    fn pod(&self, env: &[(&str, &str)]) -> String {
        let root = self.folder.path().join("pod");
        let [metrics] = testkit::ports::free();
        let program = Program::new(crate::BINARY)
            .args(["-alsologtostderr", "-v=3"])
            .env("CDI_WORKERS_TEST_ROOT", &root)
            .env("CDI_WORKERS_TEST_METRICS_ADDR", metrics.to_string())
            .env("CDI_WORKERS_CONTACT_SECONDS", "1")
            .env("IMPORTER_ACCESS_KEY_ID", "joe")
            .env("IMPORTER_SECRET_KEY", SECRET)
            .env("PREALLOCATION", "false");
        let program = env.iter().fold(program, |program, (name, value)| program.env(name, *value));
        let finished = program.start().wait();
        assert_eq!(finished.code(), 1, "{}", finished.stderr);
        assert!(!finished.stderr.contains(SECRET), "{}", finished.stderr);
        std::fs::read_to_string(root.join("dev/termination-log")).or_fail("a message")
    }

    #[track_caller]
    fn check(&self, source: &str, env: &[(&str, &str)], parts: &[&str]) {
        let finished = self.import(source, env);
        finished.assert_failure(3, "");
        for part in parts {
            assert!(finished.stderr.contains(part), "{source}: {part}\n{}", finished.stderr);
        }
        assert!(!finished.stderr.contains(SECRET), "{source}: {}", finished.stderr);
    }
}

/// An address at which nothing listens.
fn nowhere() -> SocketAddr {
    let [address] = testkit::ports::free();
    address
}

fn refused(address: SocketAddr) -> String {
    format!("cannot connect to 127.0.0.1 port {}: connection refused", address.port())
}

const DOES_NOT_RESOLVE: &str = "failed to lookup address information: Name or service not known";

#[test]
fn every_kind_of_source_names_its_server() {
    let (scene, gone) = (Scene::new(), nowhere());
    let (endpoint, host, refused) = (format!("http://{gone}"), gone.to_string(), refused(gone));
    let url = format!("http://joe:{SECRET}@{gone}/path/disk?signature={SECRET}");
    let shown = format!("HTTP request errored: {endpoint}/path/disk: {refused}");
    scene.check(&url, &[], &[&shown]);
    let s3 = [("AWS_ENDPOINT_URL", endpoint.as_str())];
    scene.check("s3://bucket/key", &s3, &[&endpoint, &refused]);
    let gcs = [("STORAGE_EMULATOR_HOST", host.as_str())];
    scene.check("gs://bucket/key", &gcs, &[&endpoint, &refused]);
    let registry = format!("docker://{gone}/a/b:1");
    scene.check(&registry, &[], &[&format!("https://{gone}: {refused}")]);
    let engine = format!("ovirt+{endpoint}/ovirt-engine/api/disks/1");
    scene.check(&engine, &[], &[&endpoint, &refused]);
    let cloud = format!("glance+{endpoint}/v3?image=1");
    let access = [("OS_PROJECT_ID", "1"), ("OS_DEFAULT_DOMAIN", "default")];
    scene.check(&cloud, &access, &["OpenStack image 1: ", &endpoint, &refused]);
    let nbd = format!("nbd://{gone}/disk");
    scene.check(&nbd, &[], &[&nbd, "connection refused"]);

    let unknown = format!("https://{UNKNOWN}/disk?{SECRET}");
    let cause = format!("cannot find {UNKNOWN} port 443: {DOES_NOT_RESOLVE}");
    scene.check(&unknown, &[], &[&format!("https://{UNKNOWN}/disk: "), &cause]);
    scene.check(&format!("nbd://{UNKNOWN}/disk"), &[], &[UNKNOWN, DOES_NOT_RESOLVE]);
}

#[test]
#[ignore = "slow: waits 6 s"]
fn the_pod_names_the_server_after_upstreams_message() {
    let (scene, gone) = (Scene::new(), nowhere());
    let (url, refused) = (format!("http://{gone}/bucket/disk"), refused(gone));
    let more = [
        ("IMPORTER_DISK_ID", "1"),
        ("IMPORTER_UUID", "1"),
        ("IMPORTER_BACKING_FILE", "[a] b.vmdk"),
        ("INSECURE_TLS", "true"),
    ];
    for source in ["http", "s3", "gcs", "imageio", "vddk"] {
        let query = if source == "http" { "?hidden" } else { "" };
        let endpoint = format!("{url}{query}");
        let env = [("IMPORTER_SOURCE", source), ("IMPORTER_ENDPOINT", &endpoint)];
        let message = scene.pod(&[&env[..], &more].concat());
        let prefix = format!("Unable to connect to {source} data source: ");
        assert!(message.starts_with(&prefix), "{message}");
        assert!(message.contains(&format!("HTTP request errored: http://{gone}")), "{message}");
        assert!(message.contains(&refused) && !message.contains(SECRET), "{message}");
    }
    let reference = format!("docker://{gone}/a");
    let env = [("IMPORTER_SOURCE", "registry"), ("IMPORTER_ENDPOINT", &reference)];
    let message = scene.pod(&[&env[..], &more].concat());
    let expected = format!(
        "failed to pull image: pinging container registry {gone}: HTTP request errored: http://{gone}: {refused}"
    );
    assert!(message.ends_with(&expected), "{message}");
}

#[test]
fn a_failed_redirect_names_its_target_and_its_origin() {
    let (scene, gone) = (Scene::new(), nowhere());
    let origin = Origin::start(Script {
        redirects: [("/disk".to_owned(), vec![format!("http://{gone}/there?{SECRET}")])].into(),
        ..Script::new("")
    })
    .or_fail("a server");
    let expected = format!(
        "HTTP request errored: http://{gone}/there (reached from {}): {}",
        origin.url("/disk"),
        refused(gone)
    );
    scene.check(&origin.url(&format!("/disk?{SECRET}")), &[], &[&expected]);
}

#[test]
fn failures_of_a_proxy_are_distinguished_from_those_of_the_server() {
    let (scene, gone) = (Scene::new(), nowhere());
    let refused = refused(gone);
    let proxy = format!("http://joe:{SECRET}@{gone}");
    for (scheme, variable) in [("http", "HTTP_PROXY"), ("https", "HTTPS_PROXY")] {
        let url = format!("{scheme}://{PROXIED_NAME}/disk");
        let expected =
            format!("HTTP request errored: {url}: through the proxy http://{gone}: {refused}");
        scene.check(&url, &[(variable, &proxy)], &[&expected]);
    }
    let unknown = format!("http://{UNKNOWN}:3128");
    let expected =
        format!("through the proxy {unknown}: cannot find {UNKNOWN} port 3128: {DOES_NOT_RESOLVE}");
    scene.check(
        &format!("https://{PROXIED_NAME}/disk"),
        &[("HTTPS_PROXY", &unknown)],
        &[&expected],
    );

    // The proxy works, but the certificate of the server behind it is not trusted.
    let authority = Authority::new().or_fail("an authority");
    let tls = authority.server_config().or_fail("TLS");
    let server = Origin::start_tls(Script::new(""), tls).or_fail("a server");
    let living = ForwardProxy::start(server.address()).or_fail("a proxy");
    let proxy = format!("http://{}", living.address());
    let expected = format!(
        "HTTP request errored: https://{PROXIED_NAME}/disk: through the proxy {proxy}: TLS with {PROXIED_NAME} port 443: \
         invalid peer certificate"
    );
    scene.check(&format!("https://{PROXIED_NAME}/disk"), &[("HTTPS_PROXY", &proxy)], &[&expected]);

    // A web server in place of the proxy, which does not support tunnels.
    let web = Origin::start(Script {
        expires: [(format!("{PROXIED_NAME}:443"), (0, 403))].into(),
        ..Script::new("")
    })
    .or_fail("a server");
    let proxy = web.url("");
    let expected = format!("through the proxy {proxy}: tunnel error: unsuccessful");
    scene.check(&format!("https://{PROXIED_NAME}/disk"), &[("HTTPS_PROXY", &proxy)], &[&expected]);
}

#[test]
fn a_transfer_that_breaks_names_its_server() {
    let scene = Scene::new();
    let origin = Origin::start(Script {
        faults: vec![testkit::origin::Fault::CutAt(1000)],
        ..Script::new(vec![7; 100_000])
    })
    .or_fail("a server");
    let url = origin.url("/disk");
    scene.check(&format!("{url}?{SECRET}"), &[], &[&format!("HTTP request errored: {url}: ")]);
}
