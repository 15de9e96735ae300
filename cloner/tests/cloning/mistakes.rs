//! Typical mistakes on the command line: each has an exit code and says where, why and what to do.

use std::path::Path;

use testkit::certs::{Authority, KeyKind};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::mistake::MistakeScene;
use testkit::nginx::Nginx;
use testkit::process::Program;
use testkit::upload_pod::UploadPod;
use testkit::upload_proxy::beside;

use crate::BINARY;

const SNAPSHOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cloning");

/// Writes certificates and keys, and files that are neither.
fn write_files(folder: &Path, authority: &Authority) {
    let other = Authority::new().or_fail("an authority");
    let identity =
        |authority: &Authority| authority.client("client", KeyKind::Ecdsa).or_fail("a certificate");
    let (client, stranger) = (identity(authority), identity(&other));
    for (name, text) in [
        ("ca.crt", authority.pem()),
        ("other-ca.crt", other.pem()),
        ("client.crt", client.certificate_pem.clone()),
        ("client.key", client.key_pem()),
        ("stranger.crt", stranger.certificate_pem.clone()),
        ("stranger.key", stranger.key_pem()),
    ] {
        std::fs::write(folder.join(name), text).or_fail(name);
    }
    std::fs::write(folder.join("raw"), disk::content(1, 1 << 20)).or_fail("a disk");
    std::fs::create_dir(folder.join("directory")).or_fail("a folder");
    drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).or_fail("a socket"));
}

#[test]
#[ignore = "server: nginx"]
fn every_mistake_has_its_exit_code_and_a_helpful_sentence() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let authority = Authority::new().or_fail("an authority");
    write_files(folder.path(), &authority);
    let server = authority.server(KeyKind::Ecdsa).or_fail("a certificate");
    let start = |name: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).or_fail(name);
        std::fs::write(place.join("server.crt"), &server.certificate_pem).or_fail(name);
        std::fs::write(place.join("server.key"), server.key_pem()).or_fail(name);
        Nginx::start(&place, name == "https", "location / { return 404; }")
    };
    let (http, https) = (start("http"), start("https"));
    let pod = UploadPod::new(&beside(BINARY, "cdi-uploadserver"));
    let upload_server = pod.start();
    let scene = MistakeScene::new(BINARY, SNAPSHOTS)
        .phrase("tls", "--cacert {files}/ca.crt --cert {files}/client.crt --key {files}/client.key")
        .word("files", folder.path().display())
        .word("closed", "127.0.0.1:1")
        .word("http", http.address())
        .word("https", https.address())
        .word("server", upload_server.address())
        .word("pod", pod.path("tls").display());
    // Its error is one of several: the server's alert races with the first bytes that are sent.
    let [cert, key] = ["stranger.crt", "stranger.key"].map(|name| folder.path().join(name));
    let stranger = Program::new(BINARY)
        .arg("clone")
        .arg(folder.path().join("raw"))
        .arg(upload_server.url("/v1beta1/upload"))
        .arg("--cacert")
        .arg(pod.tls("ca.crt"))
        .arg("--cert")
        .arg(cert)
        .arg("--key")
        .arg(key);
    stranger.run().assert_failure(7, "does it accept this client? Check --cert and --key");
    scene.check("mistakes", &[
    "frobnicate",
    "clone",
    "clone {files}/raw",
    "clone {files}/raw https://{closed}/v1beta1/upload",
    "clone {files}/raw https://{closed}/v1beta1/upload {tls} --encoding gzip",
    "clone {files}/raw https://{closed}/v1beta1/upload {tls} --progress fancy",
    "clone {files}/raw https://{closed}/v1beta1/upload {tls} -q -v",
    "-v clone {files}/raw https://{closed}/v1beta1/upload",
    "clone {files}/nope https://{closed}/v1beta1/upload {tls}",
    "clone {files}/socket https://{closed}/v1beta1/upload {tls}",
    "clone {files}/raw http://{closed}/v1beta1/upload {tls}",
    "clone {files}/raw {closed} {tls}",
    "clone {files}/raw https://{closed}/v1beta1/upload --cacert {files}/nope --cert {files}/client.crt --key {files}/client.key",
    "clone {files}/raw https://{closed}/v1beta1/upload --cacert {files}/directory --cert {files}/client.crt --key {files}/client.key",
    "clone {files}/raw https://{closed}/v1beta1/upload --cacert {files}/raw --cert {files}/client.crt --key {files}/client.key",
    "clone {files}/raw https://{closed}/v1beta1/upload --cacert {files}/ca.crt --cert {files}/nope --key {files}/client.key",
    "clone {files}/raw https://{closed}/v1beta1/upload --cacert {files}/ca.crt --cert {files}/raw --key {files}/client.key",
    "clone {files}/raw https://{closed}/v1beta1/upload --cacert {files}/ca.crt --cert {files}/client.crt --key {files}/raw",
    "clone {files}/raw https://{closed}/v1beta1/upload --cacert {files}/ca.crt --cert {files}/client.crt --key {files}/stranger.key",
    "clone {files}/raw https://{closed}/v1beta1/upload {tls}",
    "clone {files}/raw https://no-such-host.invalid/v1beta1/upload {tls}",
    "clone {files}/raw https://{http}/v1beta1/upload {tls}",
    "clone {files}/raw https://{https}/v1beta1/upload --cacert {files}/other-ca.crt --cert {files}/client.crt --key {files}/client.key",
    "clone {files}/raw https://{https}/v1beta1/upload {tls}",
    "clone {files}/raw https://{server}/wrong/path --cacert {pod}/ca.crt --cert {pod}/client.crt --key {pod}/client.key",
    "pack",
    "pack {files}/nope",
    "pack {files}/socket",
    "pack {files}/raw --encoding gzip",
    "pack {files}/raw -q",
    "completions tcsh",
]);
}
