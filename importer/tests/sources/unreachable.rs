//! Servers that cannot be reached: the error says which, by which way and why, without secrets.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::thread;

use testkit::certs::{Authority, PROXIED_NAME};
use testkit::fail::OrFail;
use testkit::forward_proxy::ForwardProxy;
use testkit::origin::{Fault, Origin, Script};

use crate::place::{Place, SOURCE_FAILED};
use crate::pod::Pod;

/// Part of passwords and URLs that no error may show.
const SECRET: &str = "hidden";

/// A name that no name server knows.
const UNKNOWN: &str = "no-such-host.invalid";

#[track_caller]
fn check(source: &str, env: &[(&str, &str)], parts: &[&str]) {
    check_with_retries("0", source, env, parts);
}

#[track_caller]
fn check_with_retries(retries: &str, source: &str, env: &[(&str, &str)], parts: &[&str]) {
    let place = Place::new();
    let program = place.import(source).args(["--retries", retries, "--cleartext-secrets"]);
    let program = program.args(place.as_user("joe", SECRET)).envs(env);
    let finished = place.assert_refused(program, SOURCE_FAILED, "");
    for part in parts {
        assert!(finished.stderr.contains(part), "{source}: {part}\n{}", finished.stderr);
    }
    assert!(!finished.stderr.contains(SECRET), "{source}: {}", finished.stderr);
}

/// Runs a pod that must fail. Returns its termination message.
fn message_of_pod(source: &str, endpoint: &str) -> String {
    let pod = Pod::new(&[
        ("IMPORTER_SOURCE", source),
        ("IMPORTER_ENDPOINT", endpoint),
        ("CDI_WORKERS_CONTACT_SECONDS", "1"),
        ("IMPORTER_ACCESS_KEY_ID", "joe"),
        ("IMPORTER_SECRET_KEY", SECRET),
        ("IMPORTER_DISK_ID", "1"),
        ("IMPORTER_UUID", "1"),
        ("IMPORTER_BACKING_FILE", "[a] b.vmdk"),
        ("INSECURE_TLS", "true"),
    ]);
    let finished = pod.run();
    assert_eq!(finished.code(), 1, "{}", finished.stderr);
    assert!(!finished.stderr.contains(SECRET), "{}", finished.stderr);
    pod.message().or_fail("a message")
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
    let gone = nowhere();
    let (endpoint, host, refused) = (format!("http://{gone}"), gone.to_string(), refused(gone));
    let url = format!("http://joe:{SECRET}@{gone}/path/disk?signature={SECRET}");
    let shown = format!("{endpoint}/path/disk: {refused}");
    check(&url, &[], &[&shown]);
    let s3 = [("AWS_ENDPOINT_URL", endpoint.as_str())];
    check("s3://bucket/key", &s3, &[&endpoint, &refused]);
    let gcs = [("STORAGE_EMULATOR_HOST", host.as_str())];
    check("gs://bucket/key", &gcs, &[&endpoint, &refused]);
    let registry = format!("docker://{gone}/a/b:1");
    check(&registry, &[], &[&format!("https://{gone}: {refused}")]);
    let engine = format!("ovirt+{endpoint}/ovirt-engine/api/disks/1");
    check(&engine, &[], &[&endpoint, &refused]);
    let cloud = format!("glance+{endpoint}/v3?image=1");
    let access = [("OS_PROJECT_ID", "1"), ("OS_DEFAULT_DOMAIN", "default")];
    check(&cloud, &access, &["OpenStack image 1: ", &endpoint, &refused]);
    let nbd = format!("nbd://{gone}/disk");
    check(&nbd, &[], &[&nbd, "connection refused"]);

    let unknown = format!("https://{UNKNOWN}/disk?{SECRET}");
    let cause = format!("cannot find {UNKNOWN} port 443: {DOES_NOT_RESOLVE}");
    check(&unknown, &[], &[&format!("https://{UNKNOWN}/disk: "), &cause]);
    check(&format!("nbd://{UNKNOWN}/disk"), &[], &[UNKNOWN, DOES_NOT_RESOLVE]);
}

#[test]
#[ignore = "slow: waits 6 s"]
fn the_pod_names_the_server_after_upstreams_message() {
    let gone = nowhere();
    for source in ["http", "s3", "gcs", "imageio", "vddk"] {
        let query = if source == "http" { "?hidden" } else { "" };
        let message = message_of_pod(source, &format!("http://{gone}/bucket/disk{query}"));
        let prefix = format!("Unable to connect to {source} data source: ");
        assert!(message.starts_with(&prefix), "{message}");
        assert!(message.contains(&format!("http://{gone}")), "{message}");
        assert!(message.contains(&refused(gone)) && !message.contains(SECRET), "{message}");
    }
    let message = message_of_pod("registry", &format!("docker://{gone}/a"));
    let expected = format!(
        "failed to pull image: pinging container registry {gone}: HTTP request errored: http://{gone}: {}",
        refused(gone)
    );
    assert!(message.ends_with(&expected), "{message}");
}

