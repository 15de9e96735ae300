//! The TLS versions and ciphers of the server, and how it refuses to start.

use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ProtocolVersion, SupportedProtocolVersion};
use testkit::certs::{KeyKind, Offer};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::{Connection, Request};
use testkit::upload_pod::{CLIENT_NAME, Server, UploadPod};

use crate::contract::{BINARY, MIB, assert_logged, pod};

const AES128: CipherSuite = CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
const AES256: CipherSuite = CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384;
const CHACHA: CipherSuite = CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256;

/// Connects as the pod's client with this version, and this cipher suite if there is one. Returns
/// the negotiated version.
fn handshake(
    pod: &UploadPod,
    server: &Server,
    version: &'static SupportedProtocolVersion,
    cipher_suite: Option<CipherSuite>,
) -> Result<ProtocolVersion, String> {
    let offer = Offer {
        identity: Some(pod.client()),
        version: Some(version),
        cipher_suite,
        ..Offer::default()
    };
    let config = pod.authority().client_config_for(&offer).or_fail("TLS");
    let mut connection =
        Connection::open(server.address(), &config).map_err(|error| error.to_string())?;
    let health = connection.exchange(&Request::new("GET", "/healthz"), &[]);
    health.or_fail("an answer").assert(200, "OK");
    Ok(connection.tls_version().or_fail("a version after the handshake"))
}

fn rsa_pod(env: &[(&str, &str)]) -> UploadPod {
    let pod = UploadPod::with_keys(BINARY, CLIENT_NAME, KeyKind::Rsa);
    env.iter().fold(pod, |pod, (name, value)| pod.env(name, value))
}

#[test]
fn the_minimum_is_tls_1_2_unless_it_is_raised() {
    for floor in ["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS99"] {
        let pod = pod(&[("TLS_MIN_VERSION", floor)]);
        let server = pod.start();
        assert_eq!(handshake(&pod, &server, &TLS12, None), Ok(ProtocolVersion::TLSv1_2));
        assert_eq!(handshake(&pod, &server, &TLS13, None), Ok(ProtocolVersion::TLSv1_3));
    }
}

#[test]
fn a_minimum_of_tls_1_3_refuses_an_older_client() {
    let pod = pod(&[("TLS_MIN_VERSION", "VersionTLS13")]);
    let server = pod.start();
    let refused = handshake(&pod, &server, &TLS12, None).unwrap_err();
    // How the client's library names the alert `protocol_version` (RFC 8446 §6.2), which CDI's
    // test looks for.
    assert!(refused.contains("ProtocolVersion"), "{refused}");
    assert_eq!(handshake(&pod, &server, &TLS13, None), Ok(ProtocolVersion::TLSv1_3));
    server.post_last("/v1beta1/upload", &disk::content(1, MIB));
}

#[test]
fn only_the_listed_ciphers_are_accepted_in_tls_1_2() {
    for (list, spoken, unspoken) in [
        ("ECDHE-RSA-AES128-GCM-SHA256", vec![AES128], vec![AES256, CHACHA]),
        (
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,ECDHE-RSA-AES128-GCM-SHA256",
            vec![AES128, AES256],
            vec![CHACHA],
        ),
        // Without a suite that HTTP/2 requires (RFC 9113 §9.2.2), Go's server would not start.
        ("ECDHE-RSA-CHACHA20-POLY1305", vec![CHACHA], vec![AES128, AES256]),
        (
            "DHE-RSA-AES128-GCM-SHA256, ECDHE-RSA-AES256-GCM-SHA384 ,NONSENSE",
            vec![AES256],
            vec![AES128],
        ),
        ("DHE-RSA-AES128-SHA,AES256-SHA256,NONSENSE", vec![], vec![AES128, AES256, CHACHA]),
    ] {
        let pod = rsa_pod(&[("TLS_CIPHERS", list)]);
        let server = pod.start();
        for suite in spoken {
            let agreed = handshake(&pod, &server, &TLS12, Some(suite));
            assert_eq!(agreed, Ok(ProtocolVersion::TLSv1_2), "{suite:?} of {list}");
        }
        for suite in unspoken {
            let agreed = handshake(&pod, &server, &TLS12, Some(suite));
            assert!(agreed.is_err(), "{suite:?} is not in {list}");
        }
        // Suites of TLS 1.3 cannot be restricted.
        assert_eq!(handshake(&pod, &server, &TLS13, None), Ok(ProtocolVersion::TLSv1_3));
        server.post_last("/v1beta1/upload", &disk::content(1, MIB));
    }
}

#[test]
fn a_cipher_that_cannot_be_offered_is_logged_once() {
    let pod = rsa_pod(&[("TLS_CIPHERS", "ECDHE-RSA-AES128-GCM-SHA256,AES128-SHA,DES-CBC3-SHA")]);
    let server = pod.start();
    for _ in 0..3 {
        assert!(handshake(&pod, &server, &TLS12, Some(AES128)).is_ok());
    }
    let log = server.log();
    for cipher in ["AES128-SHA", "DES-CBC3-SHA"] {
        let lines =
            log.lines().filter(|line| line.contains(cipher) && !line.contains("TLS_CIPHERS="));
        assert_eq!(lines.count(), 1, "{cipher}\n{log}");
    }
}

#[test]
fn both_versions_of_http_are_offered() {
    let pod = pod(&[]);
    let server = pod.start();
    for (offered, chosen) in
        [(&["h2", "http/1.1"][..], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)]
    {
        let offer = Offer { protocols: offered, ..Offer::default() };
        let config = pod.authority().client_config_for(&offer).unwrap();
        let connection = Connection::open(server.address(), &config).unwrap();
        assert_eq!(connection.alpn(), chosen.map(str::as_bytes), "{offered:?}");
    }
}

#[test]
fn a_server_without_its_certificates_does_not_start() {
    let no_such_file = "/nonexistent/tls.crt";
    for env in [
        [("TLS_CERT_FILE", ""), ("TLS_KEY_FILE", "")],
        [("TLS_CERT_FILE", ""), ("LISTEN_PORT", "0")],
        [("TLS_KEY_FILE", ""), ("LISTEN_PORT", "0")],
        [("TLS_CERT_FILE", no_such_file), ("TLS_KEY_FILE", no_such_file)],
        [("CLIENT_CERT_FILE", no_such_file), ("LISTEN_PORT", "0")],
    ] {
        let pod = pod(&env);
        let finished = pod.program().start().wait();
        finished.assert_failure(1, "Error getting TLS config: ");
        if env[0].1.is_empty() {
            assert_logged(&finished.stderr, &["Error getting TLS config: invalid TLS config"]);
        }
        assert!(!finished.stderr.contains("Running server on"), "{}", finished.stderr);
    }
    let pod = pod(&[]);
    std::fs::write(pod.tls("server.key"), "not a key").unwrap();
    let finished = pod.program().start().wait();
    finished.assert_failure(1, "Error getting TLS config: ");
    assert!(finished.stderr.contains("server.key"), "{}", finished.stderr);
}
