//! PVCs in every state that a cluster can show.

use std::time::{Duration, Instant};

use testkit::fail::OrFail;
use testkit::https::{Request, Response};
use testkit::kube_api::{
    Answer, CONTENT_TYPE, KubeApi, POD_PHASE, POD_READY, PVC_PRIME, UPLOAD_TARGET, populated, pvc,
    ready_pvc,
};
use testkit::upload_pod::Server;
use testkit::upload_proxy::{NAMESPACE, UploadProxy};
use testkit::upstream::{Script, Upstream};

use crate::contract::BINARY;

/// How long an upload waits for its pod (contract: at most 10 s, with a check every second).
const WAIT: Duration = Duration::from_secs(10);

/// Returns the host name of the upload server of the PVC `name`.
fn service(name: &str) -> String {
    format!("cdi-upload-{name}.{NAMESPACE}.svc")
}

/// A proxy in a cluster where one echoing server acts as every upload server.
struct Cluster {
    api: KubeApi,
    proxy: UploadProxy,
    upstream: Upstream,
    server: Server,
}

impl Cluster {
    fn start(services: &[String]) -> Self {
        let proxy = UploadProxy::new(BINARY);
        let upstream = Upstream::start(proxy.cluster(), services, vec![Script::echo()]);
        let api = KubeApi::start(&proxy.cluster().pem());
        let server = proxy.start_in_cluster(&api, Some(upstream.address()));
        Self { api, proxy, upstream, server }
    }

    fn post(&self, name: &str, path: &str) -> Response {
        let request = Request::post(path).header("Authorization", &self.proxy.bearer(name));
        self.server.exchange(&request, b"body")
    }
}

const READY: [(&str, &str); 3] = [(UPLOAD_TARGET, ""), (POD_PHASE, "Running"), (POD_READY, "true")];

/// Returns [`READY`] and these annotations.
fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    READY.iter().chain(more).copied().collect()
}

/// A PVC, the answers to its reads, and the expected answer to an upload.
struct Row {
    name: &'static str,
    answers: Vec<Answer>,
    status: u16,
    body: &'static str,
    /// Expected time of the answer, in seconds.
    takes: u64,
}

fn row(
    name: &'static str,
    answers: Vec<Answer>,
    status: u16,
    body: &'static str,
    takes: u64,
) -> Row {
    Row { name, answers, status, body, takes }
}

fn objects(name: &str, annotations: &[&[(&str, &str)]]) -> Vec<Answer> {
    let objects = annotations.iter().map(|annotations| pvc(name, annotations));
    objects.map(Answer::Object).collect()
}

const TIMEOUT: &str = "context deadline exceeded";

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let not_ready = [(UPLOAD_TARGET, ""), (POD_READY, "false")];
    let forbidden = "persistentvolumeclaims \"forbidden\" is forbidden: User <x> can't get";
    vec![
        row("ready", objects("ready", &[&READY]), 200, "", 0),
        row("any-value", objects("any-value", &[&with(&[(UPLOAD_TARGET, "false")])]), 200, "", 0),
        row("not-yet", objects("not-yet", &[&not_ready, &not_ready, &READY]), 200, "", 2),
        row("no-pod-yet", objects("no-pod-yet", &[&[(UPLOAD_TARGET, "")], &READY]), 200, "", 1),
        row("never", objects("never", &[&not_ready]), 503, TIMEOUT, 10),
        row("odd-ready", objects("odd-ready", &[&with(&[(POD_READY, "yes")])]), 503, TIMEOUT, 10),
        row("one", objects("one", &[&with(&[(POD_READY, "1")])]), 200, "", 0),
        row("capital", objects("capital", &[&with(&[(POD_READY, "True")])]), 200, "", 0),
        row("mixed", objects("mixed", &[&with(&[(POD_READY, "tRUE")])]), 503, TIMEOUT, 10),
        row("absent", vec![], 503,
            "rejecting Upload Request for PVC absent that doesn&#39;t exist", 0),
        row("no-target", objects("no-target", &[&READY[1..]]), 503, "PVC no-target is not an upload target", 0),
        row("bare", objects("bare", &[&[]]), 503, "PVC bare is not an upload target", 0),
        row("done", objects("done", &[&with(&[(POD_PHASE, "Succeeded")])]), 503,
            "rejecting Upload Request for PVC done that already finished uploading", 0),
        row("done-soon", objects("done-soon", &[&not_ready, &with(&[(POD_PHASE, "Succeeded")])]), 503,
            "rejecting Upload Request for PVC done-soon that already finished uploading", 1),
        row("deleted-soon",
            vec![Answer::Object(pvc("deleted-soon", &not_ready)),
                 Answer::Status(404, "NotFound", "persistentvolumeclaims \"deleted-soon\" not found".into())],
            503, "rejecting Upload Request for PVC deleted-soon that doesn&#39;t exist", 1),
        row("forbidden", vec![Answer::Status(403, "Forbidden", forbidden.into())], 503,
            "persistentvolumeclaims &#34;forbidden&#34; is forbidden: User &lt;x&gt; can&#39;t get", 0),
        row("silent", vec![Answer::Silence], 503, TIMEOUT, 10),
        row("odd-content",
            objects("odd-content", &[&with(&[(CONTENT_TYPE, "<script>alert('x & y')</script>")])]), 503,
            "rejecting upload request for PVC odd-content - upload content-type \
             &lt;script&gt;alert(&#39;x &amp; y&#39;)&lt;/script&gt; is invalid", 0),
    ]
}

