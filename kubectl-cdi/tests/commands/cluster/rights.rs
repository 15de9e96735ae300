//! Missing rights: the error names the verb and the resource.

use std::time::Duration;

use kubectl_cdi::cluster::{Cluster, ClusterError};
use serde_json::json;
use testkit::cluster::users::Right;
use testkit::fail::OrFail;

use crate::cluster::{PATIENCE, api, connect, target, wanted};

const CDI: &str = "cdi.kubevirt.io";

async fn user(name: &str, rights: &[Right<'_>]) -> Cluster {
    api().create_namespace(name);
    connect(api().user(name, rights), name).await
}

#[track_caller]
fn denied<T>(asked: Result<T, ClusterError>, what: &str) {
    let said = asked.err().or_fail("not denied").to_string();
    assert!(said.starts_with(&format!("you may not {what}: ")), "{said}");
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn without_any_right_each_request_names_the_missing_one() {
    let cluster = user("rightless", &[]).await;
    let (dv, pvc) = (target("dv/disk"), target("pvc/disk"));
    denied(
        cluster.create_volume(&wanted("dv/disk")).await,
        "create datavolumes.cdi.kubevirt.io in namespace rightless",
    );
    denied(
        cluster.create_volume(&wanted("pvc/disk")).await,
        "create persistentvolumeclaims in namespace rightless",
    );
    denied(
        cluster.find_target(&dv).await,
        "get datavolumes.cdi.kubevirt.io in namespace rightless",
    );
    denied(cluster.find_target(&pvc).await, "get persistentvolumeclaims in namespace rightless");
    denied(
        cluster.remove_volume(&dv, &"uid".parse().unwrap()).await,
        "delete datavolumes.cdi.kubevirt.io in namespace rightless",
    );
    denied(
        cluster.request_token("disk").await,
        "create uploadtokenrequests.upload.cdi.kubevirt.io in namespace rightless",
    );
    denied(
        cluster.list_status(None).await,
        "list datavolumes.cdi.kubevirt.io in namespace rightless",
    );
    denied(
        cluster.wait_for_upload_ready(&pvc, PATIENCE, |_| ()).await,
        "get persistentvolumeclaims in namespace rightless",
    );
    // CDI lets everybody read its configuration, and completion ignores errors.
    cluster.cdi_config().await.unwrap();
    assert_eq!(cluster.list_targets().await, []);
    assert!(!cluster.is_xfs(None).await);
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn without_rights_on_pods_the_wait_has_less_detail() {
    let rights: [Right<'_>; 2] =
        [(CDI, "datavolumes", &["get", "list"]), ("", "persistentvolumeclaims", &["get", "list"])];
    let cluster = user("blind", &rights).await;
    api().create_data_volume("blind", "disk", &json!({"upload": {}}));
    api().create_pvc("blind", "disk", &[("storage.upload.target", "")]);
    let mut told = Vec::new();
    let patience = Duration::from_millis(100);
    let waited = cluster
        .wait_for_upload_ready(&target("dv/disk"), patience, |waiting| {
            told.push(waiting.to_string())
        })
        .await;
    assert!(matches!(waited, Err(ClusterError::TimedOut { .. })), "{waited:?}");
    assert_eq!(told, ["waiting for a volume for the claim"]);
    api().bind_pvc("blind", "disk", "1Gi");
    let waited = cluster.wait_for_upload_ready(&target("dv/disk"), patience, |_| ()).await;
    let said = waited.unwrap_err().to_string();
    assert!(said.contains("waiting for CDI to start the pod"), "{said}");
    assert_eq!(cluster.list_status(None).await.unwrap().len(), 1);
}
