//! Volumes that are not read, and missing rights.

use std::fs;

use serde_json::{Value, json};
use testkit::cluster::cdi::CDI_NAMESPACE;
use testkit::cluster::users::Right;
use testkit::process::Program;

use super::{Scene, cluster};
use crate::BINARY;
use crate::upload::last_event;

impl Scene {
    fn create(&self, api: &str, plural: &str, object: &Value) {
        let path = format!("/{api}/namespaces/{}/{plural}", self.namespace);
        cluster().create(&path, object);
    }

    fn status(&self, plural: &str, name: &str, status: &Value) {
        let path = format!("/api/v1/namespaces/{}/{plural}/{name}/status", self.namespace);
        cluster().patch(&path, &json!({"status": status}));
    }

    /// Makes a pod of a virtual machine that uses the claim `disk` on this node.
    fn start_machine(&self, node: &str) {
        self.create(
            "api/v1",
            "pods",
            &json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "virt-launcher-a", "labels": {"vm.kubevirt.io/name": "a"}},
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "compute", "image": "i"}],
                    "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "disk"}}],
                },
            }),
        );
    }

    #[track_caller]
    fn refuse(&self, source: &str, code: i32, sentence: &str) {
        self.program(source, "copy").start().wait().assert_failure(code, sentence);
        assert!(!self.path("copy").exists() && !self.path("copy.partial").exists());
        assert!(self.kubelet.made().is_empty(), "a pod was made");
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_claim_in_use_is_read_only_with_force_and_on_its_node() {
    let scene = Scene::new();
    scene.claim("Filesystem", b"disk");
    scene.start_machine("elsewhere");
    scene.refuse(
        "pvc/disk",
        3,
        "pvc/disk is in use by vm/a (pod/virt-launcher-a): stop it first, or give --force",
    );
    let finished = scene.program("pvc/disk", "copy").arg("--force").start().wait();
    finished.assert_success("with --force");
    assert!(finished.stderr.contains("may be inconsistent"), "{}", finished.stderr);
    assert_eq!(fs::read(scene.path("copy")).unwrap(), b"disk");
    let pod = &scene.kubelet.made()[0];
    assert!(pod["spec"]["affinity"].to_string().contains(r#""values":["elsewhere"]"#), "{pod}");
    scene.status("pods", "virt-launcher-a", &json!({"phase": "Succeeded"}));
    scene.program("pvc/disk", "copy2").start().wait().assert_success("a stopped machine");
}

#[test]
#[ignore = "server: Kubernetes"]
fn volumes_without_a_readable_disk_are_refused() {
    let scene = Scene::new();
    let claim = |name: &str, annotation: &str, value: &str| {
        let mut annotations = serde_json::Map::new();
        annotations.insert(format!("cdi.kubevirt.io/{annotation}"), json!(value));
        scene.create("api/v1", "persistentvolumeclaims", &json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }));
    };
    claim("unbound", "other", "");
    claim("filling", "storage.pod.phase", "Running");
    claim("files", "storage.contentType", "archive");
    for name in ["filling", "files"] {
        scene.status("persistentvolumeclaims", name, &json!({"phase": "Bound"}));
    }
    scene.refuse("pvc/none", 7, "pvc/none not found");
    scene.refuse("pvc/unbound", 3, "pvc/unbound is not bound to a volume (phase Pending)");
    scene.refuse("pvc/filling", 3, "pvc/filling is not filled yet (phase Running)");
    scene.refuse("pvc/files", 3, "pvc/files contains the files of an archive");
    scene.refuse("disk", 2, "use pvc/NAME, dv/NAME or vm/NAME");
    fs::write(scene.path("mine"), "mine").unwrap();
    scene.program("pvc/none", "mine").start().wait().assert_failure(7, "mine already exists");
    let finished = scene.program("pvc/none", "copy.vmdk").start().wait();
    finished.assert_failure(2, "copy.vmdk is not supported");
}

#[test]
#[ignore = "server: Kubernetes"]
fn without_an_image_the_one_of_cdi_is_used_if_it_is_ours() {
    let scene = Scene::new();
    scene.claim("Filesystem", b"disk");
    let download = || {
        let program = Program::new(BINARY).args(["download", "pvc/disk"]).arg(scene.path("copy"));
        let program = program.args(["--namespace", &scene.namespace, "--kubeconfig"]);
        program.arg(cluster().administrator()).env("HOME", scene.folder.path()).start().wait()
    };
    download().assert_failure(2, "not found in namespace cdi; give --image");
    cluster().create_namespace(CDI_NAMESPACE);
    for (image, is_ours) in [
        ("quay.io/kubevirt/cdi-cloner:v1.66.0", false),
        ("registry.example/a/cdi-cloner:0.1.0", true),
    ] {
        let labels = json!({"app": "cdi"});
        let env = json!([{"name": "CLONER_IMAGE", "value": image}]);
        let containers = json!([{"name": "cdi-controller", "image": "i", "env": env}]);
        let path = format!("/apis/apps/v1/namespaces/{CDI_NAMESPACE}/deployments/cdi-deployment");
        cluster().apply(&path, &json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "cdi-deployment", "namespace": CDI_NAMESPACE},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
            },
        }));
        let finished = download();
        if is_ours {
            finished.assert_success(image);
            let pod = &scene.kubelet.made()[0];
            assert_eq!(pod["spec"]["containers"][0]["image"], image, "{pod}");
        } else {
            finished.assert_failure(2, image);
            assert!(scene.kubelet.made().is_empty() && !scene.path("copy").exists());
        }
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_volume_without_a_disk_image_is_reported_by_its_pod() {
    let scene = Scene::new();
    let disk = scene.claim("Filesystem", b"");
    fs::remove_file(disk).unwrap();
    let finished = scene.download().start().wait();
    finished.assert_failure(3, "the volume cannot be read: ");
    let event = last_event(&finished);
    assert!(event["message"].to_string().contains("no such file"), "{event}");
    scene.assert_no_pods();
    assert!(!scene.path("copy.partial").exists());
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_machine_is_its_only_disk_and_a_data_volume_its_claim() {
    cluster().install_machines();
    let scene = Scene::new();
    scene.claim("Filesystem", b"disk");
    let machine = |name: &str, volumes: Value| {
        scene.create(
            "apis/kubevirt.io/v1",
            "virtualmachines",
            &json!({
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachine",
                "metadata": {"name": name},
                "spec": {"template": {"spec": {"volumes": volumes}}},
            }),
        );
    };
    let root = json!({"name": "root", "persistentVolumeClaim": {"claimName": "disk"}});
    machine("one", json!([root, {"name": "cloud-init", "cloudInitNoCloud": {}}]));
    machine("two", json!([root, {"name": "data", "dataVolume": {"name": "data"}}]));
    machine("diskless", json!([]));
    scene.refuse("vm/none", 7, "vm/none not found");
    scene.refuse("vm/two", 2, "vm/two has 2 disks: choose one: pvc/disk, dv/data");
    scene.refuse("vm/diskless", 2, "vm/diskless has no disk on a claim");
    scene.program("vm/one", "copy").start().wait().assert_success("a machine with one disk");
    scene.assert_complete(b"disk");
    fs::remove_file(scene.path("copy")).unwrap();
    cluster().create_data_volume(&scene.namespace, "disk", &json!({"upload": {}}));
    let phase = |phase| {
        cluster().set_data_volume_status(&scene.namespace, "disk", &json!({"phase": phase}));
        scene.program("dv/disk", "copy").start().wait()
    };
    phase("UploadReady").assert_failure(3, "dv/disk is not filled yet (phase UploadReady)");
    phase("Succeeded").assert_success("a DataVolume");
    scene.assert_complete(b"disk");
}

const RIGHTS: [Right<'_>; 3] = [
    ("", "persistentvolumeclaims", &["get"]),
    ("", "pods", &["create", "delete", "get", "list"]),
    ("", "pods/portforward", &["create", "get"]),
];

fn as_user(scene: &Scene, name: &str, rights: &[Right<'_>]) -> Program {
    let config = cluster().user(&format!("{}-{name}", scene.namespace), rights);
    scene.program_as(config, "pvc/disk", "copy")
}

#[test]
#[ignore = "server: Kubernetes"]
fn each_missing_right_is_named_and_the_documented_ones_suffice() {
    let scene = Scene::new();
    scene.claim("Filesystem", b"disk");
    for (number, (group, resource, verbs)) in RIGHTS.into_iter().enumerate() {
        for verb in verbs {
            let others: Vec<&str> = verbs.iter().copied().filter(|other| other != verb).collect();
            let mut rights = RIGHTS.to_vec();
            rights[number] = (group, resource, &others);
            if others.is_empty() {
                rights.remove(number);
            }
            let name = format!("{number}-{verb}");
            let finished = as_user(&scene, &name, &rights).start().wait();
            let sentence =
                format!("you may not {verb} {resource} in namespace {}", scene.namespace);
            finished.assert_failure(7, &sentence);
            assert!(scene.kubelet.made().is_empty(), "{sentence}: a pod was made");
        }
    }
    as_user(&scene, "all", &RIGHTS).start().wait().assert_success("with the documented rights");
    scene.assert_complete(b"disk");
}
