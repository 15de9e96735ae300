//! The claim that a download reads: found by the name of a volume or of a virtual machine, and
//! checked for everything that would prevent reading it.

use std::fmt;
use std::str::FromStr;

use program::names::is_subdomain;
use serde_json::Value;

use super::Cluster;
use super::destination::{UNKNOWN_KIND, VolumeTarget, VolumeTargetKind, check_name};
use super::error::not_found;
use super::look::TargetObjects;
use super::object::{list_at, printable_line, text_at};
use super::reader::{DOWNLOAD_LABEL, READER_LABEL, ReadableClaim, ReaderPod};
use super::resource::ResourceKind;
use super::uid::ObjectUid;
use crate::error::{PluginError, PluginErrorKind};

/// Maximum number of pods or disks that a message lists.
const MAX_LISTED: usize = 10;

/// The source of a download, in the notation of users: `pvc/NAME`, `dv/NAME` or `vm/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadSource {
    /// A claim, or a DataVolume, whose claim has the same name.
    Volume(VolumeTarget),
    /// The only disk of the virtual machine with this name.
    Machine(String),
}

impl FromStr for DownloadSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some(("vm" | "virtualmachine", name)) => {
                check_name(name)?;
                Ok(Self::Machine(name.to_owned()))
            }
            _ => match text.parse() {
                Ok(target) => Ok(Self::Volume(target)),
                Err(error) if error == UNKNOWN_KIND => {
                    Err("use pvc/NAME, dv/NAME or vm/NAME".to_owned())
                }
                Err(error) => Err(error),
            },
        }
    }
}

impl fmt::Display for DownloadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(target) => write!(f, "{target}"),
            Self::Machine(name) => write!(f, "vm/{name}"),
        }
    }
}

/// A pod that uses a claim and has not ended.
struct ClaimUser {
    /// The name of the pod and, if it runs one, of its virtual machine.
    name: String,
    node: Option<String>,
    /// True if it is the pod of a download, which only reads.
    is_reader: bool,
}

impl Cluster {
    /// Finds the claim of `source`, and checks that it can be read. If `force` is true, it may be
    /// in use. `download` identifies the download, whose own pods do not count.
    pub async fn readable_claim(
        &self,
        source: &DownloadSource,
        force: bool,
        download: &str,
    ) -> Result<ReadableClaim, PluginError> {
        let target = match source {
            DownloadSource::Volume(target) => target.clone(),
            DownloadSource::Machine(name) => self.disk_of_machine(name).await?,
        };
        let found = self.find_existing(&target).await?;
        let claim = &found.claim;
        if claim.is_null() {
            return Err(self.not_found(&target));
        }
        check_content(&found, &target)?;
        let modes: Vec<_> = list_at(claim, "/spec/accessModes").iter().collect();
        let pods = self.list_objects(ResourceKind::PODS, None).await?;
        let (own, others): (Vec<_>, Vec<_>) =
            pods.iter().partition(|pod| pod["metadata"]["labels"][DOWNLOAD_LABEL] == download);
        let users = others.into_iter().filter(|pod| uses_claim(pod, target.name()));
        let users: Vec<_> = users.map(claim_user).collect();
        let named = |filter: fn(&ClaimUser) -> bool| {
            let names = users.iter().filter(|user| filter(user)).map(|user| user.name.as_str());
            names.take(MAX_LISTED).collect::<Vec<_>>().join(", ")
        };
        let (all, writers) = (named(|_| true), named(|user| !user.is_reader));
        if !all.is_empty() && modes.iter().any(|mode| **mode == "ReadWriteOncePod") {
            return Err(PluginError::unread(format!(
                "{target} is in use by {all}, and its access mode ReadWriteOncePod allows one pod only: stop that pod first"
            )));
        }
        if !writers.is_empty() {
            let in_use = format!("{target} is in use by {writers}");
            if !force {
                return Err(PluginError::unread(format!(
                    "{in_use}: stop it first, or give --force to read the disk while it changes, which can give an inconsistent copy"
                )));
            }
            tracing::warn!("{in_use}: the downloaded disk may be inconsistent");
        }
        let is_shared =
            modes.iter().any(|mode| **mode == "ReadWriteMany" || **mode == "ReadOnlyMany");
        let node = users.into_iter().find_map(|user| user.node).filter(|_| !is_shared);
        Ok(ReadableClaim {
            name: target.name().to_owned(),
            uid: ObjectUid::from_object(claim, &target)?,
            mode: found.volume_mode(),
            node,
            left_behind: own.into_iter().filter_map(ReaderPod::from_object).collect(),
        })
    }

    /// Returns the claim of the only disk of a virtual machine.
    async fn disk_of_machine(&self, name: &str) -> Result<VolumeTarget, PluginError> {
        let machine = match self.get_object(ResourceKind::MACHINES, name).await {
            Ok(Some(machine)) => machine,
            Ok(None) => return Err(not_found(&format!("vm/{name}"), &self.namespace)),
            // An API server without KubeVirt answers without a Status object.
            Err(error) if error.kind == PluginErrorKind::NotKubernetes => {
                return Err(PluginError::unread(
                    "KubeVirt is not installed in this cluster: give pvc/NAME or dv/NAME instead of a virtual machine",
                ));
            }
            Err(error) => return Err(error),
        };
        let disks = machine_disks(&machine);
        match disks.as_slice() {
            [disk] => Ok(disk.clone()),
            [] => Err(PluginError::usage(format!(
                "vm/{name} has no disk on a claim: give pvc/NAME or dv/NAME"
            ))),
            disks => {
                let count = disks.len();
                let names: Vec<_> =
                    disks.iter().take(MAX_LISTED).map(ToString::to_string).collect();
                let names = names.join(", ");
                Err(PluginError::usage(format!("vm/{name} has {count} disks: choose one: {names}")))
            }
        }
    }
}

