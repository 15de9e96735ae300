//! The imports that Forklift makes of Nutanix disks: a session cookie that expires, and the
//! server's own certificate as trust.

use testkit::certs::{Authority, KeyKind};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Fault, Origin, Script};

use super::pod::{MIB, Pod, SUCCESS, serve, write};

const COOKIE: &str = "NTNX_IGW_SESSION=abc";

/// A pod with the Secret that Forklift makes for each disk.
fn pod(url: &str) -> Pod {
    let pod = Pod::http(url, &[]);
    write(&pod.path("extraheaders/0/cookie"), &format!("Cookie: {COOKIE}"));
    pod
}

#[test]
fn an_expired_session_is_reported_at_once_in_words_that_forklift_looks_for() {
    let first = Script { faults: vec![Fault::Status(401, None); 50], ..Script::new("x") };
    let later = Script {
        faults: [vec![Fault::CutAt(MIB)], vec![Fault::Status(401, None); 50]].concat(),
        ..Script::new(disk::content(1, 4 * MIB))
    };
    for (script, requests) in [(first, 2), (later, 3)] {
        let origin = serve(script);
        let pod = pod(&origin.url("/api/nutanix/v3/images/1/file"));
        let finished = pod.run();
        finished.assert_failure(1, "401 Unauthorized");
        let message = pod.message().or_fail("a message");
        assert!(message.contains("got 401. Status: 401 Unauthorized"), "{message}");
        assert!(origin.requests().len() <= requests, "{}", origin.requests().len());
        assert!(
            !finished.stderr.contains(COOKIE) && !message.contains(COOKIE),
            "{}",
            finished.stderr
        );
    }
}

#[test]
fn a_cookie_goes_out_with_ranges_and_retries() {
    let content = disk::content(1, 4 * MIB);
    let origin = serve(Script {
        required_header: Some(("cookie".to_owned(), COOKIE.to_owned())),
        faults: vec![
            Fault::Status(503, None),
            Fault::CutAt(MIB),
            Fault::Refuse,
            Fault::CutAt(2 * MIB),
        ],
        ..Script::new(content.clone())
    });
    let pod = pod(&origin.url("/disk"));
    pod.assert_succeeds_with(SUCCESS);
    assert_eq!(std::fs::read(pod.disk()).ok(), Some(content));
    let requests = origin.requests();
    assert!(requests.iter().any(|seen| seen.request.header("range").is_some()), "{requests:?}");
    assert!(requests.len() >= 4, "{requests:?}");
    assert!(
        requests.iter().all(|seen| seen.request.header("cookie") == Some(COOKIE)),
        "{requests:?}"
    );
}

#[test]
fn the_servers_own_certificate_is_trust_for_itself_alone() {
    let authority = Authority::new().or_fail("an authority");
    let [own, other] = [0, 1].map(|_| authority.server(KeyKind::Rsa).or_fail("a server"));
    let tls = own.server_config().or_fail("TLS");
    let origin = Origin::start_tls(Script::new(disk::content(1, MIB)), tls).or_fail("an origin");
    for (leaf, is_trusted) in [(&own, true), (&other, false)] {
        let mut pod = pod(&origin.url("/disk"));
        for name in ["certs/ca.pem", "certs/tls.crt"] {
            write(&pod.path(name), &leaf.certificate_pem);
        }
        pod.set("IMPORTER_CERT_DIR", pod.path("certs").display());
        if is_trusted {
            pod.assert_succeeds_with(SUCCESS);
        } else {
            pod.run().assert_failure(1, "certificate");
        }
    }
}
