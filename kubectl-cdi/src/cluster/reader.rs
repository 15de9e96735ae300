//! The reader pod of a download: a short-lived pod with the cloner's image that mounts the claim
//! read-only, made with the user's own rights.

use kube::api::Portforwarder;
use kube::{Api, Error};
use program::cdi::READER_PORT;
use program::exit::ExitReason;
use program::names::is_subdomain;
use program::paths::{BLOCK_DEVICE, DISK_IMAGE};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::error::{busy_server, denied, not_found, request_error, silent_server};
use super::mode::VolumeMode;
use super::object::{list_at, printable_line, printable_text, text_at};
use super::pods;
use super::resource::ResourceKind;
use super::uid::ObjectUid;
use super::waiting::WaitReason;
use super::{ANSWER_LIMIT, Cluster};
use crate::error::{PluginError, PluginErrorKind};

/// The label of all reader pods. Pods that an interrupted client left can be deleted by it.
pub(crate) const READER_LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "kubectl-cdi");

/// The label with the identity of the download. A process that resumes a download finds the pod
/// of a killed process by it.
pub(super) const DOWNLOAD_LABEL: &str = "kubectl-cdi/download";

/// Longest time that a reader pod runs: longer than downloads usually take. A longer one resumes
/// with another pod.
const MAX_SECONDS: u32 = 24 * 60 * 60;

/// The user and group of KubeVirt's disks.
const QEMU_ID: u32 = 107;

/// The annotation with the user ids of a namespace on OpenShift, which chooses one of them and
/// rejects pods that name another.
const OPENSHIFT_UIDS: &str = "openshift.io/sa.scc.uid-range";

/// Number of characters of the claim's name in the name of the pod, whose limit is 63.
const NAME_CHARS: usize = 40;

/// A claim that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadableClaim {
    pub(crate) name: String,
    pub(crate) uid: ObjectUid,
    pub(crate) mode: VolumeMode,
    /// The node to which the volume is attached, if it can be attached to one node only.
    pub(crate) node: Option<String>,
    /// Pods of the same download that an earlier process could not remove.
    pub(crate) left_behind: Vec<ReaderPod>,
}

/// A reader pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderPod {
    pub(crate) name: String,
    uid: Option<ObjectUid>,
}

/// The state of a reader pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReaderState {
    /// The program in the pod runs.
    Running,
    /// The pod will run as soon as this reason no longer applies.
    Waiting(WaitReason),
    /// The pod cannot read the disk, and another pod could not either.
    Failed(String),
    /// The pod has ended, with this message.
    Ended(String),
    /// The pod does not exist, or is being deleted.
    Gone,
}

impl ReaderPod {
    /// Returns the pod of an earlier process. `None` if its name or UID is not valid.
    pub(super) fn from_object(pod: &Value) -> Option<Self> {
        let name = text_at(pod, "/metadata/name").filter(|name| is_subdomain(name))?;
        Some(Self { name: name.to_owned(), uid: Some(pod_uid(pod)?) })
    }

    /// Chooses the name of a pod for `claim`. The pod does not exist yet.
    pub(crate) fn named_for(claim: &ReadableClaim) -> Self {
        let short: String = claim.name.replace('.', "-").chars().take(NAME_CHARS).collect();
        let (short, suffix) = (short.trim_end_matches('-'), random_word());
        Self { name: format!("cdi-download-{short}-{suffix}"), uid: None }
    }
}

/// Returns eight random letters and digits, which make the name of an object unique.
pub(crate) fn random_word() -> String {
    std::iter::repeat_with(|| fastrand::alphanumeric().to_ascii_lowercase()).take(8).collect()
}

impl Cluster {
    /// Creates the pod for a claim.
    pub(crate) async fn create_reader(
        &self,
        pod: &ReaderPod,
        claim: &ReadableClaim,
        image: &str,
        download: &str,
    ) -> Result<ReaderPod, PluginError> {
        let mut manifest = reader_manifest(&pod.name, claim, image, self.chooses_uid().await);
        manifest["metadata"]["labels"][DOWNLOAD_LABEL] = json!(download);
        let made = self.create_object(ResourceKind::PODS, &pod.name, &manifest).await?;
        Ok(ReaderPod { name: pod.name.clone(), uid: pod_uid(&made) })
    }

    /// Fails if the user lacks a right that is needed for a reader pod. Without this check, a pod
    /// would be made that cannot be used or removed.
    pub(crate) async fn check_reader_rights(&self) -> Result<(), PluginError> {
        let check = |verb, subresource| self.check_right(verb, ResourceKind::PODS, subresource, "");
        tokio::try_join!(
            check("create", ""),
            check("get", ""),
            check("delete", ""),
            check("get", "portforward"),
            check("create", "portforward"),
        )
        .map(drop)
    }

