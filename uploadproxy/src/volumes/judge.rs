//! Interprets the annotations of a PVC for an upload, without any I/O. CDI's controller writes
//! these annotations.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;

use super::{MESSAGE_CHARS, UploadContent};

/// Marks a PVC that is to be filled by an upload.
const UPLOAD_TARGET: &str = "cdi.kubevirt.io/storage.upload.target";
/// The phase of the upload pod.
const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
/// Boolean: true if the upload server is ready.
const POD_READY: &str = "cdi.kubevirt.io/storage.pod.ready";
/// The content type: `kubevirt` for a disk, or `archive`.
const CONTENT_TYPE: &str = "cdi.kubevirt.io/storage.contentType";
/// The name of the PVC that is actually filled while a populator is at work, called the PVC prime.
const PRIME: &str = "cdi.kubevirt.io/storage.populator.pvcPrime";

/// API group and kind of the populator for uploads.
const POPULATOR: (&str, &str) = ("cdi.kubevirt.io", "VolumeUploadSource");

/// The PVC that an upload fills.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FilledClaim {
    /// The PVC itself.
    Itself,
    /// The PVC prime of a populator: another PVC with this name in the same namespace, which is
    /// filled first.
    Prime(String),
    /// A PVC prime that does not exist yet.
    NotYet,
}

/// Returns the PVC that an upload to `pvc` fills.
pub(super) fn filled_claim(pvc: &PersistentVolumeClaim) -> FilledClaim {
    let source = pvc.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    let by_populator = source.is_some_and(|source| {
        (source.api_group.as_deref().unwrap_or_default(), source.kind.as_str()) == POPULATOR
            && !source.name.is_empty()
    });
    if !by_populator {
        return FilledClaim::Itself;
    }
    match pvc.annotations().get(PRIME) {
        Some(name) => FilledClaim::Prime(name.clone()),
        None => FilledClaim::NotYet,
    }
}

/// Returns the content type that the filled PVC `pvc` expects, or `None` while its upload server
/// is not ready. `asked` is the PVC that the client named. The error is worded for the client.
pub(super) fn upload_content(
    asked: &str,
    pvc: &PersistentVolumeClaim,
) -> Result<Option<UploadContent>, String> {
    let annotations = pvc.annotations();
    let name = pvc.name_any();
    // The checks are in upstream's order, because the client gets the first error (contract §3.6).
    if !annotations.contains_key(UPLOAD_TARGET) {
        return Err(format!("PVC {name} is not an upload target"));
    }
    if annotations.get(POD_PHASE).is_some_and(|phase| phase == "Succeeded") {
        return Err(format!(
            "rejecting Upload Request for PVC {asked} that already finished uploading"
        ));
    }
    let ready = annotations.get(POD_READY);
    if !ready.is_some_and(|ready| program::env::go_bool(ready).unwrap_or(false)) {
        return Ok(None);
    }
    match annotations.get(CONTENT_TYPE).map_or("", String::as_str) {
        "" | "kubevirt" => Ok(Some(UploadContent::Disk)),
        "archive" => Ok(Some(UploadContent::Archive)),
        other => Err(format!(
            "rejecting upload request for PVC {name} - upload content-type {} is invalid",
            printable::escape_line(other, MESSAGE_CHARS)
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pvc(annotations: &[(&str, &str)], spec: &Value) -> PersistentVolumeClaim {
        let annotations: serde_json::Map<String, Value> =
            annotations.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let object =
            json!({"metadata": {"name": "disk", "annotations": annotations}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    fn judged(annotations: &[(&str, &str)]) -> Result<Option<UploadContent>, String> {
        upload_content("asked", &pvc(annotations, &json!({})))
    }

    #[test]
    fn the_content_type_of_a_ready_target_is_followed() {
        let (disk, archive) = (UploadContent::Disk, UploadContent::Archive);
        for (ready, content_type, expected) in [
            ("true", "", Some(disk)),
            ("1", "kubevirt", Some(disk)),
            ("T", "archive", Some(archive)),
            // A target that is not ready is waited for.
            ("false", "", None),
            ("", "", None),
            ("yes", "", None),
        ] {
            let annotations =
                [(UPLOAD_TARGET, ""), (POD_READY, ready), (CONTENT_TYPE, content_type)];
            assert_eq!(judged(&annotations), Ok(expected), "{ready} {content_type}");
        }
        let annotations = [(UPLOAD_TARGET, ""), (POD_PHASE, "Running"), (CONTENT_TYPE, "x")];
        assert_eq!(judged(&annotations), Ok(None));
        assert_eq!(judged(&[(UPLOAD_TARGET, ""), (POD_READY, "true")]), Ok(Some(disk)));
    }

    #[test]
    fn a_target_that_cannot_get_ready_is_refused_with_upstreams_message() {
        for (annotations, message) in [
            (vec![(POD_READY, "true")], "PVC disk is not an upload target"),
            (
                vec![(UPLOAD_TARGET, ""), (POD_PHASE, "Succeeded"), (POD_READY, "true")],
                "rejecting Upload Request for PVC asked that already finished uploading",
            ),
            (
                vec![(UPLOAD_TARGET, ""), (POD_READY, "true"), (CONTENT_TYPE, "<b>")],
                "rejecting upload request for PVC disk - upload content-type <b> is invalid",
            ),
        ] {
            assert_eq!(judged(&annotations).unwrap_err(), message);
        }
    }

    #[test]
    fn a_populated_claim_is_filled_through_its_prime() {
        let source = |group: &str, kind: &str, name: &str| json!({"dataSourceRef": {"apiGroup": group, "kind": kind, "name": name}});
        let upload = source("cdi.kubevirt.io", "VolumeUploadSource", "source");
        assert_eq!(filled_claim(&pvc(&[], &upload)), FilledClaim::NotYet);
        let prime = filled_claim(&pvc(&[(PRIME, "prime-1")], &upload));
        assert_eq!(prime, FilledClaim::Prime("prime-1".to_owned()));
        for other in [
            json!({}),
            source("cdi.kubevirt.io", "VolumeImportSource", "source"),
            source("example.org", "VolumeUploadSource", "source"),
            source("cdi.kubevirt.io", "VolumeUploadSource", ""),
        ] {
            assert_eq!(filled_claim(&pvc(&[(PRIME, "prime-1")], &other)), FilledClaim::Itself);
        }
    }
}
