//! API servers that are unavailable for a while.

use std::time::Duration;

use rustls::version::TLS12;
use serde_json::json;
use testkit::cluster::Cluster;
use testkit::https::Request;

use crate::cluster::deployed::{Deployed, NOWHERE, assert_disk, disk};
use crate::cluster::tls::{handshake, only};
use crate::cluster::{PROMPT, eventually};

/// Longest pause before a failed watch is retried: kube's back-off ends at 30 s and has jitter.
const WATCH_PATIENCE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "server: Kubernetes"]
fn running_uploads_survive_an_outage_of_the_api_server_and_new_ones_follow_it() {
    let cluster = Cluster::start();
    cluster.install_cdi();
    let deployed = Deployed::new(&cluster, "outage");
    let pod = deployed.pod();
    let upload_server = pod.start();
    let address = upload_server.address();
    let server = deployed.start(address);

    let disk = disk();
    let mut upload = server.connect();
    let head = deployed.request().length(disk.len()).header("Expect", "100-continue");
    upload.begin(&head).unwrap();
    assert_eq!(upload.response().unwrap().status, 100);
    cluster.stop_api();

    // For a moment the proxy may still use what it last read of the claim. Then the upload server
    // refuses the upload.
    eventually("the loss of the API server is noticed", PROMPT, || {
        let answer = deployed.upload(&server, &disk);
        assert_eq!(answer.status, 503, "{answer:?}");
        if answer.text().contains("Connection refused") {
            Ok(())
        } else {
            Err(format!("{answer:?}"))
        }
    });
    server.exchange(&Request::new("GET", "/healthz"), b"").assert(200, "OK");

    upload.send(&disk).unwrap();
    upload.response().unwrap().assert_uploaded();
    upload_server.wait().assert_success("the upload server");
    assert_disk(&pod, &disk);

    cluster.restart_api();
    let pod = deployed.pod().env("LISTEN_PORT", &address.port().to_string());
    let upload_server = pod.start();
    let ((), waited) = eventually("an upload", PROMPT, || {
        let answer = deployed.upload(&server, &disk);
        if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
    eprintln!("the next upload after {waited:?}");
    upload_server.wait().assert_success("the upload server");
    assert_disk(&pod, &disk);

    cluster.set_tls_profile(&json!({"type": "Modern", "modern": {}}));
    let old = only(deployed.files.front(), &TLS12);
    let ((), waited) = eventually("the profile is followed again", WATCH_PATIENCE, || {
        match handshake(&server, &old) {
            Err(_) => Ok(()),
            Ok(version) => Err(format!("{version:?} is still spoken")),
        }
    });
    eprintln!("the profile was followed again after {waited:?}");
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_proxy_that_starts_before_the_api_server_waits_for_it() {
    let cluster = Cluster::start();
    cluster.install_cdi();
    cluster.set_tls_profile(&json!({"type": "Modern", "modern": {}}));
    let deployed = Deployed::without_claim(&cluster, "early");
    let program = deployed.program(NOWHERE);
    cluster.stop_api();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The proxy fails to connect meanwhile; its log is read when it listens.
            std::thread::sleep(Duration::from_secs(2));
            cluster.restart_api();
        });
        let server = deployed.files.serve(program);
        assert!(server.log().contains("cannot watch CDI's configuration"), "{}", server.log());
        // No client may be accepted before the profile is known.
        let old = only(deployed.files.front(), &TLS12);
        assert!(handshake(&server, &old).is_err());
        server.connect();
    });
}
