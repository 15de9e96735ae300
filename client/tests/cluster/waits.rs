//! Waiting, while the test does what CDI's controllers do.

use std::time::Duration;

use app::command_line::Failed;
use client::cluster::{Cluster, ClusterError, Found, Target};
use serde_json::{Value, json};

use crate::{PATIENCE, administrator, api, target, wanted};

/// What was told, and the end. Each step of the controllers is made when the wait says the sentence before it.
async fn wait(
    cluster: &Cluster,
    target: &Target,
    steps: &mut [(&str, &mut dyn FnMut())],
) -> Result<Found, ClusterError> {
    let mut steps = steps.iter_mut();
    let mut next = steps.next();
    let waited = cluster
        .wait_for_upload_ready(target, PATIENCE, |waiting| {
            let said = waiting.to_string();
            if let Some((sentence, step)) = &mut next
                && said.starts_with(*sentence)
            {
                step();
                next = steps.next();
            }
        })
        .await;
    assert!(
        next.is_none(),
        "never said: {:?}",
        next.map(|(sentence, _)| *sentence)
    );
    waited
}

fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

fn create_pod(namespace: &str, name: &str) {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "cdi-upload-server", "image": "example.org/cdi"}]},
    });
    api().create(&pods(namespace), &pod);
}

fn set_pod(namespace: &str, name: &str, status: &Value) {
    let path = format!("{}/{name}/status", pods(namespace));
    api().patch(&path, &json!({"status": status}));
}

fn container(state: &Value, ready: bool) -> Value {
    json!({"conditions": [{"type": "PodScheduled", "status": "True"}], "containerStatuses": [{
        "name": "cdi-upload-server", "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "state": state,
    }]})
}

fn warn(namespace: &str, kind: &str, name: &str, message: &str) {
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "test-"},
        "type": "Warning",
        "reason": "Odd",
        "message": message,
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"apiVersion": "v1", "kind": kind, "name": name, "namespace": namespace},
    });
    api().create(&format!("/api/v1/namespaces/{namespace}/events"), &event);
}

#[tokio::test]
async fn all_that_an_upload_pod_waits_for_is_said() {
    let (namespace, pod) = ("waits", "cdi-upload-disk");
    let cluster = administrator(namespace).await;
    cluster.create(&wanted("dv/disk")).await.unwrap();
    let waiting = |reason: &str, message: &str| {
        container(&json!({"waiting": {"reason": reason, "message": message}}), false)
    };
    let unschedulable = json!({"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available",
    }]});
    let found = wait(
        &cluster,
        &target("dv/disk"),
        &mut [
            ("waiting for CDI to make the claim", &mut || {
                api().create_upload_pvc(namespace, "disk", &[]);
            }),
            ("waiting for a volume for the claim", &mut || {
                warn(namespace, "PersistentVolumeClaim", "disk", "no pool \"fast\"");
            }),
            (
                "waiting for a volume for the claim: no pool \"fast\"",
                &mut || {
                    api().bind_pvc(namespace, "disk", "1Gi");
                },
            ),
            ("waiting for CDI to start the pod", &mut || {
                create_pod(namespace, pod);
                set_pod(namespace, pod, &unschedulable);
            }),
            (
                "waiting for a node for the pod: 0/3 nodes are available",
                &mut || {
                    set_pod(namespace, pod, &waiting("ContainerCreating", ""));
                    warn(namespace, "Pod", pod, "volume is in use elsewhere");
                },
            ),
            (
                "waiting for the pod to start: volume is in use elsewhere",
                &mut || {
                    set_pod(namespace, pod, &waiting("ImagePullBackOff", "Back-off pulling"));
                },
            ),
            ("waiting for the pod's image: Back-off pulling", &mut || {
                let mut status = waiting("CrashLoopBackOff", "back-off 10s");
                let end = json!({"exitCode": 1, "message": "no TLS key"});
                status["containerStatuses"][0]["lastState"] = json!({"terminated": end});
                set_pod(namespace, pod, &status);
            }),
            ("the pod has failed and is tried again: no TLS key", &mut || {
                set_pod(namespace, pod, &container(&json!({"running": {}}), false));
            }),
            ("waiting for the pod to be ready", &mut || {
                api().annotate_pvc(namespace, "disk", "storage.pod.ready", Some("true"));
                api().set_data_volume_status(namespace, "disk", &json!({"phase": "UploadReady"}));
            }),
        ],
    )
    .await
    .unwrap();
    assert_eq!(found.phase(), Some("UploadReady"));
    let uid = found.claim_uid(&target("dv/disk"));
    assert!(uid.unwrap().is_some());
}