    /// Returns true if the cluster chooses the user id of pods. If the namespace cannot be read,
    /// returns false.
    pub(super) async fn chooses_uid(&self) -> bool {
        let namespace = self.get_object(ResourceKind::NAMESPACES, &self.namespace).await;
        let namespace = namespace.ok().flatten().unwrap_or_default();
        namespace["metadata"]["annotations"][OPENSHIFT_UIDS].is_string()
    }

    /// Returns the current state of a pod.
    pub(crate) async fn reader_state(&self, pod: &ReaderPod) -> Result<ReaderState, PluginError> {
        let found = self.get_object(ResourceKind::PODS, &pod.name).await?;
        Ok(found.map_or(ReaderState::Gone, |found| reader_state(&found)))
    }

    /// Deletes a pod, if it exists.
    pub(crate) async fn remove_reader(&self, pod: &ReaderPod) -> Result<(), PluginError> {
        let uid = match &pod.uid {
            Some(uid) => Some(uid.clone()),
            // The response to the request that created the pod was not received.
            None => {
                let found = self.get_object(ResourceKind::PODS, &pod.name).await?;
                found.as_ref().and_then(pod_uid)
            }
        };
        let Some(uid) = uid else {
            return Ok(());
        };
        match self.delete_object(ResourceKind::PODS, &pod.name, &uid).await {
            Err(error) if error.kind == PluginErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }

    /// Connects to the port of a running pod, through the API server and the kubelet.
    pub(crate) async fn forward_port(&self, pod: &ReaderPod) -> Result<Portforwarder, PluginError> {
        let pods: Api<k8s_openapi::api::core::v1::Pod> =
            Api::namespaced(self.client.clone(), &self.namespace);
        let ports = [READER_PORT];
        match timeout(ANSWER_LIMIT, pods.portforward(&pod.name, &ports)).await {
            Err(_) => Err(silent_server(&self.host)),
            Ok(Ok(forwarder)) => Ok(forwarder),
            Ok(Err(Error::Api(status))) => {
                Err(self.forward_error(pod, status.code, &status.message))
            }
            Ok(Err(Error::UpgradeConnection(error))) => {
                Err(busy_server(&self.host, &printable_line(&error.to_string())))
            }
            Ok(Err(error)) => Err(request_error(&self.host, error)),
        }
    }

    fn forward_error(&self, pod: &ReaderPod, code: u16, words: &str) -> PluginError {
        match code {
            403 => {
                // Older API servers ask for the verb of the WebSocket request, which is a GET, and
                // newer ones for the verb of the older protocol, which used POST.
                let verb = if words.contains("cannot create") { "create" } else { "get" };
                denied(verb, "pods/portforward", &self.namespace)
            }
            404 => not_found(&format!("pod/{}", pod.name), &self.namespace),
            _ => busy_server(&self.host, &printable_line(words)),
        }
    }
}

fn pod_uid(pod: &Value) -> Option<ObjectUid> {
    ObjectUid::parse(text_at(pod, "/metadata/uid")?)
}

pub(super) fn reader_state(pod: &Value) -> ReaderState {
    if text_at(pod, "/metadata/deletionTimestamp").is_some() {
        return ReaderState::Gone;
    }
    let statuses = list_at(pod, "/status/containerStatuses");
    let phase = text_at(pod, "/status/phase");
    if matches!(phase, Some("Succeeded" | "Failed")) {
        let words = match pods::wait_reason(pod) {
            WaitReason::Crashing(words) => words,
            _ => printable_text(text_at(pod, "/status/message").or(text_at(pod, "/status/reason")))
                .unwrap_or_else(|| "it has ended".to_owned()),
        };
        let unreadable = u64::from(ExitReason::Source.exit_code());
        let codes = statuses.iter().map(|status| status.pointer("/state/terminated/exitCode"));
        let is_final = codes.flatten().any(|code| code.as_u64() == Some(unreadable));
        return if is_final { ReaderState::Failed(words) } else { ReaderState::Ended(words) };
    }
    let is_running = statuses.iter().any(|status| status.pointer("/state/running").is_some());
    match phase {
        Some("Running") if is_running => ReaderState::Running,
        _ => ReaderState::Waiting(pods::wait_reason(pod)),
    }
}

/// Returns the manifest of a reader pod. It satisfies the Pod Security Standard `restricted`.
fn reader_manifest(name: &str, claim: &ReadableClaim, image: &str, has_own_uid: bool) -> Value {
    let is_block = claim.mode == VolumeMode::Block;
    let path = if is_block { BLOCK_DEVICE } else { DISK_IMAGE };
    let (key, value) = READER_LABEL;
    let mut container = json!({
        "name": "reader",
        "image": image,
        "command": ["cdi-cloner", "serve", path, "--port", READER_PORT.to_string()],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        // Namespaces with a quota reject pods without them. The memory includes 64 MiB that the
        // program needs and pages of the volume.
        "resources": {
            "requests": {"cpu": "100m", "memory": "64Mi"},
            "limits": {"cpu": "2", "memory": "256Mi"},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    // A block device has no read-only mount; instead the kubelet allows only reads of it. For a
    // file system that would be the driver's task, which fails in some drivers if the volume is
    // already attached for writing.
    if is_block {
        container["volumeDevices"] = json!([{"name": "disk", "devicePath": path}]);
    } else {
        container["volumeMounts"] =
            json!([{"name": "disk", "mountPath": "/data", "readOnly": true}]);
    }
    let mut security = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    if !has_own_uid {
        security["runAsUser"] = json!(QEMU_ID);
        security["fsGroup"] = json!(QEMU_ID);
        security["fsGroupChangePolicy"] = json!("OnRootMismatch");
    }
    let mut spec = json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": MAX_SECONDS,
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": security,
        "containers": [container],
        "volumes": [{
            "name": "disk",
            "persistentVolumeClaim": {"claimName": claim.name, "readOnly": is_block},
        }],
    });
    if let Some(node) = &claim.node {
        let term =
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        spec["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
        }});
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {key: value},
            // Without `blockOwnerDeletion`, which needs another right in some clusters.
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "name": claim.name,
                "uid": claim.uid.as_str(),
            }],
        },
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(mode: VolumeMode, node: Option<&str>) -> ReadableClaim {
        ReadableClaim {
            name: "disk".to_owned(),
            uid: ObjectUid::parse("5f5a1c9e-0d2b").unwrap(),
            mode,
            node: node.map(str::to_owned),
            left_behind: Vec::new(),
        }
    }

    #[test]
    fn the_pod_is_restricted_and_mounts_the_claim_read_only() {
        for (mode, openshift) in [
            (VolumeMode::Filesystem, false),
            (VolumeMode::Block, false),
            (VolumeMode::Filesystem, true),
        ] {
            let pod = reader_manifest("p", &claim(mode, None), "i", openshift);
            let spec = &pod["spec"];
            assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
            assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            assert_eq!(spec["securityContext"]["runAsUser"].is_null(), openshift);
            let container = &spec["containers"][0];
            assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
            assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
            assert_eq!(spec["automountServiceAccountToken"], false);
            assert_eq!(spec["affinity"], Value::Null);
            let source = &spec["volumes"][0]["persistentVolumeClaim"];
            let is_block = mode == VolumeMode::Block;
            assert_eq!(source["readOnly"], is_block);
            assert_eq!(
                container["volumeMounts"][0]["readOnly"].as_bool(),
                (!is_block).then_some(true)
            );
            assert_eq!(container["volumeDevices"].is_array(), is_block);
        }
        let pod = reader_manifest("p", &claim(VolumeMode::Block, Some("n1")), "i", false);
        assert!(pod["spec"]["affinity"].to_string().contains("\"n1\""));
    }

    #[test]
    fn the_name_of_the_pod_is_valid_for_any_claim() {
        for name in ["a".repeat(253), "a.b-".repeat(20) + "c", "x".to_owned()] {
            let claim = ReadableClaim { name, ..claim(VolumeMode::Block, None) };
            let (pod, other) = (ReaderPod::named_for(&claim), ReaderPod::named_for(&claim));
            assert!(program::names::is_label(&pod.name), "{}", pod.name);
            assert_ne!(pod.name, other.name);
        }
    }

    #[test]
    fn the_state_tells_whether_another_pod_could_read_the_disk() {
        let ended = |code: u32, message: &str| {
            let end = json!({"exitCode": code, "message": message, "reason": "Error"});
            let status = json!({"ready": false, "state": {"terminated": end}});
            reader_state(&json!({"status": {"phase": "Failed", "containerStatuses": [status]}}))
        };
        assert_eq!(ended(3, "no disk.img"), ReaderState::Failed("no disk.img".to_owned()));
        assert_eq!(ended(7, "no client"), ReaderState::Ended("no client".to_owned()));
        let evicted = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        assert_eq!(reader_state(&evicted), ReaderState::Ended("Evicted".to_owned()));
        let leaving =
            json!({"metadata": {"deletionTimestamp": "now"}, "status": {"phase": "Running"}});
        assert_eq!(reader_state(&leaving), ReaderState::Gone);
        let running = json!({"status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}});
        assert_eq!(reader_state(&running), ReaderState::Running);
        let pending = json!({"status": {"phase": "Pending"}});
        assert_eq!(reader_state(&pending), ReaderState::Waiting(WaitReason::Starting(None)));
    }
}
