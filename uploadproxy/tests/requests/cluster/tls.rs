//! TLS of the public port, whose settings change while the proxy runs (contract §3.2).

use std::sync::Arc;

use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ProtocolVersion};
use serde_json::{Value, json};
use testkit::certs::{Authority, Offer};
use testkit::cluster::cdi::CDI_CONFIG;
use testkit::fail::OrFail;
use testkit::https::Connection;
use testkit::secret_volume::SecretVolume;
use testkit::upload_pod::Server;

use crate::cluster::deployed::{Deployed, NOWHERE, assert_disk, disk};
use crate::cluster::{PROMPT, cluster, eventually};

/// Returns a client that speaks only one version of TLS.
pub(crate) fn only(
    authority: &Authority,
    version: &'static rustls::SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let offer = Offer { version: Some(version), ..Offer::default() };
    authority.client_config_for(&offer).or_fail("TLS")
}

/// Returns the version that a handshake negotiates, or why it failed.
pub(crate) fn handshake(
    server: &Server,
    client: &Arc<ClientConfig>,
) -> Result<Option<ProtocolVersion>, String> {
    let connection = Connection::open(server.address(), client);
    connection.map(|connection| connection.tls_version()).map_err(|error| error.to_string())
}

#[test]
#[ignore = "server: Kubernetes"]
fn the_profile_of_cdi_config_takes_effect_without_a_restart() {
    let deployed = Deployed::without_claim(cluster(), "profile");
    let old = only(deployed.files.front(), &TLS12);
    let new = only(deployed.files.front(), &TLS13);
    cluster().set_tls_profile(&Value::Null);
    let server = deployed.start(NOWHERE);
    handshake(&server, &old).unwrap();

    let takes_old = |what: &Value, takes_old: bool| {
        let (answer, waited) =
            eventually(&what.to_string(), PROMPT, || match handshake(&server, &old) {
                Ok(version) if takes_old => Ok(format!("{version:?}")),
                Err(alert) if !takes_old => Ok(alert),
                other => Err(format!("{other:?}")),
            });
        eprintln!("{what}: {answer} after {waited:?}");
        let wanted = if takes_old { "TLSv1_2" } else { "ProtocolVersion" };
        assert!(answer.contains(wanted), "{what}: {answer}");
        assert_eq!(handshake(&server, &new), Ok(Some(ProtocolVersion::TLSv1_3)), "{what}");
    };
    let intermediate = json!({"type": "Intermediate", "intermediate": {}});
    let modern = json!({"type": "Modern", "modern": {}});
    let custom =
        json!({"type": "Custom", "custom": {"ciphers": [], "minTLSVersion": "VersionTLS13"}});
    for (profile, wanted) in [
        (&modern, false),
        (&intermediate, true),
        (&custom, false),
        (&Value::Null, true),
        (&modern, false),
    ] {
        cluster().set_tls_profile(profile);
        takes_old(profile, wanted);
    }

    // Without the object the last profile stays in effect, and a new object replaces it.
    cluster().delete(CDI_CONFIG);
    // There is no event to wait for: a watch would have reported by now, and nothing may change.
    std::thread::sleep(PROMPT / 5);
    takes_old(&json!("deleted"), false);
    cluster().create_cdi_config();
    takes_old(&json!("created again"), true);
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_new_certificate_is_served_at_once_and_drops_no_upload() {
    let deployed = Deployed::new(cluster(), "swap");
    let pod = deployed.pod();
    let upload_server = pod.start();
    let (certificate, key) = deployed.files.front().leaf_pem().unwrap();
    let mut secret = SecretVolume::new(&[("tls.crt", &certificate), ("tls.key", &key)]);
    let program = deployed
        .program(upload_server.address())
        .env("SERVER_CERT_FILE", secret.path("tls.crt"))
        .env("SERVER_KEY_FILE", secret.path("tls.key"));
    let server = deployed.files.serve(program);

    let disk = disk();
    let mut upload = server.connect();
    let head = deployed.request().length(disk.len()).header("Expect", "100-continue");
    upload.begin(&head).unwrap();
    assert_eq!(upload.response().unwrap().status, 100);
    let (first, rest) = disk.split_at(disk.len() / 2);
    upload.send(first).unwrap();

    // Twice, because a watch on the first folder alone would miss the second change.
    for _ in 0..2 {
        let authority = Authority::new().unwrap();
        let client = authority.client_config().unwrap();
        let (certificate, key) = authority.leaf_pem().unwrap();
        secret.replace(&[("tls.crt", &certificate), ("tls.key", &key)]);
        let ((), waited) =
            eventually("the new certificate", PROMPT, || handshake(&server, &client).map(drop));
        eprintln!("the new certificate was shown after {waited:?}");
        let before = deployed.files.front().client_config().unwrap();
        assert!(handshake(&server, &before).is_err(), "the old certificate is still shown");
    }

    upload.send(rest).unwrap();
    upload.response().unwrap().assert_uploaded();
    upload_server.wait().assert_success("the upload server");
    assert_disk(&pod, &disk);
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_new_certificate_without_its_key_changes_nothing() {
    let deployed = Deployed::without_claim(cluster(), "half");
    let (certificate, key) = deployed.files.front().leaf_pem().unwrap();
    let mut secret = SecretVolume::new(&[("tls.crt", &certificate), ("tls.key", &key)]);
    let program = deployed
        .program(NOWHERE)
        .env("SERVER_CERT_FILE", secret.path("tls.crt"))
        .env("SERVER_KEY_FILE", secret.path("tls.key"));
    let server = deployed.files.serve(program);
    let authority = Authority::new().unwrap();
    let (new_certificate, new_key) = authority.leaf_pem().unwrap();

    secret.replace(&[("tls.crt", &new_certificate), ("tls.key", "nothing")]);
    let before = deployed.files.front().client_config().unwrap();
    // There is no event to wait for: nothing may change in this time.
    std::thread::sleep(PROMPT / 2);
    handshake(&server, &before).unwrap();

    secret.replace(&[("tls.crt", &new_certificate), ("tls.key", &new_key)]);
    let client = authority.client_config().unwrap();
    eventually("the new certificate", PROMPT, || handshake(&server, &client).map(drop));
}
