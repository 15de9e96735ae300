//! The owner of the operator's Deployment: the program that created it, and would undo a change.

use serde_json::Value;

use super::{ImagesGoal, OVIRT_POPULATOR, WorkerPart};
use crate::cluster::Cluster;
use crate::cluster::object::{list_at, printable_line, text_at};
use crate::cluster::resource::ResourceKind;
use crate::error::PluginError;

/// The owner of the operator's Deployment.
#[derive(Debug)]
pub(super) enum OperatorOwner {
    /// Nobody: the Deployment was applied with kubectl, also with kustomize.
    Nobody,
    /// A release of Helm, which undoes changes only at the next upgrade.
    HelmRelease(String),
    /// A Subscription of OLM, whose variables replace the operator's, also after upgrades.
    Subscription(Box<Value>),
    /// A program that undoes changes at once, or that must not be changed for CDI alone. `lines` is
    /// the YAML that the user has to add there; the images follow it.
    Reconciler { place: String, lines: &'static str },
}

const DEPLOYMENT: &str = include_str!("recipes/deployment.yaml");

const SUBSCRIPTION: &str = include_str!("recipes/subscription.yaml");

/// The ClusterExtension of OLM 1
/// (openshift/enhancements, `enhancements/olm/olmv1-deployment-configuration-api.md`).
const EXTENSION: &str = include_str!("recipes/extension.yaml");

/// Flux's HelmRelease (helm-controller, `docs/spec/v2/helmreleases.md`, "Post renderers").
const HELM_RELEASE: &str = include_str!("recipes/helm-release.yaml");

/// Harvester's installer lets Fleet install its chart
/// (harvester-installer, `pkg/config/templates/rancherd-10-harvester.yaml`).
const HARVESTER: &str = include_str!("recipes/harvester.yaml");

/// Labels and annotations of programs that undo changes, in the order in which one installs
/// another, with the kind of the object that a value names. Without lines for the Deployment, the
/// lines for the object itself are used.
const MARKS: [(&str, &str, Option<&str>); 6] = [
    // operator-controller, `internal/operator-controller/labels/labels.go`.
    ("olm.operatorframework.io/owner-name", "clusterextension/", Some(EXTENSION)),
    // Flux's controllers set these labels on all objects that they apply.
    ("helm.toolkit.fluxcd.io/name", "Flux's helmrelease/", Some(HELM_RELEASE)),
    ("kustomize.toolkit.fluxcd.io/name", "the source of Flux's kustomization/", None),
    // Rancher's wrangler, also for Fleet.
    ("objectset.rio.cattle.io/id", "the source of Fleet's bundle ", None),
    ("argocd.argoproj.io/tracking-id", "the source of Argo CD's application ", None),
    ("argocd.argoproj.io/instance", "the source of Argo CD's application ", None),
];

impl OperatorOwner {
    /// Determines the owner from labels, annotations and owner references.
    pub(super) async fn find(cluster: &Cluster, deployment: &Value) -> Result<Self, PluginError> {
        // OLM sets an owner reference and a label (operator-lifecycle-manager,
        // `pkg/lib/ownerutil/util.go`).
        let mut owners = list_at(deployment, "/metadata/ownerReferences").iter();
        let version = owners.find(|owner| owner["kind"] == "ClusterServiceVersion");
        let version = version.and_then(|owner| text_at(owner, "/name")).map(printable_line);
        if let Some(version) = version.or_else(|| mark(deployment, "olm.owner")) {
            return find_subscription(cluster, &version).await;
        }
        Ok(find_reconciler(deployment, DEPLOYMENT).unwrap_or_else(|| {
            mark(deployment, "meta.helm.sh/release-name").map_or(Self::Nobody, Self::HelmRelease)
        }))
    }

