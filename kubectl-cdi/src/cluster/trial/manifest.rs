//! The manifests of a trial: a pod like the one that CDI's controllers have made, and a pod that
//! compares two disks.

use program::paths::{BLOCK_DEVICE, DISK_IMAGE};
use serde_json::{Value, json};

use super::super::object::{list_at, text_at};

/// The container of an importer pod. Others come from admission webhooks, which add them again.
pub(super) const CONTAINER: &str = "importer";

/// The volume of an importer pod with the claim that it fills.
const DATA_VOLUME: &str = "cdi-data-vol";

/// The volume of an importer pod with scratch space.
const SCRATCH_VOLUME: &str = "cdi-scratch-vol";

/// The folder of the ServiceAccount's token, which the API server mounts into every pod.
const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The fields of a pod that affect what its program can do and where it may run. The node is
/// chosen, so the fields that would choose one are left out.
const SPEC_FIELDS: [&str; 12] = [
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostAliases",
    "imagePullSecrets",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
    "tolerations",
];

/// The annotations by which CDI's users choose the network of importer pods.
const ANNOTATIONS: [&str; 4] = [
    "k8s.v1.cni.cncf.io/networks",
    "linkerd.io/inject",
    "sidecar.istio.io/inject",
    "v1.multus-cni.io/default-network",
];

/// Returns a pod that does the same as the importer pod `theirs`, with another image and another
/// claim, on the same node and without scratch space. CDI's controllers ignore it, because it lacks
/// their labels and owner. If the cluster `chooses_uid`, the user is left to it. `None` if
/// `theirs` is not an importer pod that was assigned to a node.
pub(super) fn copy_importer(
    theirs: &Value,
    image: &str,
    claim: &str,
    chooses_uid: bool,
) -> Option<Value> {
    let node = text_at(theirs, "/spec/nodeName")?;
    let mut containers = list_at(theirs, "/spec/containers").iter();
    let mut container = containers.find(|container| container["name"] == CONTAINER)?.clone();
    container["image"] = json!(image);
    let mut volumes = list_at(theirs, "/spec/volumes").to_vec();
    let is_kept =
        |mount: &Value| mount["name"] != SCRATCH_VOLUME && mount["mountPath"] != TOKEN_FOLDER;
    if let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
        mounts.retain(is_kept);
    }
    let mounts = ["/volumeMounts", "/volumeDevices"].map(|list| list_at(&container, list));
    volumes.retain(|volume| mounts.concat().iter().any(|mount| mount["name"] == volume["name"]));
    let data = volumes.iter_mut().find(|volume| volume["name"] == DATA_VOLUME)?;
    data["persistentVolumeClaim"] = json!({"claimName": claim});
    let mut spec = pick(&theirs["spec"], &SPEC_FIELDS);
    if chooses_uid {
        for security in [&mut spec["securityContext"], &mut container["securityContext"]] {
            if let Some(security) = security.as_object_mut() {
                security.retain(|name, _| name != "runAsUser" && name != "fsGroup");
            }
        }
    }
    // Not `nodeName`, which would bypass the scheduler, and claims may wait for its choice.
    let term =
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    spec["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
    }});
    spec["restartPolicy"] = json!("Never");
    spec["containers"] = json!([container]);
    spec["volumes"] = json!(volumes);
    let metadata = json!({"annotations": pick(&theirs["metadata"]["annotations"], &ANNOTATIONS)});
    Some(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// Returns a pod that compares the disks in two claims, with the image and the restrictions of
/// `importer`, a pod from [`copy_importer`].
pub(super) fn compare_disks(importer: &Value, claims: [&str; 2]) -> Value {
    let container = &importer["spec"]["containers"][0];
    let is_block = !list_at(container, "/volumeDevices").is_empty();
    let kept = ["name", "image", "imagePullPolicy", "resources", "securityContext"];
    let mut comparing = pick(container, &kept);
    let (mut command, mut mounts, mut volumes) =
        (vec!["cdi-importer".to_owned(), "compare".to_owned()], Vec::new(), Vec::new());
    for (name, claim) in ["theirs", "ours"].into_iter().zip(claims) {
        let source = json!({"claimName": claim, "readOnly": is_block});
        volumes.push(json!({"name": name, "persistentVolumeClaim": source}));
        // A block device has no read-only mount; instead the kubelet allows only reads of it.
        if is_block {
            let path = format!("{BLOCK_DEVICE}-{name}");
            mounts.push(json!({"name": name, "devicePath": path}));
            command.push(path);
        } else {
            let folder = format!("/{name}");
            command.push(DISK_IMAGE.replace("/data", &folder));
            mounts.push(json!({"name": name, "mountPath": folder, "readOnly": true}));
        }
    }
    comparing["command"] = json!(command);
    comparing["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    comparing[if is_block { "volumeDevices" } else { "volumeMounts" }] = json!(mounts);
    let mut pod = importer.clone();
    pod["spec"]["volumes"] = json!(volumes);
    pod["spec"]["containers"] = json!([comparing]);
    pod
}

/// Returns a claim of the same class, modes and size as `theirs`.
pub(super) fn copy_claim(theirs: &Value) -> Value {
    let mut spec = pick(&theirs["spec"], &["accessModes", "storageClassName", "volumeMode"]);
    spec["resources"] = pick(&theirs["spec"]["resources"], &["requests"]);
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {}, "spec": spec})
}

