//! A stand-in for CDI's import controller, for a node and for the garbage collector, in one
//! namespace: DataVolumes get a claim and an importer pod, pods run as processes of this machine,
//! and objects without their owner are deleted.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Cluster;
use super::servers::ADMIN_TOKEN;
use crate::fail::OrFail;
use crate::ports;
use crate::process::{Program, Running};

/// Interval at which the objects of the namespace are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// The start of every pod, and the ends of CDI's and of other pods, as they are reported.
const TIMES: [&str; 3] = ["2026-01-01T00:00:00Z", "2026-01-01T00:01:03Z", "2026-01-01T00:00:08Z"];

/// The image of importer pods that the controller makes.
pub const IMPORTER_IMAGE: &str = "quay.io/kubevirt/cdi-importer:v1.66.1";

/// The behaviour of a stand-in.
#[derive(Debug, Clone, Default)]
pub struct ImportScript {
    /// Pods whose names begin or end so fail: they import from a URL that is not found.
    pub failing: Option<&'static str>,
    /// Pods whose names end so are not started.
    pub held: Option<&'static str>,
    /// The byte at this offset of CDI's disk is changed after the import.
    pub damaged: Option<u64>,
}

/// A running stand-in. It stops when dropped, with its pods.
pub struct ImportSite {
    site: Arc<Site>,
    thread: Option<JoinHandle<()>>,
}

struct Site {
    cluster: &'static Cluster,
    namespace: String,
    importer: PathBuf,
    script: ImportScript,
    folder: TempDir,
    pods: Mutex<HashMap<String, Running>>,
    is_stopped: AtomicBool,
}

impl ImportSite {
    /// Starts a stand-in for the objects in `namespace`, whose pods run the program `importer`.
    pub fn start(
        cluster: &'static Cluster,
        namespace: &str,
        importer: &str,
        script: ImportScript,
    ) -> Self {
        let site = Arc::new(Site {
            cluster,
            namespace: namespace.to_owned(),
            importer: importer.into(),
            script,
            folder: tempfile::tempdir().or_fail("a folder"),
            pods: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        });
        let looking = Arc::clone(&site);
        let thread = std::thread::spawn(move || {
            while !looking.is_stopped.load(Ordering::Relaxed) {
                looking.look();
                std::thread::sleep(LOOK);
            }
        });
        Self { site, thread: Some(thread) }
    }

    /// The names of the objects of this plural that the namespace has now.
    pub fn names(&self, plural: &str) -> Vec<String> {
        self.site.list(plural).iter().map(name_of).collect()
    }
}