#[tokio::test]
async fn a_populator_fills_another_claim() {
    let namespace = "prime";
    let cluster = administrator(namespace).await;
    cluster.create(&wanted("dv/disk")).await.unwrap();
    api().create_pvc(namespace, "disk", &[("storage.populator.pvcPrime", "prime-1")]);
    api().create_upload_pvc(
        namespace,
        "prime-1",
        &[("storage.uploadPodName", "cdi-upload-prime-1")],
    );
    api().bind_pvc(namespace, "prime-1", "1Gi");
    let sentence = "waiting for the pod to be ready";
    create_pod(namespace, "cdi-upload-prime-1");
    set_pod(
        namespace,
        "cdi-upload-prime-1",
        &container(&json!({"running": {}}), false),
    );
    let mut ready = || api().annotate_pvc(namespace, "disk", "storage.pod.ready", Some("true"));
    wait(&cluster, &target("dv/disk"), &mut [(sentence, &mut ready)])
        .await
        .unwrap();
}

#[tokio::test]
async fn a_first_consumer_is_asked_for() {
    let namespace = "consumer";
    let cluster = administrator(namespace).await;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "later", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.org/later",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    api().create("/apis/storage.k8s.io/v1/storageclasses", &class);
    assert_eq!(cluster.default_storage_class().await.as_deref(), Some("later"));
    let lazy = client::cluster::Wanted {
        storage_class: Some("later".to_owned()),
        ..wanted("pvc/disk")
    };
    cluster.create(&lazy).await.unwrap();
    let sentence = "pvc/disk waits for its first consumer: start the VM, or give --force-bind";
    let mut ready = || api().annotate_pvc(namespace, "disk", "storage.pod.ready", Some("true"));
    wait(&cluster, &target("pvc/disk"), &mut [(sentence, &mut ready)])
        .await
        .unwrap();
    // Of a DataVolume CDI says it itself.
    cluster.create(&wanted("dv/other")).await.unwrap();
    api().set_data_volume_status(namespace, "other", &json!({"phase": "WaitForFirstConsumer"}));
    let sentence = "dv/other waits for its first consumer: start the VM, or give --force-bind";
    let mut ready = || api().set_data_volume_status(namespace, "other", &json!({"phase": "UploadReady"}));
    wait(&cluster, &target("dv/other"), &mut [(sentence, &mut ready)])
        .await
        .unwrap();
    api().delete("/apis/storage.k8s.io/v1/storageclasses/later");
}

#[tokio::test]
async fn a_wait_ends_with_the_reason() {
    let namespace = "ends";
    let cluster = administrator(namespace).await;
    let dv = target("dv/disk");
    let patience = Duration::from_millis(10);
    let wait = || cluster.wait_for_upload_ready(&dv, patience, |_| ());
    assert!(matches!(wait().await, Err(ClusterError::Gone(_))));
    cluster.create(&wanted("dv/disk")).await.unwrap();
    let said = wait().await.unwrap_err().to_string();
    assert_eq!(
        said,
        "dv/disk is not there after 0 s: waiting for CDI to make the claim; give a longer --timeout, or look at: \
         kubectl cdi status dv/disk"
    );
    let quota = json!({"type": "Bound", "status": "Unknown", "reason": "ErrExceededQuota", "message": "exceeded quota: q"});
    api().set_data_volume_status(
        namespace,
        "disk",
        &json!({"phase": "Pending", "conditions": [quota]}),
    );
    let error = wait().await.unwrap_err();
    assert!(
        matches!(&error, ClusterError::Quota(words) if words == "exceeded quota: q"),
        "{error}"
    );
    assert_eq!(error.exit().code(), 5);
    api().set_data_volume_status(
        namespace,
        "disk",
        &json!({"phase": "Succeeded", "conditions": null}),
    );
    assert!(matches!(wait().await, Err(ClusterError::Filled(_))));
}

