//! The current objects of a target: a DataVolume and its claim, in the state that CDI's
//! controllers have written.

use k8s_openapi::jiff::Timestamp;
use program::exit::ExitReason;
use program::names::is_subdomain;
use serde_json::Value;

use super::Cluster;
use super::destination::{VolumeTarget, VolumeTargetKind};
use super::error::{exceeded_quota, filled_volume, not_found, unbound_claim};
use super::final_reason::final_reason;
use super::mode::VolumeMode;
use super::object::{
    cdi_annotation, find_condition, list_at, printable_line, printable_text, text_at,
};
use super::resource::ResourceKind;
use super::uid::ObjectUid;
use crate::error::PluginError;

/// The objects of a target at one moment. An absent object is `null`, which has no fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TargetObjects {
    pub(crate) data_volume: Value,
    pub(crate) claim: Value,
}

impl TargetObjects {
    /// Returns true if there is neither a DataVolume nor a claim.
    pub fn is_empty(&self) -> bool {
        self.data_volume.is_null() && self.claim.is_null()
    }

    /// Returns true if the target itself exists. A DataVolume can exist without its claim.
    pub fn has_target(&self, target: &VolumeTarget) -> bool {
        match target.kind() {
            VolumeTargetKind::DataVolume => !self.data_volume.is_null(),
            VolumeTargetKind::Claim => !self.claim.is_null(),
        }
    }

    /// Returns the UID of the `target`'s claim. If a claim with the same name is created later, it
    /// gets another UID.
    pub fn claim_uid(&self, target: &VolumeTarget) -> Result<Option<ObjectUid>, PluginError> {
        if self.claim.is_null() {
            return Ok(None);
        }
        ObjectUid::from_object(&self.claim, target).map(Some)
    }

    /// Returns the size of the claim in bytes: its capacity if it is bound, otherwise the
    /// requested size.
    pub fn claim_bytes(&self) -> Option<u64> {
        // A claim can be bound to a volume that is larger than its request.
        let size = text_at(&self.claim, "/status/capacity/storage")
            .or_else(|| text_at(&self.claim, "/spec/resources/requests/storage"));
        program::quantity::parse_bytes(size?).ok()
    }