/// Uploads to all of them at the same time, because some wait for ten seconds.
fn check(cluster: &Cluster, rows: &[Row]) {
    for row in rows.iter().filter(|row| !row.answers.is_empty()) {
        cluster.api.set_pvc(row.name, row.answers.clone());
    }
    std::thread::scope(|scope| {
        for row in rows {
            scope.spawn(move || {
                let started = Instant::now();
                let response = cluster.post(row.name, "/v1beta1/upload");
                let waited = started.elapsed();
                assert_eq!(response.status, row.status, "{}: {response:?}", row.name);
                if row.status != 200 {
                    assert_eq!(response.text(), row.body, "{}", row.name);
                }
                let expected = Duration::from_secs(row.takes);
                let late = expected + Duration::from_millis(1900);
                let early = expected.saturating_sub(Duration::from_millis(200));
                assert!((early..late).contains(&waited), "{}: {waited:?}", row.name);
                let reads = cluster.api.reads_of(row.name);
                let most = usize::try_from(row.takes).or_fail("seconds") + 1;
                assert!((1..=most).contains(&reads), "{}: {reads} reads", row.name);
            });
        }
    });
}

#[test]
#[ignore = "slow: waits 10 s"]
fn uploads_begin_when_the_pod_is_ready_and_refusals_say_why() {
    let rows = rows();
    let services: Vec<_> = rows.iter().map(|row| service(row.name)).collect();
    let cluster = Cluster::start(&services);
    check(&cluster, &rows);
    let passed = rows.iter().filter(|row| row.status == 200).count();
    assert_eq!(cluster.upstream.seen().len(), passed);
    let log = cluster.server.log();
    for line in [
        "Received valid token: pvc: ready, namespace: default",
        "rejecting Upload Request for PVC absent that doesn't exist",
    ] {
        assert!(log.contains(line), "{line:?} is missing in\n{log}");
    }
}

