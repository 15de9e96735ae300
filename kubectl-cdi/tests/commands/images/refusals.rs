//! Changes that are refused, or do not come into effect.

use serde_json::json;
use testkit::cluster::users::Right;

use super::{CdiScene, api, path};

#[test]
#[ignore = "server: Kubernetes"]
fn missing_rights_are_named_before_a_change() {
    let plain = CdiScene::new("images-rights", &json!({}));
    let olm = CdiScene::with_olm("images-rights-olm", "cdi", &json!({}));
    let read: Right<'_> = ("apps", "deployments", &["get", "list"]);
    let subscriptions: Right<'_> = ("operators.coreos.com", "subscriptions", &["list"]);
    for (name, rights, scene, sentence) in [
        (
            "images-a",
            vec![read],
            &plain,
            "you may not patch deployments.apps in namespace images-rights:",
        ),
        ("images-b", vec![read], &olm, "you may not list subscriptions.operators.coreos.com in"),
        (
            "images-c",
            vec![read, subscriptions],
            &olm,
            "you may not patch subscriptions.operators.coreos.com in namespace images-rights-olm:",
        ),
    ] {
        let (user, before) = (api().cluster.user(name, &rights), scene.operator());
        for words in ["use r.io", "use r.io --dry-run client"] {
            scene.program(words, user.clone()).run().assert_failure(7, sentence);
        }
        assert_eq!(scene.operator(), before);
    }
    // The documented rights suffice.
    let change: Right<'_> = ("apps", "deployments", &["get", "list", "patch"]);
    let subscriptions: Right<'_> = ("operators.coreos.com", "subscriptions", &["list", "patch"]);
    let user = api().cluster.user("images-d", &[change, subscriptions]);
    for scene in [&plain, &olm] {
        scene.program("use r.io --dry-run server", user.clone()).run().assert_success("server");
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_dry_run_changes_nothing() {
    let scene = CdiScene::new("images-dry", &json!({}));
    let before = scene.operator();
    for place in ["client", "server"] {
        let finished = scene.run(&format!("use r.io --dry-run={place}"));
        finished.assert_success(place);
        let line = "deployment/cdi-operator would change:\n  IMPORTER_IMAGE: quay.io/kubevirt/cdi-importer:v1.66.1 -> r.io/cdi-importer:";
        assert!(finished.stdout.starts_with(line), "{}", finished.stdout);
    }
    assert_eq!(scene.operator(), before);
    scene.run("use r.io@sha256:00").assert_failure(2, "each image has its own digest: give a tag");
    scene.run("use r.io --output json").assert_failure(2, "--output is only for");
}

#[test]
#[ignore = "server: Kubernetes"]
fn the_reason_to_wait_is_in_the_error() {
    let scene = CdiScene::new("images-stuck", &json!({}));
    let waiting =
        "CDI does not use the images after 1 s: waiting for the pods of deployment/cdi-operator";
    scene.run("use r.io --timeout 1s").assert_failure(7, waiting);
    let cluster = &api().cluster;
    let pods = "/api/v1/namespaces/images-stuck/pods";
    let labels = json!({"cdi.kubevirt.io": "cdi-operator"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "labels": labels},
        "spec": {"containers": [{"name": "cdi-operator", "image": "i"}]},
    });
    cluster.create(pods, &pod);
    let state = json!({"waiting": {"reason": "ErrImagePull", "message": "no such tag"}});
    let container = json!({"name": "cdi-operator", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
    cluster.patch(
        &format!("{pods}/new/status"),
        &json!({"status": {"containerStatuses": [container]}}),
    );
    let waiting = "deployment/cdi-operator: waiting for the pod's image: no such tag; give a longer --timeout";
    scene.run("use r.io --timeout 1s").assert_failure(7, waiting);
    let damaged = json!({"metadata": {"annotations": {"kubectl-cdi/images-before": "{"}}});
    cluster.patch(&path("images-stuck", "cdi-operator"), &damaged);
    scene.run("restore").assert_failure(7, "of deployment/cdi-operator is damaged: remove it");
}
