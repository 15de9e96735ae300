//! Typical mistakes on the command line: each has an exit code and says where, why and what to do.

use std::path::Path;

use testkit::certs::{Authority, KeyKind};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::mistake::MistakeScene;
use testkit::nginx::Nginx;
use testkit::upload_pod::UploadPod;
use testkit::upload_proxy::beside;
use testkit::user_mistakes;

use crate::BINARY;

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
    let scene = MistakeScene::new(BINARY)
        .phrase("tls", "--ca {files}/ca.crt --cert {files}/client.crt --key {files}/client.key")
        .word("files", folder.path().display())
        .word("closed", "127.0.0.1:1")
        .word("http", http.address())
        .word("https", https.address())
        .word("server", upload_server.address())
        .word("pod", pod.path("tls").display());
    scene.check(user_mistakes! {
        "frobnicate" =>
            2: "'frobnicate'", "unrecognized", "subcommand";
        "clone" =>
            2: "required arguments", "not provided", "<SOURCE> <URL>";
        "clone {files}/raw" =>
            2: "required arguments", "not provided", "<URL>";
        "clone {files}/raw https://{closed}/v1beta1/upload" =>
            2: "required arguments", "not provided", "--ca <FILE> --cert <FILE> --key <FILE>";
        "clone {files}/raw https://{closed}/v1beta1/upload {tls} --encoding gzip" =>
            2: "'--encoding <ENCODING>'", "invalid value 'gzip'", "auto, snappy, zstd";
        "clone {files}/raw https://{closed}/v1beta1/upload {tls} --progress fancy" =>
            2: "'--progress <PROGRESS>'", "invalid value 'fancy'", "auto, bar, plain, json, none";
        "clone {files}/raw https://{closed}/v1beta1/upload {tls} -q -v" =>
            2: "'--quiet'", "cannot be used with", "'--verbose";
        "-v clone {files}/raw https://{closed}/v1beta1/upload" =>
            2: "'-v'", "unexpected argument", "options of a subcommand follow its name";
        "clone {files}/nope https://{closed}/v1beta1/upload {tls}" =>
            3: "{files}/nope", "no such file or directory", "a block device, a file or a directory";
        "clone {files}/socket https://{closed}/v1beta1/upload {tls}" =>
            3: "{files}/socket", "no such device or address", "a block device, a file or a directory";
        "clone {files}/raw http://{closed}/v1beta1/upload {tls}" =>
            2: "\"http://{closed}/v1beta1/upload\"", "is not the https URL of an upload server", "write https://HOST:PORT/v1beta1/upload";
        "clone {files}/raw {closed} {tls}" =>
            2: "\"{closed}\"", "is not the https URL of an upload server", "write https://HOST:PORT/v1beta1/upload";
        "clone {files}/raw https://{closed}/v1beta1/upload --ca {files}/nope --cert {files}/client.crt --key {files}/client.key" =>
            2: "{files}/nope", "no such file", "check --ca";
        "clone {files}/raw https://{closed}/v1beta1/upload --ca {files}/directory --cert {files}/client.crt --key {files}/client.key" =>
            2: "{files}/directory", "is a directory", "check --ca";
        "clone {files}/raw https://{closed}/v1beta1/upload --ca {files}/raw --cert {files}/client.crt --key {files}/client.key" =>
            2: "the CA certificates of the server", "no certificate found", "check --ca";
        "clone {files}/raw https://{closed}/v1beta1/upload --ca {files}/ca.crt --cert {files}/nope --key {files}/client.key" =>
            2: "{files}/nope", "no such file", "check --ca, --cert and --key";
        "clone {files}/raw https://{closed}/v1beta1/upload --ca {files}/ca.crt --cert {files}/raw --key {files}/client.key" =>
            2: "TLS", "no certificates", "check --cert and --key";
        "clone {files}/raw https://{closed}/v1beta1/upload --ca {files}/ca.crt --cert {files}/client.crt --key {files}/raw" =>
            2: "the key of the client certificate", "cannot be used", "check --cert and --key";
        "clone {files}/raw https://{closed}/v1beta1/upload --ca {files}/ca.crt --cert {files}/client.crt --key {files}/stranger.key" =>
            2: "the certificate and the key", "do not match", "check --cert and --key";
        "clone {files}/raw https://{closed}/v1beta1/upload {tls}" =>
            7: "https://{closed}/v1beta1/upload", "cannot connect: connection refused", "is the server running?";
        "clone {files}/raw https://no-such-host.invalid/v1beta1/upload {tls}" =>
            7: "https://no-such-host.invalid", "no such host", "is the address right";
        "clone {files}/raw https://{http}/v1beta1/upload {tls}" =>
            7: "https://{http}/v1beta1/upload", "it does not speak TLS", "is it the port of an upload server?";
        "clone {files}/raw https://{https}/v1beta1/upload --ca {files}/other-ca.crt --cert {files}/client.crt --key {files}/client.key" =>
            7: "https://{https}/v1beta1/upload", "its certificate is not signed by", "check --ca";
        "clone {files}/raw https://{https}/v1beta1/upload {tls}" =>
            7: "https://{https}/v1beta1/upload", "status code 404;", "the path of an upload server is /v1beta1/upload";
        "clone {files}/raw https://{server}/v1beta1/upload --ca {pod}/ca.crt --cert {files}/stranger.crt --key {files}/stranger.key" =>
            7: "https://{server}/v1beta1/upload", "the server ended the connection", "Check --cert and --key";
        "clone {files}/raw https://{server}/wrong/path --ca {pod}/ca.crt --cert {pod}/client.crt --key {pod}/client.key" =>
            7: "https://{server}/wrong/path", "status code 404", "the path of an upload server is /v1beta1/upload";
        "pack" =>
            2: "required arguments", "not provided", "<SOURCE>";
        "pack {files}/nope" =>
            3: "{files}/nope", "no such file or directory", "a block device, a file or a directory";
        "pack {files}/socket" =>
            3: "{files}/socket", "no such device or address", "a block device, a file or a directory";
        "pack {files}/raw --encoding gzip" =>
            2: "'--encoding <ENCODING>'", "invalid value 'gzip'", "snappy, zstd, plain";
        "pack {files}/raw -q" =>
            2: "'-q'", "unexpected", "argument";
        "completions tcsh" =>
            2: "'tcsh'", "invalid value", "bash, elvish, fish, powershell, zsh";
    });
}
