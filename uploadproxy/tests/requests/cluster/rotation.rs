//! Certificates of the proxy and authorities that it trusts, which CDI renews while the proxy runs
//! (contract §8 item 74).

use std::sync::Arc;
use std::time::Duration;

use testkit::certs::{Authority, KeyKind};
use testkit::secret_volume::SecretVolume;
use testkit::upload_pod::{CLIENT_NAME, Server};

use crate::cluster::deployed::{Deployed, assert_disk, disk};
use crate::cluster::{cluster, eventually};

/// Renewed files must be used within this time.
const ROTATION: Duration = Duration::from_secs(120);

/// The beginning of every body of a 502.
const PROXY_ERROR: &str = "error in upload-proxy: http: proxy error: ";

/// Uploads until that succeeds, and returns how long it took.
#[track_caller]
fn upload_after_rotation(deployed: &Deployed<'_>, server: &Server) -> Duration {
    let ((), waited) = eventually("an upload", ROTATION, || {
        let answer = deployed.upload(server, &disk());
        match answer.status {
            200 => Ok(()),
            _ => Err(format!("{answer:?}")),
        }
    });
    waited
}

#[track_caller]
fn assert_proxy_error(deployed: &Deployed<'_>, server: &Server) {
    let answer = deployed.upload(server, &disk());
    let text = answer.text();
    assert_eq!(answer.status, 502, "{text}");
    assert!(text.starts_with(PROXY_ERROR) && text.ends_with('\n'), "{text:?}");
}

#[test]
#[ignore = "server: Kubernetes"]
fn new_authorities_are_trusted_and_old_ones_are_not() {
    let deployed = Deployed::new(cluster(), "authorities");
    let first_pod = deployed.pod();
    let first_server = first_pod.start();
    let address = first_server.address();
    let server = deployed.start(address);
    deployed.upload(&server, &disk()).assert_uploaded();
    first_server.wait().assert_success("the first upload server");

    // The next pod has a certificate of the next authority, and accepts only clients of that one.
    let next = Arc::new(Authority::new().unwrap());
    let port = address.port().to_string();
    let pod = deployed.pod_of(&next).env("LISTEN_PORT", &port);
    let upload_server = pod.start();
    assert_proxy_error(&deployed, &server);
    for (name, pem) in [
        ("client.key", pod.client().key_pem()),
        ("client.crt", pod.client().certificate_pem.clone()),
    ] {
        std::fs::write(deployed.files.path(name), pem).unwrap();
    }
    assert_proxy_error(&deployed, &server);

    let both = deployed.files.cluster().pem() + &next.pem();
    cluster().set_ca_bundle(deployed.name, &both);
    let waited = upload_after_rotation(&deployed, &server);
    eprintln!("new authorities were used after {waited:?}");
    upload_server.wait().assert_success("the next upload server");
    assert_disk(&pod, &disk());

    // The old authority must not be trusted for longer than that either, because its key may be
    // stolen.
    cluster().set_ca_bundle(deployed.name, &next.pem());
    let old_pod = deployed.pod().env("LISTEN_PORT", &port);
    let _old_server = old_pod.start();
    let ((), waited) = eventually("the old authority is no longer trusted", ROTATION, || {
        let text = deployed.upload(&server, &disk()).text();
        // Before that, it is the pod that refuses the proxy.
        if text.contains("invalid peer certificate") { Ok(()) } else { Err(text) }
    });
    eprintln!("the old authority was forgotten after {waited:?}");
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_new_client_certificate_is_used() {
    let deployed = Deployed::new(cluster(), "client");
    let stranger = Authority::new().unwrap().client(CLIENT_NAME, KeyKind::Ecdsa).unwrap();
    let mut secret = SecretVolume::new(&[
        ("tls.crt", &stranger.certificate_pem),
        ("tls.key", &stranger.key_pem()),
    ]);
    let pod = deployed.pod();
    let upload_server = pod.start();
    let program = deployed
        .program(upload_server.address())
        .env("UPLOAD_CLIENT_CERT_FILE", secret.path("tls.crt"))
        .env("UPLOAD_CLIENT_KEY_FILE", secret.path("tls.key"));
    let server = deployed.files.serve(program);
    assert_proxy_error(&deployed, &server);

    let client = pod.client();
    secret.replace(&[("tls.crt", &client.certificate_pem), ("tls.key", &client.key_pem())]);
    let waited = upload_after_rotation(&deployed, &server);
    eprintln!("the new certificate was shown after {waited:?}");
    upload_server.wait().assert_success("the upload server");
    assert_disk(&pod, &disk());
}
