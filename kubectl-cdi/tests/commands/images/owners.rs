//! Owners of the operator that would undo a change: the command prints what to put where.

use serde_json::{Value, json};

use super::{CdiScene, api, create_deployment, operator_env};
use crate::BINARY;
use testkit::process::Program;

/// Checks that `use` prints lines that begin with `head`, and changes nothing.
fn check_lines(scene: &CdiScene, read: impl Fn() -> Value, head: &str) {
    let before = read();
    let refused = scene.run("use r.io/x:1");
    refused.assert_failure(7, "nothing was changed: that would be undone");
    let lines = refused.stdout.strip_prefix("# Put these lines into ").unwrap_or_default();
    assert!(lines.starts_with(head) && lines.contains("r.io/x/cdi-cloner"), "{}", refused.stdout);
    let planned = scene.run("use r.io/x:1 --dry-run client");
    planned.assert_success("--dry-run");
    assert_eq!(planned.stdout, refused.stdout);
    let back = scene.run("restore");
    back.assert_failure(7, "nothing was changed");
    assert!(back.stdout.starts_with("# Remove the lines about images from "), "{}", back.stdout);
    assert_eq!(read(), before);
}

#[test]
#[ignore = "server: Kubernetes"]
fn programs_that_undo_changes_get_lines() {
    // Set by Fleet on objects of Harvester's chart: harvester-installer's
    // `rancherd-10-harvester.yaml` names the release and the namespace.
    let harvester = json!({"annotations": {
        "meta.helm.sh/release-name": "harvester", "meta.helm.sh/release-namespace": "harvester-system",
        "objectset.rio.cattle.io/id": "default-mcc-harvester-cattle-fleet-local-system",
    }});
    // Set by Flux's helm-controller; the Makefile of Cozystack's kubevirt-cdi-operator has the
    // namespace.
    let flux = |namespace: &str| {
        json!({"labels": {
            "helm.toolkit.fluxcd.io/name": "kubevirt-cdi-operator",
            "helm.toolkit.fluxcd.io/namespace": namespace,
            "app.kubernetes.io/managed-by": "Helm",
        }})
    };
    let argo = json!({"annotations": {"argocd.argoproj.io/tracking-id": "cdi:apps/Deployment"}});
    for (namespace, marks, head) in [
        (
            "images-harvester",
            harvester,
            "managedchart/harvester in namespace fleet-local:\nspec:\n  values:\n    cdi:\n      containers:\n        \
               importer:\n          image:\n            repository: r.io/x/cdi-importer\n            tag: \"1\"\n",
        ),
        (
            "images-cozystack",
            flux("cozy-kubevirt-cdi"),
            "packages/system/kubevirt-cdi-operator/templates/cdi-operator.yaml of Cozystack:\nspec:\n  template:\n    spec:\n      \
               containers:\n      - name: cdi-operator\n        env:\n        - name: IMPORTER_IMAGE\n          value: r.io/x/cdi-importer:1\n",
        ),
        (
            "images-flux",
            flux("cdi"),
            "Flux's helmrelease/kubevirt-cdi-operator:\nspec:\n  postRenderers:\n",
        ),
        (
            "images-kustomize",
            json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "cdi"}}),
            "the source of Flux's kustomization/cdi:\nspec:\n  template:\n",
        ),
        ("images-argo", argo, "the source of Argo CD's application cdi:apps/Deployment:\nspec:\n"),
        (
            "images-olm1",
            json!({"labels": {"olm.operatorframework.io/owner-name": "cdi"}}),
            "clusterextension/cdi:\nspec:\n  config:\n    configType: Inline\n",
        ),
    ] {
        let scene = CdiScene::new(namespace, &marks);
        check_lines(&scene, || scene.operator(), head);
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn subscriptions_of_others_get_lines() {
    let scene = CdiScene::with_olm("images-hco", "community-kubevirt-hyperconverged", &json!({}));
    let lines = "subscription/cdi of HyperConverged:\n\
                 spec:\n  config:\n    env:\n    - name: IMPORTER_IMAGE\n      value: r.io/x/cdi-importer:1\n";
    check_lines(&scene, || scene.subscription(), lines);
    let labels = json!({"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "olm"}}});
    api().cluster.patch(&super::subscription_path("images-hco"), &labels);
    check_lines(
        &scene,
        || scene.subscription(),
        "the source of Flux's kustomization/olm:\nspec:\n  config:\n    env:\n",
    );
    api().cluster.delete(&super::subscription_path("images-hco"));
    check_lines(
        &scene,
        || scene.operator(),
        "spec.install of clusterserviceversion/cdioperator.v1.66.1:\n",
    );
}

#[test]
#[ignore = "server: Kubernetes"]
fn the_operator_is_found_in_any_namespace() {
    let cluster = crate::cluster::api();
    let run =
        |kubeconfig| Program::new(BINARY).args(["images", "--kubeconfig"]).arg(kubeconfig).run();
    run(cluster.administrator()).assert_failure(7, "CDI is not installed in this cluster");
    create_deployment(cluster, "cdi", "cdi-operator", &operator_env("v1.66.1"), &json!({}));
    let found = run(cluster.administrator());
    found.assert_success("one operator");
    let expected = "PART             FROM       IN EFFECT  REQUESTED\n\
                    importer         elsewhere  -          quay.io/kubevirt/cdi-importer:v1.66.1\n\
                    ovirt-populator  elsewhere  -          same\n";
    assert!(found.stdout.starts_with(expected), "{}", found.stdout);
    assert!(
        found.stdout.contains(
            "CDI v1.66.1 in namespace cdi; the images are set in deployment/cdi-operator\n"
        )
    );
    // Without the right to look into all namespaces, CDI's usual namespace is tried.
    let get: testkit::cluster::users::Right<'_> = ("apps", "deployments", &["get"]);
    run(cluster.user("images-reader", &[get])).assert_success("the usual namespace");
    let nobody = cluster.user("images-nobody", &[]);
    run(nobody).assert_failure(7, "you may not list deployments.apps in the cluster");
    cluster.create_namespace("images-second");
    create_deployment(cluster, "images-second", "cdi-operator", &json!([]), &json!({}));
    run(cluster.administrator())
        .assert_failure(2, "choose one with --operator-namespace: cdi, images-second");
}