impl Drop for ImportSite {
    fn drop(&mut self) {
        self.site.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
        for (_, running) in self.site.pods.lock().or_fail("the pods").drain() {
            running.signal(Signal::KILL);
            running.wait();
        }
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

impl Site {
    /// Sends a request. It may fail, because the object may be gone by now.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let api =
            if path.starts_with("datavolumes") { "apis/cdi.kubevirt.io/v1beta1" } else { "api/v1" };
        let path = format!("/{api}/namespaces/{}/{path}", self.namespace);
        let kind =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let answer =
            self.cluster.client.ask(ADMIN_TOKEN, method, &path, body.map(|body| (kind, body)));
        let answer = answer.ok().filter(|answer| answer.status < 300);
        answer.and_then(|answer| serde_json::from_slice(&answer.body).ok()).unwrap_or_default()
    }

    fn list(&self, plural: &str) -> Vec<Value> {
        self.ask("GET", plural, None)["items"].as_array().cloned().unwrap_or_default()
    }

    fn look(&self) {
        // Before their owners, so that an object is not younger than the list of all owners.
        let (pods, claims) = (self.list("pods"), self.list("persistentvolumeclaims"));
        let volumes = self.list("datavolumes");
        let owners: Vec<&Value> =
            volumes.iter().chain(&claims).map(|owner| &owner["metadata"]["uid"]).collect();
        for volume in &volumes {
            if claims.iter().all(|claim| name_of(claim) != name_of(volume)) {
                self.create_import(volume);
            }
        }
        for (plural, objects) in [("pods", &pods), ("persistentvolumeclaims", &claims)] {
            for object in objects {
                let (name, meta) = (name_of(object), &object["metadata"]);
                let owner = &meta["ownerReferences"][0]["uid"];
                if meta["deletionTimestamp"].is_string()
                    || !(owner.is_null() || owners.contains(&owner))
                {
                    let path = format!("{plural}/{name}");
                    self.ask("PATCH", &path, Some(&json!({"metadata": {"finalizers": null}})));
                    self.ask("DELETE", &format!("{path}?gracePeriodSeconds=0"), None);
                } else if plural == "pods" {
                    self.look_at_pod(&name, object);
                } else if object["status"]["phase"] != "Bound" {
                    self.cluster.bind_pvc(&self.namespace, &name, "1Gi");
                }
            }
        }
        let is_listed = |name: &str| pods.iter().any(|pod| name_of(pod) == name);
        let mut running = self.pods.lock().or_fail("the pods");
        for (_, gone) in running.extract_if(|name, _| !is_listed(name)) {
            gone.signal(Signal::KILL);
            gone.wait();
        }
    }

    /// Makes what CDI's controllers make of a DataVolume: a claim with its labels, and a pod.
    fn create_import(&self, volume: &Value) {
        let name = name_of(volume);
        let claim = |name: &str, storage: &str, owner: &Value, kind: &str| {
            json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": name,
                    "labels": owner["metadata"]["labels"],
                    "annotations": owner["metadata"]["annotations"],
                    "ownerReferences": [owner_of(owner, kind)],
                },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "fast",
                    "volumeMode": "Filesystem",
                    "resources": {"requests": {"storage": storage}},
                },
            })
        };
        let size = volume["spec"]["storage"]["resources"]["requests"]["storage"].as_str();
        let made = claim(&name, size.unwrap_or("1Gi"), volume, "DataVolume");
        let made = self.ask("POST", "persistentvolumeclaims", Some(&made));
        let url = volume["spec"]["source"]["http"]["url"].as_str().unwrap_or_default();
        let mut pod = importer_pod(&name, url);
        pod["metadata"]["ownerReferences"] = json!([owner_of(&made, "PersistentVolumeClaim")]);
        let scratch = claim(&format!("{name}-scratch"), "2Gi", &made, "PersistentVolumeClaim");
        self.ask("POST", "persistentvolumeclaims", Some(&scratch));
        self.ask("POST", "pods", Some(&pod));
    }

    fn look_at_pod(&self, name: &str, pod: &Value) {
        let is_held = self.script.held.is_some_and(|end| name.ends_with(end));
        let mut pods = self.pods.lock().or_fail("the pods");
        if pods.get_mut(name).is_some_and(|running| running.has_ended()) {
            let finished = pods.remove(name).or_fail(name).wait();
            self.report_end(name, pod, finished.code(), finished.stderr.trim_end());
        } else if pod["status"]["containerStatuses"].is_null() && !is_held {
            pods.insert(name.to_owned(), self.run(name, pod));
            self.set_status(name, "Running", 0, &json!({"running": {"startedAt": TIMES[0]}}));
        }
    }

    /// Starts the process of a pod. The folder of the first claim stands in for its root.
    fn run(&self, name: &str, pod: &Value) -> Running {
        let target = json!({"kind": "Node", "name": "node-1"});
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
        self.ask("POST", &format!("pods/{name}/binding"), Some(&binding));
        let folder_of = |volume: &Value| {
            let claim = volume["persistentVolumeClaim"]["claimName"].as_str().unwrap_or_default();
            self.folder.path().join(claim)
        };
        let volumes = pod["spec"]["volumes"].as_array().or_fail("volumes");
        let root = volumes.iter().find(|volume| volume["persistentVolumeClaim"].is_object());
        let root = folder_of(root.or_fail("a claim"));
        for folder in ["data", "dev", "tmp"] {
            std::fs::create_dir_all(root.join(folder)).or_fail(folder);
        }
        let container = &pod["spec"]["containers"][0];
        let program = Program::new(&self.importer).beside_others();
        if let Some(command) = container["command"].as_array() {
            let words = command.iter().skip(1).map(|word| {
                let word = word.as_str().unwrap_or_default();
                let mut volumes = volumes.iter();
                let volume = volumes.find(|volume| {
                    word.starts_with(&format!("/{}/", volume["name"].as_str().unwrap_or_default()))
                });
                volume.map_or(word.into(), |volume| {
                    folder_of(volume).join("data/disk.img").into_os_string()
                })
            });
            return program.args(words).start();
        }
        let fails =
            self.script.failing.is_some_and(|part| name.starts_with(part) || name.ends_with(part));
        let [metrics] = ports::free();
        let variables = container["env"].as_array().or_fail("env").iter();
        let variables = variables
            .filter_map(|variable| Some((variable["name"].as_str()?, variable["value"].as_str()?)));
        let program = variables.fold(program, |program, (name, value)| match name {
            "IMPORTER_ENDPOINT" if fails => program.env(name, format!("{value}/gone")),
            _ => program.env(name, value),
        });
        program
            .arg("-v=1")
            .env("CDI_WORKERS_TEST_ROOT", &root)
            .env("CDI_WORKERS_TEST_METRICS_ADDR", metrics.to_string())
            .env("TMPDIR", root.join("tmp"))
            .start()
    }

    /// Reports the end of a pod's process, and of CDI's import.
    fn report_end(&self, name: &str, pod: &Value, code: i32, log: &str) {
        let claim = name.strip_prefix("importer-");
        let root = self.folder.path().join(claim.unwrap_or(name));
        let message = std::fs::read_to_string(root.join("dev/termination-log")).unwrap_or_default();
        let message = if message.is_empty() { log } else { &message };
        let reason = if code == 0 { "Completed" } else { "Error" };
        let finished = TIMES[if claim.is_some() { 1 } else { 2 }];
        let end = json!({"terminated": {"exitCode": code, "reason": reason, "message": message, "startedAt": TIMES[0], "finishedAt": finished}});
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0);
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let Some(claim) = claim else {
            return self.set_status(name, phase, 0, &end);
        };
        if let Some(offset) = self.script.damaged {
            let disk = std::fs::File::options().write(true).open(root.join("data/disk.img"));
            std::os::unix::fs::FileExt::write_all_at(&disk.or_fail("a disk"), b"\xa5", offset)
                .or_fail("a disk");
        }
        let status = if code == 0 {
            self.set_status(name, phase, 0, &end);
            json!({"phase": phase, "progress": "100.0%"})
        } else {
            // The kubelet restarts it.
            self.set_status(name, "Running", restarts + 1, &end);
            json!({"phase": "ImportInProgress", "restartCount": restarts + 1,
                   "conditions": [{"type": "Running", "reason": "Error", "message": message}]})
        };
        self.ask("PATCH", &format!("datavolumes/{claim}"), Some(&json!({"status": status})));
    }

    fn set_status(&self, name: &str, phase: &str, restarts: u64, state: &Value) {
        let container = json!({
            "name": "importer", "image": "i", "imageID": "i", "restartCount": restarts,
            "ready": phase == "Running", "state": state,
        });
        let status = json!({"status": {"phase": phase, "containerStatuses": [container]}});
        self.ask("PATCH", &format!("pods/{name}/status"), Some(&status));
    }
}