    /// Returns the size of the disk in bytes. This is the size that the DataVolume requests,
    /// without the overhead of a file system. If the DataVolume requests none, it is the size of
    /// the claim.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        let asked = ["storage", "pvc"].into_iter().find_map(|field| {
            text_at(&self.data_volume, &format!("/spec/{field}/resources/requests/storage"))
        });
        match asked {
            Some(size) => program::quantity::parse_bytes(size).ok(),
            None => self.claim_bytes(),
        }
    }

    /// Returns the checkpoints of a warm import, which runs in several steps.
    pub(crate) fn checkpoints(&self) -> &[Value] {
        list_at(&self.data_volume, "/spec/checkpoints")
    }

    /// Returns the volume mode of the claim.
    pub fn volume_mode(&self) -> VolumeMode {
        let mode = text_at(&self.claim, "/spec/volumeMode");
        mode.and_then(|mode| mode.parse().ok()).unwrap_or_default()
    }

    /// Returns the storage class of the claim.
    pub fn storage_class(&self) -> Option<&str> {
        text_at(&self.claim, "/spec/storageClassName")
    }

    /// Returns the phase of the DataVolume, named as in CDI.
    pub fn phase(&self) -> Option<&str> {
        text_at(&self.data_volume, "/status/phase")
    }

    /// Fails if the target does not exist, or is marked for deletion. A deleted claim remains
    /// visible as long as a pod uses it.
    pub(crate) fn check_not_deleted(&self, target: &VolumeTarget) -> Result<(), PluginError> {
        let both = [&self.data_volume, &self.claim];
        let is_leaving = |object: &Value| text_at(object, "/metadata/deletionTimestamp").is_some();
        if !self.has_target(target) || both.into_iter().any(is_leaving) {
            return Err(PluginError::target(format!(
                "{target} has been deleted: create it again, or choose another name"
            )));
        }
        Ok(())
    }

    /// Fails unless the target is waiting for an upload of this kind: an archive or a disk image.
    pub fn takes_upload(&self, target: &VolumeTarget, is_archive: bool) -> Result<(), PluginError> {
        if self.is_filled() {
            return Err(filled_volume(target));
        }
        self.check_not_deleted(target)?;
        if !self.is_upload() {
            return Err(PluginError::target(format!(
                "{target} is not waiting for an upload: it has neither the source \"upload\" nor the annotation \
                 cdi.kubevirt.io/storage.upload.target; choose another name"
            )));
        }
        let expected = match (self.is_archive(), is_archive) {
            (true, false) => "an archive: give --archive",
            (false, true) => "a disk image: leave out --archive",
            _ => return Ok(()),
        };
        Err(PluginError::usage(format!("{target} expects {expected}")))
    }

    /// Returns true if the volume is filled.
    pub(crate) fn is_filled(&self) -> bool {
        // A claim without a DataVolume has only this annotation, which contains the phase of its
        // pod.
        self.phase() == Some("Succeeded") || self.of_claim("storage.pod.phase") == Some("Succeeded")
    }

    /// Returns true if the upload server is ready.
    pub(crate) fn is_ready(&self) -> bool {
        let ready = self.of_claim("storage.pod.ready").map(program::env::go_bool);
        self.phase() == Some("UploadReady") || matches!(ready, Some(Ok(true)))
    }

    /// Returns true if the volume is meant for an upload.
    pub(crate) fn is_upload(&self) -> bool {
        let populator = text_at(&self.claim, "/spec/dataSourceRef/kind");
        self.data_volume.pointer("/spec/source/upload").is_some()
            || populator == Some("VolumeUploadSource")
            || self.of_claim("storage.upload.target").is_some()
    }

    pub(crate) fn is_archive(&self) -> bool {
        let content = text_at(&self.data_volume, "/spec/contentType");
        content.or_else(|| self.of_claim("storage.contentType")) == Some("archive")
    }

    /// Returns the failure that retries cannot change, if there is such a failure.
    pub(crate) fn final_failure(&self, target: &VolumeTarget) -> Option<PluginError> {
        let condition = |reason: &str| {
            let mut conditions = list_at(&self.data_volume, "/status/conditions").iter();
            let found = conditions.find(|condition| condition["reason"] == reason)?;
            Some(printable_line(text_at(found, "/message").unwrap_or_default()))
        };
        if let Some(words) = condition("ErrExceededQuota") {
            return Some(exceeded_quota(&words));
        }
        if let Some(words) = condition("ErrClaimNotValid").filter(|_| self.claim.is_null()) {
            return Some(unbound_claim(target, &words));
        }
        let is_failed = self.phase() == Some("Failed")
            || self.of_claim("storage.import.fatalError") == Some("true");
        let sentence = self.last_message();
        let exit = match self.running_condition("/reason", ".reason") {
            Some("ChecksumError") if is_failed => ExitReason::Checksum,
            _ if is_failed => ExitReason::Source,
            _ => final_reason(sentence.as_deref()?, self.restart_count())?,
        };
        let words = sentence.unwrap_or_else(|| "its pod gives no reason".to_owned());
        let message = if exit == ExitReason::NoSpace {
            let advice = "delete it, and import into a larger one, see --size";
            format!("{target} is too small: {words}; {advice}")
        } else if is_failed {
            format!("{target} has failed: {words}")
        } else {
            format!("{target} has failed: {words}; CDI retries until it is deleted")
        };
        Some(PluginError::new(exit, message))
    }

    /// Returns the number of times the pod was restarted.
    pub(crate) fn restart_count(&self) -> u64 {
        let counted = self.data_volume["status"]["restartCount"].as_u64();
        let annotated = || self.of_claim("storage.pod.restarts")?.parse().ok();
        counted.or_else(annotated).unwrap_or(0)
    }

    /// Returns the last message from the pod that fills the volume.
    pub(crate) fn last_message(&self) -> Option<String> {
        printable_text(self.running_condition("/message", ".message"))
    }

    /// Returns the time at which the pod that fills the volume started, according to the
    /// DataVolume.
    pub(crate) fn running_since(&self) -> Option<Timestamp> {
        let running = find_condition(&self.data_volume, "Running")?;
        let since =
            text_at(running, "/lastTransitionTime").filter(|_| running["status"] == "True")?;
        since.parse().ok()
    }

    /// Returns the creation time of the DataVolume, or of the claim if there is no DataVolume.
    pub(crate) fn created(&self) -> Option<Timestamp> {
        self.metadata("creationTimestamp")?.parse().ok()
    }

    /// Returns the namespace of the objects.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.metadata("namespace")
    }

    fn metadata(&self, field: &str) -> Option<&str> {
        let object = if self.data_volume.is_null() { &self.claim } else { &self.data_volume };
        object["metadata"][field].as_str()
    }

    /// Returns the kind of the source, such as `http` or `upload`.
    pub(crate) fn source_name(&self) -> Option<String> {
        let source = self.data_volume["spec"]["source"].as_object();
        let of_volume = source.and_then(|source| source.keys().next()).map(String::as_str);
        let reference = || text_at(&self.data_volume, "/spec/sourceRef/kind");
        let upload = || self.is_upload().then_some("upload");
        let populator = || text_at(&self.claim, "/spec/dataSourceRef/kind");
        let name = of_volume
            .or_else(reference)
            .or_else(|| self.of_claim("storage.import.source"))
            .or_else(upload)
            .or_else(populator);
        name.map(printable_line)
    }

    /// Returns a field of the condition `Running`. It is read from the DataVolume if there is one,
    /// otherwise from the annotations of the claim.
    fn running_condition(&self, field: &str, suffix: &str) -> Option<&str> {
        let running = find_condition(&self.data_volume, "Running");
        let said = running.and_then(|running| text_at(running, field));
        said.or_else(|| self.of_claim(&format!("storage.condition.running{suffix}")))
    }

    /// Returns the name of the temporary claim that a populator fills in place of this one.
    pub(crate) fn prime_claim(&self) -> Option<&str> {
        self.of_claim("storage.populator.pvcPrime").filter(|name| is_subdomain(name))
    }

    pub(crate) fn of_claim(&self, name: &str) -> Option<&str> {
        cdi_annotation(&self.claim, name)
    }
}

