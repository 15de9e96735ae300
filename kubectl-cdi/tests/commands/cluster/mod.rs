//! Requests to the cluster, against a real API server. The tests act as CDI's controllers.

mod imports;
mod reach;
mod status;
mod volumes;
mod waits;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use kubectl_cdi::cluster::{
    Cluster, ClusterOptions, ContentSource, VolumeOptions, VolumeTarget, WantedVolume,
};
use serde_json::{Value, json};
use testkit::fail::OrFail;

/// Longer than any step of a test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the cluster of all tests except those that need one without CDI. Each test has its own
/// namespace.
pub(crate) fn api() -> &'static testkit::cluster::Cluster {
    static API: OnceLock<testkit::cluster::Cluster> = OnceLock::new();
    API.get_or_init(|| {
        let api = testkit::cluster::Cluster::start();
        api.install_cdi();
        api.install_data_volumes();
        api
    })
}

/// Connects as the administrator, to a new namespace.
async fn administrator(namespace: &str) -> Cluster {
    api().create_namespace(namespace);
    connect(api().administrator(), namespace).await
}

async fn connect(kubeconfig: PathBuf, namespace: &str) -> Cluster {
    let reach = ClusterOptions {
        kubeconfig: Some(kubeconfig),
        context: None,
        namespace: Some(namespace.to_owned()),
    };
    Cluster::connect(&reach).await.or_fail("a way to the cluster")
}

fn target(text: &str) -> VolumeTarget {
    text.parse().or_fail(text)
}

fn pod_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// Creates a pod as CDI's controllers do.
fn create_pod(namespace: &str, name: &str) {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "containerized-data-importer"}},
        "spec": {"containers": [{"name": "cdi-upload-server", "image": "example.org/cdi"}]},
    });
    api().create(pod_path(namespace, "").trim_end_matches('/'), &pod);
}

fn set_pod(namespace: &str, name: &str, status: &Value) {
    api().patch(&format!("{}/status", pod_path(namespace, name)), &json!({"status": status}));
}

/// Records an event of this type, reason and message about an object.
fn record(
    namespace: &str,
    (kind, name): (&str, &str),
    (level, reason, message): (&str, &str, &str),
    time: &str,
) {
    let plural = format!("{}s", kind.to_lowercase());
    let about = api().get(&format!("/api/v1/namespaces/{namespace}/{plural}/{name}"));
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "test-"},
        "type": level,
        "reason": reason,
        "message": message,
        "lastTimestamp": time,
        "involvedObject": {
            "apiVersion": "v1", "kind": kind, "name": name, "namespace": namespace, "uid": about["metadata"]["uid"],
        },
    });
    api().create(&format!("/api/v1/namespaces/{namespace}/events"), &event);
}

/// Describes a volume for an upload of a disk of 1 GiB.
fn wanted(text: &str) -> WantedVolume {
    WantedVolume {
        target: target(text),
        source: ContentSource::Upload,
        size_bytes: 1 << 30,
        archive: false,
        options: VolumeOptions::default(),
    }
}