fn owner_of(owner: &Value, kind: &str) -> Value {
    let version = if kind == "DataVolume" { "cdi.kubevirt.io/v1beta1" } else { "v1" };
    json!({"apiVersion": version, "kind": kind, "name": owner["metadata"]["name"],
           "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true})
}

/// Returns the importer pod that CDI makes for the claim `claim`, with scratch space (contract
/// §5.2).
pub fn importer_pod(claim: &str, url: &str) -> Value {
    let variables = [
        ("IMPORTER_SOURCE", "http"),
        ("IMPORTER_ENDPOINT", url),
        ("IMPORTER_CONTENTTYPE", "kubevirt"),
        ("IMPORTER_IMAGE_SIZE", "64Mi"),
        ("OWNER_UID", "5f5a1c9e-0d2b-4c1e-9d57-1f6d0f0b8f9a"),
        ("FILESYSTEM_OVERHEAD", "0.06"),
        ("INSECURE_TLS", "false"),
        ("PREALLOCATION", "false"),
        ("CACHE_MODE", ""),
    ];
    let variables = variables.map(|(name, value)| json!({"name": name, "value": value}));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("importer-{claim}"),
            "annotations": {
                "cdi.kubevirt.io/storage.createdByController": "yes",
                "linkerd.io/inject": "disabled",
                "sidecar.istio.io/inject": "false",
            },
            "labels": {
                "app": "containerized-data-importer",
                "cdi.kubevirt.io": "importer",
                "prometheus.cdi.kubevirt.io": "true",
            },
        },
        "spec": {
            "containers": [{
                "name": "importer",
                "image": IMPORTER_IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "args": ["-v=1"],
                "env": variables,
                "ports": [{"name": "metrics", "containerPort": 8443, "protocol": "TCP"}],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "60M"},
                    "limits": {"cpu": "750m", "memory": "600M"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]},
                    "runAsNonRoot": true,
                    "runAsUser": 107,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    {"name": "cdi-data-vol", "mountPath": "/data"},
                    {"name": "cdi-scratch-vol", "mountPath": "/scratch"},
                ],
            }],
            "restartPolicy": "OnFailure",
            "enableServiceLinks": false,
            "securityContext": {"fsGroup": 107, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [
                {"name": "cdi-data-vol", "persistentVolumeClaim": {"claimName": claim}},
                {"name": "cdi-scratch-vol", "persistentVolumeClaim": {"claimName": format!("{claim}-scratch")}},
            ],
        },
    })
}