/// Returns these fields of an object, as far as it has them.
fn pick(object: &Value, fields: &[&str]) -> Value {
    let fields =
        fields.iter().filter_map(|name| Some(((*name).to_owned(), object.get(*name)?.clone())));
    Value::Object(fields.collect())
}

/// Returns the name of the claim with the scratch space of an importer pod, if it has one.
pub(super) fn scratch_claim(pod: &Value) -> Option<&str> {
    let mut volumes = list_at(pod, "/spec/volumes").iter();
    let scratch = volumes.find(|volume| volume["name"] == SCRATCH_VOLUME)?;
    text_at(scratch, "/persistentVolumeClaim/claimName")
}

#[cfg(test)]
mod tests {
    use testkit::cluster::imports::importer_pod;

    use super::*;

    /// Returns an importer pod of CDI as the API server has it, after admission and scheduling.
    fn admitted_pod(is_block: bool) -> Value {
        let mut pod = importer_pod("try-1", "https://h/d");
        pod["metadata"]["uid"] = json!("5f5a");
        let spec = &mut pod["spec"];
        spec["nodeName"] = json!("node-1");
        spec["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
        spec["priority"] = json!(0);
        spec["serviceAccount"] = json!("default");
        spec["tolerations"] =
            json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
        let mut add = |list: &str, value: Value| {
            spec.pointer_mut(list).and_then(Value::as_array_mut).unwrap().push(value);
        };
        add("/volumes", json!({"name": "kube-api-access-x", "projected": {}}));
        add("/volumes", json!({"name": "cdi-cert-vol", "configMap": {"name": "ca"}}));
        add("/volumes", json!({"name": "istio-token", "projected": {}}));
        let mounts = "/containers/0/volumeMounts";
        add(
            mounts,
            json!({"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}),
        );
        add(mounts, json!({"name": "cdi-cert-vol", "mountPath": "/certs"}));
        let secret = json!({"secretKeyRef": {"name": "keys", "key": "accessKeyId"}});
        add("/containers/0/env", json!({"name": "IMPORTER_ACCESS_KEY_ID", "valueFrom": secret}));
        add("/containers", json!({"name": "istio-proxy", "image": "istio"}));
        if is_block {
            let container = &mut spec["containers"][0];
            container["volumeMounts"].as_array_mut().unwrap().remove(0);
            container["volumeDevices"] =
                json!([{"name": "cdi-data-vol", "devicePath": "/dev/cdi-block-volume"}]);
        }
        pod
    }

    #[test]
    fn the_copy_of_an_importer_pod_differs_only_in_its_image_claim_and_node() {
        let theirs = admitted_pod(false);
        let copy = copy_importer(&theirs, "our/cdi-importer:1", "try-1-ours", false).unwrap();
        let annotations =
            json!({"linkerd.io/inject": "disabled", "sidecar.istio.io/inject": "false"});
        assert_eq!(copy["metadata"], json!({"annotations": annotations}));
        let (spec, container) = (&copy["spec"], &copy["spec"]["containers"][0]);
        let their_container = &theirs["spec"]["containers"][0];
        for field in ["args", "env", "ports", "resources", "securityContext", "imagePullPolicy"] {
            assert_eq!(container[field], their_container[field], "{field}");
        }
        assert_eq!(container["image"], "our/cdi-importer:1");
        assert_eq!(
            container["volumeMounts"],
            json!([{"name": "cdi-data-vol", "mountPath": "/data"}, {"name": "cdi-cert-vol", "mountPath": "/certs"}])
        );
        assert_eq!(
            spec["volumes"],
            json!([
                {"name": "cdi-data-vol", "persistentVolumeClaim": {"claimName": "try-1-ours"}},
                {"name": "cdi-cert-vol", "configMap": {"name": "ca"}},
            ])
        );
        let mut fields: Vec<&String> = spec.as_object().unwrap().keys().collect();
        fields.sort();
        let expected = [
            "affinity",
            "containers",
            "enableServiceLinks",
            "restartPolicy",
            "securityContext",
            "tolerations",
            "volumes",
        ];
        assert_eq!(fields, expected);
        assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
        assert!(spec["affinity"].to_string().contains(r#""values":["node-1"]"#), "{spec}");
        assert_eq!(spec["restartPolicy"], "Never");
        let left_to_cluster = copy_importer(&theirs, "i", "c", true).unwrap();
        assert!(!left_to_cluster.to_string().contains("107"), "{left_to_cluster}");
        let mut pending = theirs;
        pending["spec"]["nodeName"] = Value::Null;
        assert_eq!(copy_importer(&pending, "i", "c", false), None);
    }

    #[test]
    fn the_disks_are_compared_read_only() {
        for (is_block, paths) in [
            (false, ["/theirs/disk.img", "/ours/disk.img"]),
            (true, ["/dev/cdi-block-volume-theirs", "/dev/cdi-block-volume-ours"]),
        ] {
            let copy = copy_importer(&admitted_pod(is_block), "i", "try-1-ours", false).unwrap();
            let pod = compare_disks(&copy, ["try-1", "try-1-ours"]);
            let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
            assert_eq!(
                container["command"],
                json!(["cdi-importer", "compare", paths[0], paths[1]])
            );
            assert_eq!((&container["env"], &container["args"]), (&Value::Null, &Value::Null));
            assert_eq!(container["volumeMounts"].is_array(), !is_block);
            assert_eq!(container["volumeDevices"].is_array(), is_block);
            for (volume, claim) in ["try-1", "try-1-ours"].into_iter().enumerate() {
                let source = &spec["volumes"][volume]["persistentVolumeClaim"];
                assert_eq!(source, &json!({"claimName": claim, "readOnly": is_block}));
                if !is_block {
                    assert_eq!(container["volumeMounts"][volume]["readOnly"], true);
                }
            }
            assert_eq!(spec["affinity"], copy["spec"]["affinity"]);
        }
        let claim = json!({"metadata": {"name": "try-1"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Block", "volumeName": "pv-1",
            "dataSourceRef": {"kind": "VolumeImportSource"}, "resources": {"requests": {"storage": "1Gi"}},
        }});
        let copy = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}},
        });
        assert_eq!(copy_claim(&claim)["spec"], copy);
    }
}
