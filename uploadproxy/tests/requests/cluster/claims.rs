//! Answers of the proxy for claims in every state that an API server of version 1.20 can hold
//! (contract §3.6, §3.7).

use std::time::{Duration, Instant};

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
    for (claim, annotations, message) in [
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
        server.exchange(&deployed.request_for(claim), b"").assert(503, message);
    }
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