    /// Returns the lines with which this owner reaches `goal`. `None` if it does not undo changes
    /// of the operator.
    pub(super) fn recipe(&self, goal: &ImagesGoal) -> Option<String> {
        let Self::Reconciler { place, lines } = self else { return None };
        let ImagesGoal::Use(registry, vddk) = goal else {
            return Some(format!("# Remove the lines about images from {place}.\n"));
        };
        let last = lines.lines().last().unwrap_or_default();
        let pad = &last[..last.len() - last.trim_start().len()];
        let mut text = format!("# Put these lines into {place}:\n{lines}");
        for (WorkerPart { name, variable, .. }, image) in registry.images(*vddk) {
            let (repository, tag) = image.rsplit_once(':').unwrap_or_default();
            text += &if *lines != HARVESTER {
                format!("{pad}- name: {variable}\n{pad}  value: {image}\n")
            } else if *name != OVIRT_POPULATOR {
                format!(
                    "{pad}  {name}:\n{pad}    image:\n{pad}      repository: {repository}\n{pad}      tag: \"{tag}\"\n"
                )
            } else {
                continue;
            };
        }
        Some(text)
    }
}

/// Finds the Subscription that has installed a ClusterServiceVersion. It is in the same namespace
/// (operator-framework/api, `pkg/operators/v1alpha1/subscription_types.go`).
async fn find_subscription(cluster: &Cluster, version: &str) -> Result<OperatorOwner, PluginError> {
    let all = cluster.list_objects(ResourceKind::SUBSCRIPTIONS, None).await?;
    // During an upgrade, the Deployment belongs to the next version already.
    let is_ours = |object: &Value| {
        ["installedCSV", "currentCSV"].iter().any(|name| object["status"][name] == version)
    };
    let Some(object) = all.into_iter().find(is_ours) else {
        let place = format!("spec.install of clusterserviceversion/{version}");
        return Ok(OperatorOwner::Reconciler { place, lines: DEPLOYMENT });
    };
    if let Some(reconciler) = find_reconciler(&object, SUBSCRIPTION) {
        return Ok(reconciler);
    }
    // OLM gives the variables to all Deployments of a ClusterServiceVersion. HyperConverged's has
    // thirteen, such as KubeVirt's operator, and all of them would restart.
    let at = |pointer| text_at(&object, pointer).map(printable_line).unwrap_or_default();
    if at("/spec/name").contains("hyperconverged") {
        let place = format!("subscription/{} of HyperConverged", at("/metadata/name"));
        return Ok(OperatorOwner::Reconciler { place, lines: SUBSCRIPTION });
    }
    Ok(OperatorOwner::Subscription(Box::new(object)))
}

/// Returns the program that keeps an object as it is. `own` are the lines for the object itself.
fn find_reconciler(object: &Value, own: &'static str) -> Option<OperatorOwner> {
    let owned = |place, lines| Some(OperatorOwner::Reconciler { place, lines });
    if mark(object, "meta.helm.sh/release-name").as_deref() == Some("harvester") {
        return owned("managedchart/harvester in namespace fleet-local".to_owned(), HARVESTER);
    }
    // Cozystack creates its HelmReleases, and their charts have no values for images.
    let namespace = mark(object, "helm.toolkit.fluxcd.io/namespace");
    if namespace.is_some_and(|namespace| namespace.starts_with("cozy-")) {
        let file = "packages/system/kubevirt-cdi-operator/templates/cdi-operator.yaml";
        return owned(format!("{file} of Cozystack"), own);
    }
    for (name, owner, lines) in MARKS {
        if let Some(value) = mark(object, name) {
            let lines = lines.filter(|_| own == DEPLOYMENT).unwrap_or(own);
            return owned(format!("{owner}{value}"), lines);
        }
    }
    let owners = list_at(object, "/metadata/ownerReferences");
    let controller = owners.iter().find(|owner| owner["controller"] == true)?;
    let at = |pointer| text_at(controller, pointer).map(printable_line).unwrap_or_default();
    owned(format!("the source of {}/{}", at("/kind"), at("/name")), own)
}

/// Returns the value of a label or an annotation.
fn mark(object: &Value, name: &str) -> Option<String> {
    let [label, annotation] = ["labels", "annotations"].map(|it| &object["metadata"][it][name]);
    label.as_str().or(annotation.as_str()).map(printable_line)
}