#[test]
#[ignore = "slow: waits 10 s"]
fn a_populated_pvc_is_uploaded_through_its_prime() {
    let prime = |value| [(PVC_PRIME, value)];
    let populated_as =
        |name, annotations: &[(&str, &str)]| Answer::Object(populated(pvc(name, annotations)));
    let mut other_group = populated(ready_pvc("other-group"));
    other_group["spec"]["dataSourceRef"]["apiGroup"] = "example.com".into();
    let mut other_kind = populated(ready_pvc("other-kind"));
    other_kind["spec"]["dataSourceRef"]["kind"] = "VolumeImportSource".into();
    let mut nameless = populated(ready_pvc("nameless"));
    nameless["spec"]["dataSourceRef"]["name"] = "".into();
    #[rustfmt::skip]
    let rows = [
        row("by-prime", vec![populated_as("by-prime", &prime("prime-ready"))], 200, "", 0),
        row("prime-soon",
            vec![populated_as("prime-soon", &[]), populated_as("prime-soon", &prime("prime-ready"))], 200, "", 1),
        row("prime-never", vec![populated_as("prime-never", &READY)], 503, TIMEOUT, 10),
        row("prime-gone", vec![populated_as("prime-gone", &prime("prime-missing"))], 503,
            "rejecting Upload Request for PVC prime-gone, PVC&#39; wasn&#39;t created yet", 0),
        row("prime-untargeted", vec![populated_as("prime-untargeted", &prime("prime-bare"))], 503,
            "PVC prime-bare is not an upload target", 0),
        row("prime-finished", vec![populated_as("prime-finished", &prime("prime-done"))], 503,
            "rejecting Upload Request for PVC prime-finished that already finished uploading", 0),
        row("prime-waits", vec![populated_as("prime-waits", &prime("prime-later"))], 200, "", 2),
        row("prime-odd", vec![populated_as("prime-odd", &prime("prime-odd-content"))], 503,
            "rejecting upload request for PVC prime-odd-content - upload content-type tape is invalid", 0),
        row("other-group", vec![Answer::Object(other_group)], 200, "", 0),
        row("other-kind", vec![Answer::Object(other_kind)], 200, "", 0),
        row("nameless", vec![Answer::Object(nameless)], 200, "", 0),
    ];
    // The populated PVCs have no upload servers of their own.
    let names = ["prime-ready", "prime-later", "other-group", "other-kind", "nameless"];
    let cluster = Cluster::start(&names.map(service));
    let not_ready = [(UPLOAD_TARGET, ""), (POD_READY, "false")];
    for (name, annotations) in [
        ("prime-ready", vec![with(&[])]),
        ("prime-bare", vec![vec![]]),
        ("prime-done", vec![with(&[(POD_PHASE, "Succeeded")])]),
        ("prime-later", vec![not_ready.to_vec(), not_ready.to_vec(), with(&[])]),
        ("prime-odd-content", vec![with(&[(CONTENT_TYPE, "tape")])]),
    ] {
        let annotations: Vec<_> = annotations.iter().map(Vec::as_slice).collect();
        cluster.api.set_pvc(name, objects(name, &annotations));
    }
    check(&cluster, &rows);
}

#[test]
fn archives_are_recognised_by_the_annotation_of_the_pvc() {
    let names = ["image", "explicit", "tar", "prime-tar"];
    let cluster = Cluster::start(&names.map(service));
    for (name, content) in [("explicit", "kubevirt"), ("tar", "archive"), ("prime-tar", "archive")]
    {
        cluster.api.set_object(name, pvc(name, &with(&[(CONTENT_TYPE, content)])));
    }
    cluster.api.set_object("image", ready_pvc("image"));
    // The content type of the prime counts, not that of the PVC in the token.
    let populated_pvc =
        populated(pvc("populated", &[(PVC_PRIME, "prime-tar"), (CONTENT_TYPE, "tape")]));
    cluster.api.set_object("populated", populated_pvc);
    for api in ["v1beta1", "v1alpha1"] {
        for suffix in ["", "-async", "-form", "-form-async"] {
            let path = format!("/{api}/upload{suffix}");
            let archive = format!("/{api}/upload-archive");
            for (name, expected) in
                [("image", &path), ("explicit", &path), ("tar", &archive), ("populated", &archive)]
            {
                let response = cluster.post(name, &path);
                let line = format!("POST {expected} HTTP/1.1\r\n");
                assert!(response.text().starts_with(&line), "{name} by {path}: {response:?}");
            }
        }
    }
}

#[test]
#[ignore = "slow: waits 14 s"]
fn after_a_disconnect_the_pvc_is_not_read_for_longer_than_a_client_waits() {
    let cluster = Cluster::start(&[]);
    let not_ready = pvc("waits", &[(UPLOAD_TARGET, ""), (POD_READY, "false")]);
    cluster.api.set_object("waits", not_ready);
    let mut connection = cluster.server.connect();
    let request =
        Request::post("/v1beta1/upload").header("Authorization", &cluster.proxy.bearer("waits"));
    connection.begin(&request.length(1 << 20)).unwrap();
    // Time for two checks, which the proxy makes a second apart.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(cluster.api.reads_of("waits") > 0);
    drop(connection);
    std::thread::sleep(WAIT);
    let reads = cluster.api.reads_of("waits");
    // There is no event to wait for: the proxy may not read the PVC in this time.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(cluster.api.reads_of("waits"), reads, "the proxy still reads the PVC");
}
