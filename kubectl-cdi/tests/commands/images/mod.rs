//! `kubectl cdi images`, against a real API server. A thread stands in for the controllers that
//! follow a change: OLM, CDI's operator and Kubernetes' own.

mod changes;
mod owners;
mod refusals;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::cluster::Cluster;
use testkit::fail::OrFail;
use testkit::process::{Finished, Program};

use crate::BINARY;
use crate::upload::api;

/// Interval at which the stand-in looks at the objects.
const LOOK: Duration = Duration::from_millis(20);

/// The variables of CDI's release, as far as tests need them
/// (`pkg/operator/resources/operator/operator.go`). One is absent, and one is not a literal.
fn operator_env(version: &str) -> Value {
    let image = |name: &str| format!("quay.io/kubevirt/cdi-{name}:{version}");
    json!([
        {"name": "DEPLOY_CLUSTER_RESOURCES", "value": "true"},
        {"name": "OPERATOR_VERSION", "value": version},
        {"name": "CONTROLLER_IMAGE", "value": image("controller")},
        {"name": "IMPORTER_IMAGE", "value": image("importer")},
        {"name": "CLONER_IMAGE", "value": image("cloner")},
        {"name": "UPLOAD_SERVER_IMAGE", "value": image("uploadserver")},
        {"name": "UPLOAD_PROXY_IMAGE", "value": image("uploadproxy")},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
    ])
}

fn path(namespace: &str, name: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
}

fn subscription_path(namespace: &str) -> String {
    format!("/apis/operators.coreos.com/v1alpha1/namespaces/{namespace}/subscriptions/cdi")
}

/// Creates a Deployment with one container.
fn create_deployment(cluster: &Cluster, namespace: &str, name: &str, env: &Value, marks: &Value) {
    let labels = json!({"cdi.kubevirt.io": name});
    let container = json!({"name": name, "image": "quay.io/kubevirt/cdi:v1", "env": env});
    let mut metadata = marks.clone();
    metadata["name"] = json!(name);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    });
    cluster.create(path(namespace, "").trim_end_matches('/'), &deployment);
}

/// A namespace with CDI's operator, which installed the two Deployments that use images.
struct CdiScene {
    namespace: String,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CdiScene {
    /// Installs CDI 1.66.1. The operator's Deployment has these labels and annotations.
    fn new(namespace: &str, marks: &Value) -> Self {
        let (cluster, env) = (&api().cluster, operator_env("v1.66.1"));
        cluster.create_namespace(namespace);
        create_deployment(cluster, namespace, "cdi-operator", &env, marks);
        for name in ["cdi-deployment", "cdi-uploadproxy"] {
            create_deployment(cluster, namespace, name, &json!([]), &json!({}));
        }
        Self { namespace: namespace.to_owned(), is_stopped: Arc::default(), thread: None }
    }

    /// Installs CDI with OLM, with these fields in the Subscription.
    fn with_olm(namespace: &str, package: &str, spec: &Value) -> Self {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let group = ("operators.coreos.com", "v1alpha1");
        api().cluster.define_in(group, "Subscription", "Namespaced", &any);
        // `AddOwnerLabelsForKind` in operator-lifecycle-manager's `pkg/lib/ownerutil/util.go`.
        let labels = json!({
            "olm.owner": "cdioperator.v1.66.1", "olm.owner.kind": "ClusterServiceVersion",
            "olm.owner.namespace": namespace,
        });
        let scene = Self::new(namespace, &json!({"labels": labels}));
        let mut spec = spec.clone();
        // `SubscriptionSpec` in operator-framework/api's `subscription_types.go`.
        for (field, value) in
            [("name", package), ("channel", "stable"), ("source", "s"), ("sourceNamespace", "olm")]
        {
            spec[field] = json!(value);
        }
        let subscription = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
            "metadata": {"name": "cdi"}, "spec": spec,
            "status": {"installedCSV": "cdioperator.v1.66.1"},
        });
        api().cluster.apply(&subscription_path(namespace), &subscription);
        scene
    }

    /// Starts the stand-in for controllers, which have put the first images into effect.
    fn follow(mut self) -> Self {
        let (namespace, is_stopped) = (self.namespace.clone(), Arc::clone(&self.is_stopped));
        follow_once(&namespace);
        self.thread = Some(thread::spawn(move || {
            while !is_stopped.load(Ordering::Relaxed) {
                follow_once(&namespace);
                thread::sleep(LOOK);
            }
        }));
        self
    }

    fn operator(&self) -> Value {
        stored(&path(&self.namespace, "cdi-operator"))
    }

    fn subscription(&self) -> Value {
        stored(&subscription_path(&self.namespace))
    }

    /// Runs `kubectl cdi images` as the administrator.
    fn run(&self, words: &str) -> Finished {
        self.program(words, api().cluster.administrator()).run()
    }

    fn program(&self, words: &str, kubeconfig: PathBuf) -> Program {
        Program::new(BINARY)
            .args(["images", "--operator-namespace", &self.namespace, "--kubeconfig"])
            .arg(kubeconfig)
            .args(words.split_whitespace())
    }

    /// Returns the images that are in effect, in the order of the table.
    fn used(&self) -> Vec<String> {
        let finished = self.run("status --output json");
        finished.assert_success("status");
        let report: Value = serde_json::from_str(&finished.stdout).or_fail("JSON");
        let parts = report["images"].as_array().or_fail("images").iter();
        parts.map(|part| part["in_effect"].as_str().unwrap_or("-").to_owned()).collect()
    }
}

