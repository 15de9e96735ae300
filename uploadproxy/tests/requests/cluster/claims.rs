//! Answers of the proxy for claims in every state that an API server of version 1.20 can hold
//! (contract §3.6, §3.7).

use std::time::{Duration, Instant};

use testkit::tools;

use crate::cluster::deployed::{Deployed, NOWHERE, assert_disk, disk};
use crate::cluster::{NAMESPACE, PROMPT, cluster, eventually};

const TARGET: (&str, &str) = ("storage.upload.target", "");
const READY: (&str, &str) = ("storage.pod.ready", "true");

#[test]
#[ignore = "server: Kubernetes"]
fn claims_that_take_no_upload_are_refused_with_upstreams_message() {
    let odd = ("storage.contentType", "<script>alert(\"it's me & you\")</script>");
    let deployed = Deployed::without_claim(cluster(), "claims");
    let server = deployed.start(NOWHERE);
    for (claim, annotations, words) in [
        (
            "claims-none",
            None,
            "rejecting Upload Request for PVC claims-none that doesn&#39;t exist",
        ),
        ("claims-plain", Some(&[][..]), "PVC claims-plain is not an upload target"),
        ("claims-ready", Some(&[READY][..]), "PVC claims-ready is not an upload target"),
        (
            "claims-done",
            Some(&[TARGET, READY, ("storage.pod.phase", "Succeeded")][..]),
            "rejecting Upload Request for PVC claims-done that already finished uploading",
        ),
        (
            "claims-odd",
            Some(&[TARGET, READY, odd][..]),
            "rejecting upload request for PVC claims-odd - upload content-type \
             &lt;script&gt;alert(&#34;it&#39;s me &amp; you&#34;)&lt;/script&gt; is invalid",
        ),
    ] {
        if let Some(annotations) = annotations {
            cluster().create_pvc(NAMESPACE, claim, annotations);
        }
        let started = Instant::now();
        server.exchange(&deployed.request_for(claim), b"").assert(503, words);
        assert!(started.elapsed() < Duration::from_secs(8), "{claim}: refused at once");
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_claim_that_does_not_get_ready_is_waited_for_ten_seconds() {
    let deployed = Deployed::without_claim(cluster(), "never");
    cluster().create_upload_pvc(NAMESPACE, "never", &[("storage.pod.ready", "false")]);
    let server = deployed.start(NOWHERE);
    let started = Instant::now();
    deployed.upload(&server, &disk()).assert(503, "context deadline exceeded");
    let waited = started.elapsed();
    let expected = Duration::from_secs(9)..Duration::from_secs(15);
    // The ten seconds are measured by the proxy, another process.
    assert!(expected.contains(&waited), "{waited:?}");
}

#[test]
#[ignore = "server: Kubernetes"]
fn an_upload_begins_when_its_claim_is_ready() {
    let deployed = Deployed::without_claim(cluster(), "later");
    cluster().create_upload_pvc(NAMESPACE, "later", &[]);
    let pod = deployed.pod();
    let upload_server = pod.start();
    let server = deployed.start(upload_server.address());
    let delay = Duration::from_secs(3);
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The proxy checks the claim several times meanwhile.
            std::thread::sleep(delay);
            cluster().annotate_pvc(NAMESPACE, "later", READY.0, Some(READY.1));
        });
        deployed.upload(&server, &disk()).assert_uploaded();
    });
    let waited = started.elapsed();
    assert!((delay..delay + Duration::from_secs(5)).contains(&waited), "{waited:?}");
    upload_server.wait().assert_success("the upload server");
    assert_disk(&pod, &disk());

    cluster().annotate_pvc(NAMESPACE, "later", "storage.pod.phase", Some("Succeeded"));
    // For a moment the proxy may still use what it last read of the claim.
    let refused = "rejecting Upload Request for PVC later that already finished uploading";
    eventually("an upload is refused", PROMPT, || {
        let answer = deployed.upload(&server, &disk());
        if answer.status == 503 && answer.text() == refused {
            Ok(())
        } else {
            Err(format!("{answer:?}"))
        }
    });
}

#[test]
#[ignore = "server: Kubernetes"]
fn an_archive_is_unpacked_to_a_claim_for_files() {
    let deployed = Deployed::new(cluster(), "files");
    cluster().annotate_pvc(NAMESPACE, "files", "storage.contentType", Some("archive"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("greeting"), "hello").unwrap();
    let tar = folder.path().join("files.tar");
    let words =
        ["-C", &folder.path().display().to_string(), "-cf", &tar.display().to_string(), "greeting"];
    tools::run("tar", words);

    let pod = deployed.pod();
    let upload_server = pod.start();
    let server = deployed.start(upload_server.address());
    deployed.upload(&server, &std::fs::read(tar).unwrap()).assert_uploaded();
    upload_server.wait().assert_success("the upload server");
    assert_eq!(std::fs::read_to_string(pod.path("data/greeting")).unwrap(), "hello");
}
