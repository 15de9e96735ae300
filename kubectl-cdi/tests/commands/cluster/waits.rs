//! Waiting; the test acts as CDI's controllers.

use std::time::Duration;

use kubectl_cdi::PluginError;
use kubectl_cdi::cluster::{Cluster, TargetObjects, VolumeTarget, WaitGoal, status};
use program::command_line::FailedCommand;
use serde_json::{Value, json};

use crate::cluster::{
    PATIENCE, administrator, api, create_pod, pod_path, record, set_pod, target, wanted,
};

/// The time of an event.
const EARLY: &str = "2026-01-01T00:00:00Z";

/// Waits for the target. Each of `steps` runs when the wait reports its sentence, and all of them
/// must run.
async fn wait(
    cluster: &Cluster,
    target: &VolumeTarget,
    steps: &mut [(&str, &mut dyn FnMut())],
) -> Result<TargetObjects, PluginError> {
    let mut steps = steps.iter_mut();
    let mut next = steps.next();
    let waited = cluster
        .wait_for_goal(target, WaitGoal::Ready, PATIENCE, |waiting| {
            let said = waiting.to_string();
            if let Some((sentence, step)) = &mut next
                && said.starts_with(*sentence)
            {
                step();
                next = steps.next();
            }
        })
        .await;
    assert!(next.is_none(), "not reported: {:?}", next.map(|(sentence, _)| *sentence));
    waited
}

fn container(state: &Value, ready: bool) -> Value {
    json!({"conditions": [{"type": "PodScheduled", "status": "True"}], "containerStatuses": [{
        "name": "cdi-upload-server", "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "state": state,
    }]})
}