#[test]
fn failed_redirects_and_broken_transfers_name_their_servers() {
    let gone = nowhere();
    let origin = Origin::start(Script {
        redirects: [("/disk".to_owned(), vec![format!("http://{gone}/there?{SECRET}")])].into(),
        faults: vec![Fault::CutAt(1000)],
        ..Script::new(vec![7; 100_000])
    });
    let origin = origin.or_fail("a server");
    let expected =
        format!("http://{gone}/there (reached from {}): {}", origin.url("/disk"), refused(gone));
    check(&origin.url(&format!("/disk?{SECRET}")), &[], &[&expected]);
    let broken = origin.url("/broken");
    check(&format!("{broken}?{SECRET}"), &[], &[&format!("{broken}: ")]);
}

#[test]
fn failures_of_a_proxy_are_distinguished_from_those_of_the_server() {
    let gone = nowhere();
    let secure = format!("https://{PROXIED_NAME}/disk");
    let proxy = format!("http://joe:{SECRET}@{gone}");
    for (url, variable) in
        [(secure.replace("https", "http"), "HTTP_PROXY"), (secure.clone(), "HTTPS_PROXY")]
    {
        let expected = format!("{url}: through the proxy http://{gone}: {}", refused(gone));
        check(&url, &[(variable, &proxy)], &[&expected]);
    }
    // The proxy works, but the certificate of the server behind it is not trusted.
    let authority = Authority::new().or_fail("an authority");
    let tls = authority.server_config().or_fail("TLS");
    let server = Origin::start_tls(Script::new(""), tls).or_fail("a server");
    let living = ForwardProxy::start(server.address()).or_fail("a proxy");
    let living = format!("http://{}", living.address());
    // The proxy works, but the server behind it closes the connection during TLS.
    let closing = TcpListener::bind(("127.0.0.1", 0)).or_fail("a server");
    let closing_address = closing.local_addr().or_fail("its address");
    thread::spawn(move || {
        closing.incoming().flatten().for_each(|mut client| drop(client.read(&mut [0])));
    });
    let before_tls = ForwardProxy::start(closing_address).or_fail("a proxy");
    let before_tls = format!("http://{}", before_tls.address());
    // A web server in place of the proxy, which does not support tunnels.
    let web = Origin::start(Script {
        expires: [(format!("{PROXIED_NAME}:443"), (0, 403))].into(),
        ..Script::new("")
    });
    let web = web.or_fail("a server");
    let unknown = format!("http://{UNKNOWN}:3128");
    for (proxy, cause) in [
        (&unknown, format!("cannot find {UNKNOWN} port 3128: {DOES_NOT_RESOLVE}")),
        (&living, format!("TLS with {PROXIED_NAME} port 443: its certificate is not signed")),
        (&before_tls, format!("TLS with {PROXIED_NAME} port 443: ")),
        (&web.url(""), "tunnel error: unsuccessful".to_owned()),
    ] {
        let expected = format!("through the proxy {proxy}: {cause}");
        check(&secure, &[("HTTPS_PROXY", proxy)], &[&expected]);
    }
    let locked = Origin::start(Script {
        expires: [(format!("{PROXIED_NAME}:443"), (0, 407))].into(),
        ..Script::new("")
    });
    let locked = locked.or_fail("a server");
    let proxy = locked.url("");
    let expected =
        format!("the proxy {proxy} requires a user name and a password (407): set https_proxy to");
    check_with_retries("2", &secure, &[("HTTPS_PROXY", &proxy)], &[&expected]);
    assert_eq!(locked.requests().len(), 1, "another attempt would be refused as well");
}

#[test]
fn clear_text_to_a_port_with_tls_is_recognized_at_once() {
    let authority = Authority::new().or_fail("an authority");
    let tls = authority.server_config().or_fail("TLS");
    let server = Origin::start_tls(Script::new(""), tls).or_fail("a server");
    let (address, url) = (server.address(), server.url("/disk").replace("https", "http"));
    let expected =
        format!("127.0.0.1 port {} does not speak HTTP: is it https://?", address.port());
    check(&url, &[], &[&expected]);
}
