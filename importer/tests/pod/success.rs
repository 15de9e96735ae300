//! Imports that succeed, and what they leave.

use std::os::unix::fs::MetadataExt;

use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};

use super::pod::{MIB, Pod, SUCCESS, serve, write};

#[test]
fn an_import_resizes_the_disk_sets_its_mode_and_reports_success() {
    let content = disk::content(5, 3 * MIB);
    let origin = serve(Script::new(testkit::tools::filter("gzip", ["-c"], &content)));
    // 11 MiB less 6 %, rounded down to whole MiB, are 10 MiB.
    let pod = Pod::http(&origin.url("/disk.img.gz"), &[("IMPORTER_IMAGE_SIZE", "11Mi")]);
    let finished = pod.assert_succeeds_with(SUCCESS);
    let disk = std::fs::read(pod.disk()).or_fail("the disk");
    assert_eq!(disk.len() as u64, 10 * MIB);
    assert!(disk.starts_with(&content), "the disk begins with the image");
    assert_eq!(pod.disk().metadata().or_fail("metadata").mode() & 0o7777, 0o660);
    assert_eq!(
        pod.path("dev/termination-log").metadata().or_fail("metadata").mode() & 0o777,
        0o600
    );
    let fsync = format!(
        "Successfully completed fsync({}) syscall, committed to disk",
        pod.disk().display()
    );
    for line in [
        "] Starting importer",
        "] begin import process",
        "New phase: TransferDataFile",
        &fsync,
        SUCCESS,
    ] {
        assert!(finished.stderr.contains(line), "{line} is missing in\n{}", finished.stderr);
    }
}

#[test]
fn every_log_line_is_json_if_that_is_asked_for() {
    let origin = serve(Script::new(disk::content(5, MIB)));
    let pod = Pod::http(&origin.url("/disk"), &[("CDI_LOG_FORMAT", "json")]);
    let finished = pod.assert_succeeds_with(SUCCESS);
    let parse = |line| serde_json::from_str::<serde_json::Value>(line).or_fail(line);
    let lines: Vec<_> = finished.stderr.lines().map(parse).collect();
    assert!(lines.iter().all(|line| line["ts"].is_f64() && line["level"].is_string()), "{lines:?}");
    assert!(lines.iter().any(|line| line["msg"] == "Starting importer"), "{lines:?}");
}

#[test]
fn preallocation_is_done_and_reported() {
    let origin = serve(Script::new(vec![0; 4 << 20]));
    let pod = Pod::http(&origin.url("/disk"), &[("PREALLOCATION", "true")]);
    pod.assert_succeeds_with(
        r#"{"scratchSpaceRequired":false,"preallocationApplied":true,"message":"Import Complete"}"#,
    );
    let blocks = pod.disk().metadata().or_fail("metadata").blocks();
    assert!(blocks * 512 >= 4 * MIB, "{blocks} blocks");
}

#[test]
fn a_stale_disk_of_an_earlier_attempt_is_replaced() {
    let origin = serve(Script::new(disk::content(5, MIB)));
    let pod = Pod::http(&origin.url("/disk"), &[]);
    write(&pod.disk(), &"stale".repeat(1 << 20));
    pod.assert_succeeds_with(SUCCESS);
    assert_eq!(pod.disk().metadata().or_fail("metadata").len(), MIB);
}

#[test]
fn a_right_checksum_is_confirmed_in_the_log() {
    let content = disk::content(9, MIB);
    let mut digest = stream::digest::RunningDigest::new(stream::digest::DigestAlgorithm::Sha512);
    digest.update(&content);
    let checksum = digest.finish_digest();
    let origin = serve(Script::new(content));
    let pod = Pod::http(&origin.url("/disk"), &[("IMPORTER_CHECKSUM", &checksum)]);
    let finished = pod.assert_succeeds_with(SUCCESS);
    assert!(
        finished.stderr.contains(&format!("Checksum verification passed: {checksum}")),
        "{}",
        finished.stderr
    );
}

#[test]
fn mounted_certificates_credentials_and_headers_are_used_and_not_logged() {
    let authority = Authority::new().or_fail("an authority");
    let script = Script {
        basic_auth: Some("joe:hunter2".to_owned()),
        required_header: Some(("x-token".to_owned(), "swordfish".to_owned())),
        headers: vec![("Content-Type".to_owned(), "text/html".to_owned())],
        ..Script::new(disk::content(5, MIB))
    };
    let tls = authority.server_config().or_fail("TLS");
    let origin = Origin::start_tls(script, tls).or_fail("an origin");
    let env = [
        ("IMPORTER_ACCESS_KEY_ID", "joe"),
        ("IMPORTER_SECRET_KEY", "hunter2"),
        ("IMPORTER_EXTRA_HEADER_0", "X-Plain: yes"),
    ];
    let mut pod = Pod::http(&origin.url("/disk"), &env);
    write(&pod.path("certs/tls.crt"), &authority.pem());
    write(&pod.path("extraheaders/0/token"), "X-Token: swordfish\n");
    pod.set("IMPORTER_CERT_DIR", pod.path("certs").display());
    let finished = pod.assert_succeeds_with(SUCCESS);
    let warning = "Unexpected content type 'text/html'. Content might not be a KubeVirt image.";
    assert!(finished.stderr.contains(warning), "{}", finished.stderr);
    for secret in ["hunter2", "swordfish", "am9lOmh1bnRlcjI"] {
        assert!(!finished.stderr.contains(secret), "{secret}\n{}", finished.stderr);
    }
    let first = origin.requests().into_iter().next().or_fail("a request");
    assert_eq!(first.request.header("x-plain"), Some("yes"));
    assert_eq!(first.request.header("user-agent"), Some("cdi-golang-importer"));

    // Without the mounted authority the same server is not trusted, unless no certificate matters.
    pod.unset("IMPORTER_CERT_DIR");
    pod.run().assert_failure(1, "certificate");
    let message = pod.message().or_fail("a message");
    assert!(
        message.starts_with("Unable to connect to http data source: HTTP request errored: "),
        "{message}"
    );
    pod.set("INSECURE_TLS", "true");
    pod.assert_succeeds_with(SUCCESS);
}