#[tokio::test]
async fn after_the_bytes_the_end_of_the_pod_is_waited_for() {
    let namespace = "done";
    let cluster = administrator(namespace).await;
    cluster.create(&wanted("pvc/disk")).await.unwrap();
    api().bind_pvc(namespace, "disk", "1Gi");
    create_pod(namespace, "cdi-upload-disk");
    set_pod(
        namespace,
        "cdi-upload-disk",
        &container(&json!({"running": {}}), true),
    );
    let (mut told, pvc) = (Vec::new(), target("pvc/disk"));
    let done = cluster.wait_for_done(&pvc, PATIENCE, |waiting| {
        told.push(waiting.to_string());
        api().annotate_pvc(namespace, "disk", "storage.pod.phase", Some("Succeeded"));
    });
    done.await.unwrap();
    assert_eq!(told, ["waiting for the pod to finish"]);
}

#[tokio::test]
async fn a_data_volume_that_is_collected_as_garbage_has_succeeded() {
    let namespace = "garbage";
    let cluster = administrator(namespace).await;
    let dv = target("dv/disk");
    api().create_upload_pvc(namespace, "disk", &[]);
    let gone = cluster.wait_for_done(&dv, PATIENCE, |_| ()).await;
    assert!(matches!(gone, Err(ClusterError::Gone(_))), "{gone:?}");
    api().annotate_pvc(namespace, "disk", "storage.pod.phase", Some("Succeeded"));
    cluster.wait_for_done(&dv, PATIENCE, |_| ()).await.unwrap();
    cluster.follow(&dv, PATIENCE, |_| ()).await.unwrap();
}

#[tokio::test]
async fn an_import_is_followed_to_its_end() {
    let namespace = "follow";
    let cluster = administrator(namespace).await;
    api().create_data_volume(
        namespace,
        "disk",
        &json!({"http": {"url": "https://example.org/d"}}),
    );
    let running = |progress: &str, restarts: u32, message: &str| {
        json!({"phase": "ImportInProgress", "progress": progress, "restartCount": restarts,
               "conditions": [{"type": "Running", "message": message}]})
    };
    let steps = [
        running("N/A", 0, "Pod is running"),
        running("45.20%", 0, "Pod is running"),
        running("45.20%", 1, "Unable to connect to http data source"),
        json!({"phase": "Succeeded", "progress": "100.0%", "conditions": [{"type": "Running", "message": "Import Complete"}]}),
    ];
    let mut next = steps.iter();
    let (mut told, dv) = (Vec::new(), target("dv/disk"));
    let followed = cluster.follow(&dv, PATIENCE, |progress| {
        told.push(progress.to_string());
        if let Some(status) = next.next() {
            api().set_data_volume_status(namespace, "disk", status);
        }
    });
    followed.await.unwrap();
    assert_eq!(
        told,
        [
            "Pending: waiting for CDI to make the claim",
            "ImportInProgress: Pod is running",
            "ImportInProgress 45.20 %: Pod is running",
            "ImportInProgress 45.20 %, restarted once: Unable to connect to http data source",
            "Succeeded 100.00 %, restarted once: Import Complete",
        ]
    );
    let failed = json!({"phase": "Failed", "conditions": [
        {"type": "Running", "reason": "ChecksumError", "message": "checksum mismatch: expected sha256:ab"},
    ]});
    api().set_data_volume_status(namespace, "disk", &failed);
    let error = cluster.follow(&dv, PATIENCE, |_| ()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "dv/disk has failed: checksum mismatch: expected sha256:ab"
    );
    assert_eq!(error.exit().code(), 6);
}

#[tokio::test]
async fn a_wait_outlives_the_api_server() {
    let api = testkit::cluster::Cluster::start();
    api.create_namespace("default");
    api.create_upload_pvc("default", "disk", &[]);
    let cluster = crate::connect(api.administrator(), "default").await;
    api.stop_api();
    let (mut told, pvc) = (Vec::new(), target("pvc/disk"));
    let ready = cluster.wait_for_upload_ready(&pvc, PATIENCE, |waiting| {
        told.push(waiting.to_string());
        if told.len() == 1 {
            api.restart_api();
            api.annotate_pvc("default", "disk", "storage.pod.ready", Some("true"));
        }
    });
    ready.await.unwrap();
    assert!(told[0].contains("cannot be reached"), "{told:?}");
}
