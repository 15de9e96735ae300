//! TLS, and certificates that must not be accepted.

use testkit::certs::Authority;
use testkit::nbd::NbdServer;

use super::*;

fn tls_server(authority: &Authority, folder: &Path, mode: &str) -> NbdServer {
    let (certificate, key) = authority.leaf_pem().unwrap();
    std::fs::write(folder.join("ca-cert.pem"), authority.pem()).unwrap();
    std::fs::write(folder.join("server-cert.pem"), certificate).unwrap();
    std::fs::write(folder.join("server-key.pem"), key).unwrap();
    let args = [
        format!("--tls={mode}"),
        format!("--tls-certificates={}", text(folder)),
        "pattern".into(),
        "5M".into(),
    ];
    NbdServer::nbdkit(args)
}

fn encrypted(server: &NbdServer) -> String {
    server.uri("").replacen("nbd+unix", "nbds+unix", 1)
}

#[test]
#[ignore = "server: nbdkit"]
fn an_encrypted_export_is_read() {
    let (authority, folder) = (Authority::new().unwrap(), tempfile::tempdir().unwrap());
    for mode in ["require", "on"] {
        let server = tls_server(&authority, folder.path(), mode);
        let received = fetch_with(&encrypted(&server), &shared_tls(&authority)).unwrap();
        assert_eq!(received.bytes.len(), 5 << 20, "{mode}");
        assert_eq!(received.bytes[8..16], 8u64.to_be_bytes());
    }
}

#[test]
#[ignore = "server: nbdkit"]
fn servers_that_are_not_trusted_are_refused_at_once() {
    let (authority, folder) = (Authority::new().unwrap(), tempfile::tempdir().unwrap());
    let server = tls_server(&authority, folder.path(), "require");
    let other = shared_tls(&Authority::new().unwrap());
    let start = std::time::Instant::now();
    let message =
        |uri: &str, access: &Network| open_with(uri, access).map(|_| ()).unwrap_err().to_string();
    let untrusted = message(&encrypted(&server), &other);
    assert!(untrusted.contains(": TLS with the NBD server failed:"), "{untrusted}");
    let wrong_name = format!("{}&tls-hostname=elsewhere.example", encrypted(&server));
    let wrong_name = message(&wrong_name, &shared_tls(&authority));
    assert!(wrong_name.contains("not valid for name"), "{wrong_name}");
    // Connecting repeatedly would take much longer.
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
#[ignore = "server: nbdkit"]
fn client_and_server_must_agree_on_tls() {
    let (authority, folder) = (Authority::new().unwrap(), tempfile::tempdir().unwrap());
    let server = tls_server(&authority, folder.path(), "require");
    let uri = server.uri("");
    assert_eq!(
        failure(&uri),
        format!("{uri}: the NBD server requires TLS: use nbds:// or nbds+unix://")
    );
    let plain = NbdServer::nbdkit(["null", "1M"]);
    let message = failure(&encrypted(&plain));
    assert!(message.contains(": the NBD server offers no TLS"), "{message}");
}
