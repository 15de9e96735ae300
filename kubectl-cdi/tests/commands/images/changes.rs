//! Changes of the images, and the way back.

use std::time::Duration;

use kubectl_cdi::cluster::images::{CdiOperator, ImagesGoal};
use kubectl_cdi::cluster::{Cluster, ClusterOptions};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{CdiScene, api, operator_env, path};

/// The images of a registry and a tag, in the order of the table.
fn ours(registry: &str, tag: &str) -> Vec<String> {
    let names = ["importer", "importer", "uploadserver", "uploadproxy", "cloner"];
    names.map(|name| format!("{registry}/cdi-{name}:{tag}")).to_vec()
}

/// Checks that images are set, set again and restored. `read` returns the object that is changed.
fn check_round_trip(scene: &CdiScene, read: impl Fn(&CdiScene) -> Value) {
    let (before, used) = (read(scene), scene.used());
    for (words, registry, tag) in [
        ("use localhost:5000 --timeout 60s", "localhost:5000", env!("CARGO_PKG_VERSION")),
        ("use ghcr.io/me/cdi-workers:0.2.0", "ghcr.io/me/cdi-workers", "0.2.0"),
        ("use ghcr.io/me/cdi-workers:0.2.0", "ghcr.io/me/cdi-workers", "0.2.0"),
    ] {
        let finished = scene.run(words);
        finished.assert_success(words);
        assert!(finished.stdout.ends_with("CDI uses these images\n"), "{}", finished.stdout);
        assert_eq!(scene.used(), ours(registry, tag), "{words}");
    }
    let shown = scene.run("").stdout;
    assert!(
        shown.contains("cloner           cdi-workers  ghcr.io/me/cdi-workers/cdi-cloner:0.2.0"),
        "{shown}"
    );
    assert!(shown.contains("`kubectl cdi images restore` restores"), "{shown}");
    for _ in 0..2 {
        scene.run("restore").assert_success("restore");
        assert_eq!(read(scene), before);
        assert_eq!(scene.used(), used);
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_plain_deployment_is_restored_as_it_was() {
    let applied = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}\n"});
    let scene = CdiScene::new("images-plain", &json!({"annotations": applied})).follow();
    check_round_trip(&scene, CdiScene::operator);
    let finished = scene.run("use r.io --vddk");
    finished.assert_success("use");
    let line = "  IMPORTER_IMAGE: quay.io/kubevirt/cdi-importer:v1.66.1 -> r.io/cdi-importer-vddk:0.1.0\n  \
                  OVIRT_POPULATOR_IMAGE: none -> r.io/cdi-importer:0.1.0\n";
    assert!(finished.stdout.contains(line), "{}", finished.stdout);
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_subscription_of_olm_is_restored_as_it_was() {
    let logs = json!({"config": {"env": [{"name": "VERBOSITY", "value": "3"}]}});
    for (namespace, spec) in [
        ("images-olm", json!({})),
        ("images-olm-config", json!({"config": {"resources": {}}})),
        ("images-olm-env", logs),
    ] {
        let scene = CdiScene::with_olm(namespace, "cdi", &spec).follow();
        check_round_trip(&scene, CdiScene::subscription);
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_release_of_helm_is_changed_with_a_warning() {
    // Helm sets these (helm, `pkg/action/validate.go`).
    let marks = json!({
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "cdi", "meta.helm.sh/release-namespace": "cdi"},
    });
    let scene = CdiScene::new("images-helm", &marks).follow();
    check_round_trip(&scene, CdiScene::operator);
    for (words, warns) in [("use r.io", true), ("restore", false)] {
        let stderr = scene.run(words).stderr;
        assert_eq!(stderr.contains("warning: `helm upgrade cdi` undoes this"), warns, "{stderr}");
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn an_upgrade_that_puts_images_back_is_reported() {
    let scene = CdiScene::new("images-upgrade", &json!({})).follow();
    scene.run("use r.io").assert_success("use");
    let upgrade = |version: &str| {
        let path = path(&scene.namespace, "cdi-operator");
        let mut containers =
            api().cluster.get(&path)["spec"]["template"]["spec"]["containers"].clone();
        containers[0]["env"] = operator_env(version);
        let spec = json!({"template": {"spec": {"containers": containers}}});
        api().cluster.patch(&path, &json!({"spec": spec}));
    };
    upgrade("v1.67.0");
    let upgraded = scene.run("");
    upgraded.assert_success("status");
    for warning in [
        "our images are known to work with CDI 1.62.0 to 1.66.1, not with v1.67.0",
        "has replaced the images of importer, ovirt-populator, uploadserver, uploadproxy, cloner: run",
    ] {
        assert!(upgraded.stderr.contains(warning), "{}", upgraded.stderr);
    }
    // The upgrade, and not the first version, is what `restore` goes back to.
    scene.run("use r.io").assert_success("use");
    scene.run("restore").assert_success("restore");
    let env = &scene.operator()["spec"]["template"]["spec"]["containers"][0]["env"];
    assert_eq!(*env, operator_env("v1.67.0"));
    scene.run("use r.io").assert_success("use");
    upgrade("v1.66.1");
    scene.run("restore").assert_success("restore");
    let operator = scene.operator();
    assert_eq!(
        operator["spec"]["template"]["spec"]["containers"][0]["env"],
        operator_env("v1.66.1")
    );
    assert_eq!(operator["metadata"]["annotations"], Value::Null);
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_killed_change_is_complete_or_absent_and_can_be_repeated() {
    let scene = CdiScene::new("images-killed", &json!({})).follow();
    let before = scene.operator();
    let kubeconfig = api().cluster.administrator();
    for words in ["use r.io:1.0.0", "use r.io:2.0.0", "restore"] {
        let old = scene.operator();
        let mut new = None;
        // Each attempt is killed later than the one before, until one ends by itself.
        for attempt in 0.. {
            let running = scene.program(words, kubeconfig.clone()).start();
            std::thread::sleep(Duration::from_millis(15 * attempt));
            running.signal(Signal::KILL);
            let finished = running.wait();
            let now = scene.operator();
            if now != old {
                let new = new.get_or_insert_with(|| now.clone());
                assert_eq!(now, *new, "{words} is complete, also when it is repeated");
            }
            if finished.code() == 0 {
                break;
            }
        }
        if words != "restore" {
            let tag = words.rsplit(':').next().unwrap();
            assert_eq!(scene.used(), ours("r.io", tag));
        }
    }
    assert_eq!(scene.operator(), before);
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_concurrent_change_is_not_overwritten() {
    let scene = CdiScene::new("images-race", &json!({}));
    let options = ClusterOptions {
        kubeconfig: Some(api().cluster.administrator()),
        ..ClusterOptions::default()
    };
    let cluster = Cluster::connect(&options).await.unwrap();
    let operator = CdiOperator::find(&cluster, Some(&scene.namespace)).await.unwrap();
    let goal = ImagesGoal::Use("r.io".parse().unwrap(), false);
    let path = path(&scene.namespace, "cdi-operator");
    // Other annotations and the status do not matter.
    api().cluster.patch(&path, &json!({"metadata": {"annotations": {"a": "b"}}}));
    api().cluster.patch(&format!("{path}/status"), &json!({"status": {"observedGeneration": 1}}));
    assert_eq!(operator.change(&goal, Some(true)).await.unwrap().lines.len(), 5);
    api().cluster.patch(&path, &json!({"spec": {"paused": true}}));
    let (changed, error) = (scene.operator(), operator.change(&goal, None).await.unwrap_err());
    let sentence =
        "another program has just changed deployment/cdi-operator in namespace images-race";
    assert!(error.to_string().starts_with(sentence), "{error}");
    assert_eq!(scene.operator(), changed);
}