impl Drop for CdiScene {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Returns an object without the fields that every change sets.
fn stored(path: &str) -> Value {
    let mut object = api().cluster.get(path);
    for field in ["resourceVersion", "generation", "managedFields"] {
        object["metadata"].as_object_mut().or_fail(path).remove(field);
    }
    if path.contains("/deployments/") {
        object["status"] = Value::Null;
    }
    object
}

/// Does what controllers do after a change.
fn follow_once(namespace: &str) {
    let cluster = &api().cluster;
    let operator_path = path(namespace, "cdi-operator");
    let mut operator = cluster.get(&operator_path);
    if operator["metadata"]["labels"]["olm.owner"].is_string() {
        // `mergeEnvVars` in operator-lifecycle-manager's `overrides/inject/inject.go`.
        let mut env = operator_env("v1.66.1").as_array().cloned().unwrap_or_default();
        let subscription = cluster.get(&subscription_path(namespace));
        for new in subscription["spec"]["config"]["env"].as_array().into_iter().flatten() {
            match env.iter_mut().find(|old| old["name"] == new["name"]) {
                Some(old) => *old = new.clone(),
                None => env.push(new.clone()),
            }
        }
        let mut containers = operator["spec"]["template"]["spec"]["containers"].clone();
        containers[0]["env"] = Value::Array(env);
        let spec = json!({"template": {"spec": {"containers": containers}}});
        operator = cluster.patch(&operator_path, &json!({"spec": spec}));
    }
    let env = operator["spec"]["template"]["spec"]["containers"][0]["env"]
        .as_array()
        .or_fail("variables");
    let image = |name: &str| {
        let variable = env.iter().find(|variable| variable["name"] == name);
        variable.map_or(json!(""), |variable| variable["value"].clone())
    };
    // `createControllerDeployment` and `createUploadProxyDeployment` in CDI's
    // `pkg/operator/resources/namespaced`.
    let copied = [
        ("IMPORTER_IMAGE", "IMPORTER_IMAGE"),
        ("CLONER_IMAGE", "CLONER_IMAGE"),
        ("UPLOADSERVER_IMAGE", "UPLOAD_SERVER_IMAGE"),
        ("OVIRT_POPULATOR_IMAGE", "OVIRT_POPULATOR_IMAGE"),
    ];
    let copied = copied.map(|(name, from)| json!({"name": name, "value": image(from)}));
    let controllers = json!([{"name": "cdi-deployment", "image": "c", "env": copied}]);
    let proxy = json!([{"name": "cdi-uploadproxy", "image": image("UPLOAD_PROXY_IMAGE")}]);
    for (name, containers) in [
        ("cdi-operator", None),
        ("cdi-deployment", Some(controllers)),
        ("cdi-uploadproxy", Some(proxy)),
    ] {
        let path = path(namespace, name);
        let deployment = match containers {
            Some(containers) => {
                let spec = json!({"template": {"spec": {"containers": containers}}});
                cluster.patch(&path, &json!({"spec": spec}))
            }
            None => operator.clone(),
        };
        let status = json!({
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        });
        cluster.patch(&format!("{path}/status"), &json!({"status": status}));
    }
}