impl Cluster {
    /// Reads the objects of a target. A target without objects is not an error.
    pub async fn find_target(&self, target: &VolumeTarget) -> Result<TargetObjects, PluginError> {
        let data_volume = match target.kind() {
            VolumeTargetKind::DataVolume => {
                self.get_object(ResourceKind::DATA_VOLUMES, target.name()).await?
            }
            VolumeTargetKind::Claim => None,
        };
        let claim = self.get_object(ResourceKind::CLAIMS, target.name()).await?;
        Ok(TargetObjects {
            data_volume: data_volume.unwrap_or_default(),
            claim: claim.unwrap_or_default(),
        })
    }

    /// Reads the objects of a target that must exist. A filled claim is sufficient, because some
    /// versions of CDI delete a DataVolume that has succeeded.
    pub async fn find_existing(&self, target: &VolumeTarget) -> Result<TargetObjects, PluginError> {
        let found = self.find_target(target).await?;
        if found.has_target(target) || found.is_filled() {
            Ok(found)
        } else {
            Err(self.not_found(target))
        }
    }

    /// Creates the error for a target that does not exist.
    pub fn not_found(&self, target: &VolumeTarget) -> PluginError {
        not_found(&target.to_string(), &self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(annotations: &[(&str, &str)]) -> TargetObjects {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(name, value)| (format!("cdi.kubevirt.io/{name}"), json!(value)))
            .collect();
        TargetObjects {
            data_volume: Value::Null,
            claim: json!({
                "metadata": {"uid": "u-1", "annotations": annotations},
                "spec": {"resources": {"requests": {"storage": "1Gi"}}},
            }),
        }
    }

    fn volume(volume: Value) -> TargetObjects {
        TargetObjects { data_volume: volume, claim: Value::Null }
    }

    #[test]
    fn a_claim_accepts_an_upload_while_it_waits() {
        let target: VolumeTarget = "pvc/disk".parse().unwrap();
        let upload = ("storage.upload.target", "");
        claim(&[upload]).takes_upload(&target, false).unwrap();
        let refused = |found: TargetObjects, archive| {
            found.takes_upload(&target, archive).unwrap_err().to_string()
        };
        let filled = claim(&[upload, ("storage.pod.phase", "Succeeded")]);
        assert!(refused(filled, false).contains("is already filled"));
        assert!(refused(claim(&[]), false).contains("is not waiting for an upload"));
        let archive = claim(&[upload, ("storage.contentType", "archive")]);
        archive.takes_upload(&target, true).unwrap();
        assert_eq!(refused(archive, false), "pvc/disk expects an archive: give --archive");
        let said = refused(claim(&[upload]), true);
        assert_eq!(said, "pvc/disk expects a disk image: leave out --archive");
    }

    #[test]
    fn size_mode_and_uid_are_read_from_a_claim() {
        let mut found = claim(&[("storage.pod.ready", "true")]);
        let uid = found.claim_uid(&"pvc/disk".parse().unwrap()).unwrap().unwrap();
        assert_eq!((uid.as_str(), found.claim_bytes()), ("u-1", Some(1 << 30)));
        assert_eq!(found.volume_mode(), VolumeMode::Filesystem);
        assert!(found.is_ready());
        let object = &mut found.claim;
        object["spec"]["volumeMode"] = json!("Block");
        object["status"] = json!({"capacity": {"storage": "2Gi"}});
        assert_eq!((found.volume_mode(), found.claim_bytes()), (VolumeMode::Block, Some(2 << 30)));
        assert_eq!(TargetObjects::default().claim_bytes(), None);
    }

    #[test]
    fn a_data_volume_accepts_an_upload_by_its_phase() {
        let target: VolumeTarget = "dv/disk".parse().unwrap();
        let spec = json!({"source": {"upload": {}}});
        let phase = |phase: &str| volume(json!({"spec": spec, "status": {"phase": phase}}));
        phase("UploadScheduled").takes_upload(&target, false).unwrap();
        assert!(phase("UploadReady").is_ready());
        assert!(phase("Succeeded").takes_upload(&target, false).is_err());
        let http = volume(json!({"spec": {"source": {"http": {"url": "https://h"}}}}));
        assert!(http.takes_upload(&target, false).is_err());
    }

    #[test]
    fn a_final_failure_is_reported_with_the_message_of_the_pod() {
        let target: VolumeTarget = "dv/disk".parse().unwrap();
        let failed = volume(json!({"status": {"phase": "Failed", "conditions": [
            {"type": "Running", "reason": "ChecksumError", "message": "checksum mismatch: expected a"},
        ]}}));
        let error = failed.final_failure(&target).unwrap();
        assert_eq!(error.to_string(), "dv/disk has failed: checksum mismatch: expected a");
        assert_eq!(error.exit, ExitReason::Checksum);
        let quota = volume(json!({"status": {"phase": "Pending", "conditions": [
            {"type": "Bound", "reason": "ErrExceededQuota", "message": "exceeded quota: small"},
        ]}}));
        assert_eq!(quota.final_failure(&target).unwrap().exit, ExitReason::NoSpace);
        let running = volume(json!({"status": {"phase": "ImportInProgress"}}));
        assert!(running.final_failure(&target).is_none());
    }
}