/// Fails if the claim is not bound, not filled, or contains files.
fn check_content(found: &TargetObjects, target: &VolumeTarget) -> Result<(), PluginError> {
    found.check_not_deleted(target)?;
    let phase = text_at(&found.claim, "/status/phase").unwrap_or("Pending");
    if phase != "Bound" {
        let phase = printable_line(phase);
        return Err(PluginError::unread(format!(
            "{target} is not bound to a volume (phase {phase}): there is nothing to read yet; look at: kubectl cdi status {target}"
        )));
    }
    let filling = found.phase().or_else(|| found.of_claim("storage.pod.phase"));
    if let Some(phase) = filling.filter(|_| !found.is_filled()) {
        let phase = printable_line(phase);
        return Err(PluginError::unread(format!(
            "{target} is not filled yet (phase {phase}); look at: kubectl cdi status {target}"
        )));
    }
    if found.is_archive() {
        return Err(PluginError::unread(format!(
            "{target} contains the files of an archive, not a disk: only disks can be downloaded"
        )));
    }
    Ok(())
}

/// Returns true if a pod that has not ended mounts the claim.
fn uses_claim(pod: &Value, claim: &str) -> bool {
    let has_ended = matches!(text_at(pod, "/status/phase"), Some("Succeeded" | "Failed"));
    let mut volumes = list_at(pod, "/spec/volumes").iter();
    !has_ended
        && volumes.any(|volume| text_at(volume, "/persistentVolumeClaim/claimName") == Some(claim))
}

fn claim_user(pod: &Value) -> ClaimUser {
    let name = printable_line(text_at(pod, "/metadata/name").unwrap_or_default());
    let labels = &pod["metadata"]["labels"];
    let (key, value) = READER_LABEL;
    ClaimUser {
        // KubeVirt sets this label on the pods of its virtual machines.
        name: match labels["vm.kubevirt.io/name"].as_str() {
            Some(machine) => format!("vm/{} (pod/{name})", printable_line(machine)),
            None => format!("pod/{name}"),
        },
        node: text_at(pod, "/spec/nodeName").filter(|node| is_subdomain(node)).map(str::to_owned),
        is_reader: labels[key] == value,
    }
}

/// Returns the claims and DataVolumes that are disks of a virtual machine.
fn machine_disks(machine: &Value) -> Vec<VolumeTarget> {
    let volumes = list_at(machine, "/spec/template/spec/volumes").iter();
    let disks = volumes.filter_map(|volume| {
        let claim = text_at(volume, "/persistentVolumeClaim/claimName");
        let named = claim
            .map(|name| (VolumeTargetKind::Claim, name))
            .or_else(|| Some((VolumeTargetKind::DataVolume, text_at(volume, "/dataVolume/name")?)));
        let (kind, name) = named?;
        VolumeTarget::new(kind, name).ok()
    });
    disks.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_is_a_claim_a_data_volume_or_a_machine() {
        for (text, shown) in
            [("pvc/a", "pvc/a"), ("datavolume/a.b", "dv/a.b"), ("virtualmachine/a", "vm/a")]
        {
            assert_eq!(text.parse::<DownloadSource>().unwrap().to_string(), shown);
        }
        for text in ["", "a", "vmi/a", "vm/", "vm/../a", "vm/A", "dv/a?b"] {
            assert!(text.parse::<DownloadSource>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_disks_with_valid_names_are_found_in_a_machine() {
        let machine = json!({"spec": {"template": {"spec": {"volumes": [
            {"name": "cloud-init", "cloudInitNoCloud": {}},
            {"name": "root", "dataVolume": {"name": "root"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "bad", "persistentVolumeClaim": {"claimName": "../../secrets/x"}},
        ]}}}});
        let disks: Vec<_> = machine_disks(&machine).iter().map(ToString::to_string).collect();
        assert_eq!(disks, ["dv/root", "pvc/data"]);
        assert!(machine_disks(&Value::Null).is_empty());
    }

    #[test]
    fn a_pod_that_has_ended_does_not_use_its_claims() {
        let pod = |phase: &str| {
            json!({
                "metadata": {"name": "virt-launcher-a-x", "labels": {"vm.kubevirt.io/name": "a"}},
                "spec": {"nodeName": "n1", "volumes": [{"persistentVolumeClaim": {"claimName": "disk"}}]},
                "status": {"phase": phase},
            })
        };
        for (phase, uses) in
            [("Pending", true), ("Running", true), ("Succeeded", false), ("Failed", false)]
        {
            assert_eq!(uses_claim(&pod(phase), "disk"), uses, "{phase}");
        }
        assert!(!uses_claim(&pod("Running"), "other"));
        let user = claim_user(&pod("Running"));
        assert_eq!(user.name, "vm/a (pod/virt-launcher-a-x)");
        assert_eq!((user.node.as_deref(), user.is_reader), (Some("n1"), false));
    }
}