fn warn(namespace: &str, kind: &str, name: &str, message: &str) {
    record(namespace, (kind, name), ("Warning", "Odd", message), EARLY);
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn everything_that_an_upload_pod_waits_for_is_reported() {
    let (namespace, pod) = ("waits", "cdi-upload-disk");
    let cluster = administrator(namespace).await;
    cluster.create_volume(&wanted("dv/disk")).await.unwrap();
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
            ("waiting for CDI to create the claim", &mut || {
                api().create_upload_pvc(namespace, "disk", &[]);
            }),
            ("waiting for a volume for the claim", &mut || {
                warn(namespace, "PersistentVolumeClaim", "disk", "no pool \"fast\"");
            }),
            ("waiting for a volume for the claim: no pool \"fast\"", &mut || {
                api().bind_pvc(namespace, "disk", "1Gi");
            }),
            ("waiting for CDI to start the pod", &mut || {
                create_pod(namespace, pod);
                set_pod(namespace, pod, &unschedulable);
            }),
            ("waiting for a node for the pod: 0/3 nodes are available", &mut || {
                set_pod(namespace, pod, &waiting("ContainerCreating", ""));
                warn(namespace, "Pod", pod, "volume is in use elsewhere");
            }),
            ("waiting for the pod to start: volume is in use elsewhere", &mut || {
                set_pod(namespace, pod, &waiting("ImagePullBackOff", "Back-off pulling"));
            }),
            ("waiting for the pod's image: Back-off pulling", &mut || {
                let mut status = waiting("CrashLoopBackOff", "back-off 10s");
                let end = json!({"exitCode": 1, "message": "no TLS key"});
                status["containerStatuses"][0]["lastState"] = json!({"terminated": end});
                set_pod(namespace, pod, &status);
            }),
            ("the pod has failed and is being retried: no TLS key", &mut || {
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
#[ignore = "server: Kubernetes"]
async fn the_pod_of_a_populators_claim_is_watched() {
    let namespace = "prime";
    let cluster = administrator(namespace).await;
    cluster.create_volume(&wanted("dv/disk")).await.unwrap();
    api().create_pvc(namespace, "disk", &[("storage.populator.pvcPrime", "prime-1")]);
    api().create_upload_pvc(
        namespace,
        "prime-1",
        &[("storage.uploadPodName", "cdi-upload-prime-1")],
    );
    api().bind_pvc(namespace, "prime-1", "1Gi");
    let sentence = "waiting for the pod to be ready";
    create_pod(namespace, "cdi-upload-prime-1");
    set_pod(namespace, "cdi-upload-prime-1", &container(&json!({"running": {}}), false));
    let mut ready = || api().annotate_pvc(namespace, "disk", "storage.pod.ready", Some("true"));
    wait(&cluster, &target("dv/disk"), &mut [(sentence, &mut ready)]).await.unwrap();
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_missing_first_consumer_is_reported() {
    let namespace = "consumer";
    let cluster = administrator(namespace).await;
    let table = async || status::format_table(&cluster.list_status(None).await.unwrap());
    // For a claim only an event reports that, with any kind of class.
    cluster.create_volume(&wanted("pvc/disk")).await.unwrap();
    let about = ("PersistentVolumeClaim", "disk");
    let waits = (
        "Normal",
        "WaitForFirstConsumer",
        "waiting for first consumer to be created before binding",
    );
    record(namespace, about, waits, EARLY);
    let sentence = "pvc/disk waits for its first consumer: start the VM, or give --force-bind";
    assert!(table().await.contains(sentence), "{}", table().await);
    let scheduled = ("Normal", "WaitForPodScheduled", "waiting for pod vm to be scheduled");
    let mut consumed = || record(namespace, about, scheduled, "2026-01-01T00:00:01Z");
    let mut ready = || api().annotate_pvc(namespace, "disk", "storage.pod.ready", Some("true"));
    wait(
        &cluster,
        &target("pvc/disk"),
        &mut [(sentence, &mut consumed), ("waiting for a volume for the claim", &mut ready)],
    )
    .await
    .unwrap();
    // For a DataVolume CDI itself reports it, with and without a CSI driver.
    for (name, phase) in [("csi", "PendingPopulation"), ("other", "WaitForFirstConsumer")] {
        let dv = target(&format!("dv/{name}"));
        cluster.create_volume(&wanted(&dv.to_string())).await.unwrap();
        api().create_pvc(namespace, name, &[]);
        api().set_data_volume_status(namespace, name, &json!({"phase": phase}));
        let sentence =
            format!("{dv} waits for its first consumer: start the VM, or give --force-bind");
        assert!(table().await.contains(&sentence), "{}", table().await);
        let mut import_said = false;
        let followed = cluster.follow_import(&dv, Duration::from_millis(10), |progress| {
            import_said |= progress.to_string().contains(&sentence);
        });
        assert!(followed.await.unwrap_err().to_string().contains("is not ready after"));
        assert!(import_said, "{sentence}");
        let mut ready =
            || api().set_data_volume_status(namespace, name, &json!({"phase": "UploadReady"}));
        wait(&cluster, &dv, &mut [(&sentence, &mut ready)]).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_claim_that_cannot_be_created_ends_the_wait() {
    let namespace = "no-claim";
    let cluster = administrator(namespace).await;
    let words = "PVC spec is missing accessMode and no storageClass to choose profile";
    let refused = json!({"phase": "", "conditions": [
        {"type": "Bound", "status": "False", "reason": "ErrClaimNotValid", "message": words},
    ]});
    cluster.create_volume(&wanted("dv/disk")).await.unwrap();
    api().set_data_volume_status(namespace, "disk", &refused);
    let dv = target("dv/disk");
    let said = format!("dv/disk is not getting a volume: {words}; check --storage-class");
    for error in [
        cluster.wait_for_goal(&dv, WaitGoal::Ready, PATIENCE, |_| ()).await.unwrap_err(),
        cluster.follow_import(&dv, PATIENCE, |_| ()).await.unwrap_err(),
    ] {
        assert!(error.to_string().starts_with(&said), "{error}");
        assert_eq!(error.exit_reason().exit_code(), 7);
    }
    // The claim was created later, so the condition is outdated.
    api().create_pvc(namespace, "disk", &[("storage.pod.ready", "true")]);
    cluster.wait_for_goal(&dv, WaitGoal::Ready, PATIENCE, |_| ()).await.unwrap();
    // Kubernetes looks for the storage class of a claim.
    let words = "storageclass.storage.k8s.io \"nope\" not found";
    let pvc = target("pvc/claim");
    cluster.create_volume(&wanted("pvc/claim")).await.unwrap();
    let event = ("Warning", "ProvisioningFailed", words);
    record(namespace, ("PersistentVolumeClaim", "claim"), event, EARLY);
    for error in [
        cluster.wait_for_goal(&pvc, WaitGoal::Ready, PATIENCE, |_| ()).await.unwrap_err(),
        cluster.follow_import(&pvc, PATIENCE, |_| ()).await.unwrap_err(),
    ] {
        let said = format!("{pvc} is not getting a volume: {words}; ");
        assert!(error.to_string().starts_with(&said), "{error}");
    }
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_wait_ends_with_its_reason() {
    let namespace = "ends";
    let cluster = administrator(namespace).await;
    let dv = target("dv/disk");
    let patience = Duration::from_millis(10);
    let wait = || cluster.wait_for_goal(&dv, WaitGoal::Ready, patience, |_| ());
    assert!(wait().await.unwrap_err().to_string().contains("has been deleted"));
    cluster.create_volume(&wanted("dv/disk")).await.unwrap();
    let said = wait().await.unwrap_err().to_string();
    assert_eq!(
        said,
        "dv/disk is not ready after 0 s: waiting for CDI to create the claim; give a longer --timeout, or look at: kubectl cdi status \
         dv/disk"
    );
    api().set_data_volume_status(namespace, "disk", &json!({"phase": "Succeeded"}));
    assert!(wait().await.unwrap_err().to_string().contains("is already filled"));
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn after_the_upload_the_end_of_the_pod_is_waited_for() {
    let (namespace, name) = ("done", "cdi-upload-disk");
    let cluster = administrator(namespace).await;
    cluster.create_volume(&wanted("pvc/disk")).await.unwrap();
    api().bind_pvc(namespace, "disk", "1Gi");
    create_pod(namespace, name);
    let stale = (
        "Warning",
        "FailedScheduling",
        "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
    );
    record(namespace, ("Pod", name), stale, EARLY);
    // The pod has been scheduled meanwhile, and starts.
    let starting = container(&json!({"waiting": {"reason": "ContainerCreating"}}), false);
    set_pod(namespace, name, &starting);
    let (mut starts, pvc) = (Vec::new(), target("pvc/disk"));
    let waited =
        cluster.wait_for_goal(&pvc, WaitGoal::Ready, Duration::from_millis(10), |waiting| {
            starts.push(waiting.to_string());
        });
    waited.await.unwrap_err();
    assert_eq!(starts, ["waiting for the pod to start"]);
    set_pod(namespace, name, &container(&json!({"running": {}}), true));
    let changes = async {
        // The cluster is queried once a second.
        let wait = || tokio::time::sleep(Duration::from_millis(1100));
        wait().await;
        set_pod(namespace, name, &container(&json!({"running": {}}), false));
        wait().await;
        set_pod(namespace, name, &container(&json!({"terminated": {"exitCode": 0}}), false));
        wait().await;
        api().delete(&format!("{}?gracePeriodSeconds=0", pod_path(namespace, name)));
        wait().await;
        api().annotate_pvc(namespace, "disk", "storage.pod.phase", Some("Succeeded"));
    };
    let mut told = Vec::new();
    let done = cluster
        .wait_for_goal(&pvc, WaitGoal::Filled, PATIENCE, |waiting| told.push(waiting.to_string()));
    let (done, ()) = tokio::join!(done, changes);
    done.unwrap();
    assert_eq!(told, ["waiting for the pod to finish"]);
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_garbage_collected_data_volume_counts_as_succeeded() {
    let namespace = "garbage";
    let cluster = administrator(namespace).await;
    let dv = target("dv/disk");
    api().create_upload_pvc(namespace, "disk", &[]);
    let gone = cluster
        .wait_for_goal(&dv, WaitGoal::Filled, PATIENCE, |_| ())
        .await
        .unwrap_err()
        .to_string();
    assert!(gone.contains("has been deleted"), "{gone}");
    api().annotate_pvc(namespace, "disk", "storage.pod.phase", Some("Succeeded"));
    cluster.wait_for_goal(&dv, WaitGoal::Filled, PATIENCE, |_| ()).await.unwrap();
    cluster.follow_import(&dv, PATIENCE, |_| ()).await.unwrap();
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_wait_survives_an_outage_of_the_api_server() {
    let api = testkit::cluster::Cluster::start();
    api.create_namespace("default");
    api.create_upload_pvc("default", "disk", &[]);
    let cluster = crate::cluster::connect(api.administrator(), "default").await;
    api.stop_api();
    let (mut told, pvc) = (Vec::new(), target("pvc/disk"));
    let ready = cluster.wait_for_goal(&pvc, WaitGoal::Ready, PATIENCE, |waiting| {
        told.push(waiting.to_string());
        if told.len() == 1 {
            api.restart_api();
            api.annotate_pvc("default", "disk", "storage.pod.ready", Some("true"));
        }
    });
    ready.await.unwrap();
    assert!(told[0].contains("cannot be reached"), "{told:?}");
}
