//! Creates volumes: a DataVolume, or a claim with the annotations that tell CDI how to fill it.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::Cluster;
use super::destination::{VolumeTarget, VolumeTargetKind};
use super::import::ClusterImport;
use super::mode::{VolumeMode, parse_access_mode};
use super::object::{self, PREFIX, object_of};
use super::size::format_quantity;
use super::uid::ObjectUid;
use crate::error::PluginError;

/// The default access mode of a claim without a DataVolume; every claim must state one. For a
/// DataVolume, CDI chooses a mode that the storage supports.
const ACCESS_MODE: &str = "ReadWriteOnce";

/// The source of a volume's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentSource {
    /// An image that is uploaded from this machine.
    Upload,
    /// An image that the cluster imports.
    Import(ClusterImport),
}

/// The description of a volume to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedVolume {
    /// The kind and the name of the volume.
    pub target: VolumeTarget,
    /// The source of the volume's content.
    pub source: ContentSource,
    /// The size to request in bytes, see [`request_bytes`](super::size::request_bytes).
    pub size_bytes: u64,
    /// True if the content is a tar archive whose files are unpacked into the volume.
    pub archive: bool,
    /// The options that the user gave.
    pub options: VolumeOptions,
}

/// The command-line options that describe a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
#[command(next_help_heading = "Volume")]
pub struct VolumeOptions {
    /// Storage class [default: the cluster's]
    #[arg(long, value_name = "NAME")]
    pub storage_class: Option<String>,

    /// Access mode, such as ReadWriteMany or RWX [default: chosen by CDI for the storage]
    #[arg(long, value_name = "MODE", value_parser = parse_access_mode)]
    pub access_mode: Option<String>,

    /// Filesystem or Block [default: chosen by CDI for the storage]
    #[arg(long, value_name = "MODE")]
    pub volume_mode: Option<VolumeMode>,

    /// Allocate all space in advance
    #[arg(long)]
    pub preallocation: bool,

    /// Bind the volume before a VM uses it
    #[arg(long)]
    pub force_bind: bool,

    /// Default instance type of VMs with this disk
    #[arg(long, alias = "default-instancetype", value_name = "NAME")]
    pub instancetype: Option<String>,

    /// Scope of --instancetype [default: cluster]
    #[arg(long, value_name = "SCOPE", value_enum, requires = "instancetype")]
    pub instancetype_scope: Option<ObjectScope>,

    /// Default preference of VMs with this disk
    #[arg(long, alias = "default-preference", value_name = "NAME")]
    pub preference: Option<String>,

    /// Scope of --preference [default: cluster]
    #[arg(long, value_name = "SCOPE", value_enum, requires = "preference")]
    pub preference_scope: Option<ObjectScope>,
}

/// Values of `--instancetype-scope` and `--preference-scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectScope {
    /// VirtualMachineClusterInstancetype, VirtualMachineClusterPreference
    Cluster,
    /// VirtualMachineInstancetype, VirtualMachinePreference
    Namespace,
}

/// Builds the DataVolume or the claim as JSON.
pub fn build_manifest(wanted: &WantedVolume) -> Value {
    let options = &wanted.options;
    let mut metadata = json!({"name": wanted.target.name()});
    let instancetype_kind = options.instancetype_scope.map(|scope| match scope {
        ObjectScope::Cluster => "VirtualMachineClusterInstancetype",
        ObjectScope::Namespace => "VirtualMachineInstancetype",
    });
    let preference_kind = options.preference_scope.map(|scope| match scope {
        ObjectScope::Cluster => "VirtualMachineClusterPreference",
        ObjectScope::Namespace => "VirtualMachinePreference",
    });
    let labels = object_of([
        ("instancetype.kubevirt.io/default-instancetype", options.instancetype.as_deref()),
        ("instancetype.kubevirt.io/default-instancetype-kind", instancetype_kind),
        ("instancetype.kubevirt.io/default-preference", options.preference.as_deref()),
        ("instancetype.kubevirt.io/default-preference-kind", preference_kind),
    ]);
    let immediate = options.force_bind.then_some("true");
    let mut annotations = object_of([("storage.bind.immediate.requested", immediate)]);
    let mut storage =
        json!({"resources": {"requests": {"storage": format_quantity(wanted.size_bytes)}}});
    set_field(&mut storage, "storageClassName", options.storage_class.as_deref());
    let mode = options.volume_mode.map(|mode| mode.to_string());
    set_field(&mut storage, "volumeMode", mode.as_deref());
    let access = options.access_mode.as_deref();
    let (version, kind, spec) = match wanted.target.kind() {
        VolumeTargetKind::DataVolume => {
            if let Some(mode) = access {
                storage["accessModes"] = json!([mode]);
            }
            // The field is `storage` and not `pvc`, because only with `storage` does CDI choose
            // modes that the storage supports.
            let mut spec = json!({"source": source_value(&wanted.source), "storage": storage});
            set_field(&mut spec, "contentType", wanted.archive.then_some("archive"));
            if options.preallocation {
                spec["preallocation"] = json!(true);
            }
            ("cdi.kubevirt.io/v1beta1", "DataVolume", spec)
        }
        VolumeTargetKind::Claim => {
            storage["accessModes"] = json!([access.unwrap_or(ACCESS_MODE)]);
            annotations.extend(source_annotations(&wanted.source));
            annotations.extend(object_of([
                ("storage.contentType", wanted.archive.then_some("archive")),
                ("storage.preallocation.requested", options.preallocation.then_some("true")),
            ]));
            ("v1", "PersistentVolumeClaim", storage)
        }
    };
    let annotations = annotations.into_iter();
    let annotations = annotations.map(|(name, value)| (format!("{PREFIX}{name}"), value)).collect();
    for (field, map) in [("labels", labels), ("annotations", annotations)] {
        if !map.is_empty() {
            metadata[field] = Value::Object(map);
        }
    }
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
}

/// Formats the object as YAML, for `kubectl apply -f -`.
pub fn to_yaml(manifest: &Value) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(manifest)
}

/// Returns the `source` field of a DataVolume.
fn source_value(source: &ContentSource) -> Value {
    match source {
        ContentSource::Upload => json!({"upload": {}}),
        ContentSource::Import(import) => import.source_value(),
    }
}

/// Returns the annotations that describe the source to CDI's controllers, for a claim without a
/// DataVolume, without CDI's prefix.
fn source_annotations(source: &ContentSource) -> Map<String, Value> {
    match source {
        ContentSource::Upload => object_of([("storage.upload.target", Some(""))]),
        ContentSource::Import(import) => import.claim_annotations(),
    }
}

fn set_field(object: &mut Value, field: &str, value: Option<&str>) {
    if let Some(value) = value {
        object[field] = json!(value);
    }
}

impl Cluster {
    /// Creates the volume and returns its UID.
    pub async fn create_volume(&self, wanted: &WantedVolume) -> Result<ObjectUid, PluginError> {
        let target = &wanted.target;
        let manifest = build_manifest(wanted);
        let made =
            self.create_object(target.kind().resource_kind(), target.name(), &manifest).await?;
        let uid = ObjectUid::from_object(&made, target)?;
        // The API server silently drops fields that it does not support. In that case the checksum
        // would not be verified.
        let checksum = |object| object::text_at(object, "/spec/source/http/checksum");
        if checksum(&manifest) != checksum(&made) {
            self.remove_volume(target, &uid).await?;
            return Err(PluginError::target(format!(
                "{target} was not created: the CDI of this cluster does not support checksums of sources; leave out --checksum, or \
                 ask for a newer CDI"
            )));
        }
        Ok(uid)
    }

    /// Lets the API server validate the volume without creating it.
    pub async fn validate_volume(&self, wanted: &WantedVolume) -> Result<(), PluginError> {
        let (target, manifest) = (&wanted.target, build_manifest(wanted));
        self.validate_object(target.kind().resource_kind(), target.name(), &manifest).await
    }

    /// Removes a volume that [`create_volume`](Self::create_volume) has created. Fails if another
    /// object with the same name has replaced it.
    pub async fn remove_volume(
        &self,
        target: &VolumeTarget,
        uid: &ObjectUid,
    ) -> Result<(), PluginError> {
        self.delete_object(target.kind().resource_kind(), target.name(), uid).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(target: &str) -> WantedVolume {
        WantedVolume {
            target: target.parse().unwrap(),
            source: ContentSource::Upload,
            size_bytes: 10 << 30,
            archive: false,
            options: VolumeOptions::default(),
        }
    }

    fn full(target: &str) -> WantedVolume {
        let options = VolumeOptions {
            storage_class: Some("fast".to_owned()),
            access_mode: Some("ReadWriteMany".to_owned()),
            volume_mode: Some(VolumeMode::Block),
            preallocation: true,
            force_bind: true,
            instancetype: Some("u1.small".to_owned()),
            preference: Some("fedora".to_owned()),
            preference_scope: Some(ObjectScope::Namespace),
            ..VolumeOptions::default()
        };
        WantedVolume { archive: true, options, ..wanted(target) }
    }

    #[test]
    fn a_data_volume_leaves_unset_options_to_cdi() {
        let least = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataVolume",
            "metadata": {"name": "disk"},
            "spec": {"source": {"upload": {}}, "storage": {"resources": {"requests": {"storage": "10Gi"}}}},
        });
        assert_eq!(build_manifest(&wanted("dv/disk")), least);
        let most = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataVolume",
            "metadata": {
                "name": "disk",
                "labels": {
                    "instancetype.kubevirt.io/default-instancetype": "u1.small",
                    "instancetype.kubevirt.io/default-preference": "fedora",
                    "instancetype.kubevirt.io/default-preference-kind": "VirtualMachinePreference",
                },
                "annotations": {"cdi.kubevirt.io/storage.bind.immediate.requested": "true"},
            },
            "spec": {
                "source": {"upload": {}},
                "contentType": "archive",
                "preallocation": true,
                "storage": {
                    "accessModes": ["ReadWriteMany"],
                    "volumeMode": "Block",
                    "storageClassName": "fast",
                    "resources": {"requests": {"storage": "10Gi"}},
                },
            },
        });
        assert_eq!(build_manifest(&full("dv/disk")), most);
    }

    #[test]
    fn a_claim_has_the_options_as_annotations() {
        let claim = build_manifest(&wanted("pvc/disk"));
        assert_eq!(claim["kind"], "PersistentVolumeClaim");
        assert_eq!(
            claim["metadata"],
            json!({"name": "disk", "annotations": {"cdi.kubevirt.io/storage.upload.target": ""}})
        );
        assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteOnce"]));
        let claim = build_manifest(&full("pvc/disk"));
        assert_eq!(claim["spec"]["volumeMode"], "Block");
        assert_eq!(
            claim["metadata"]["annotations"],
            json!({
                "cdi.kubevirt.io/storage.bind.immediate.requested": "true",
                "cdi.kubevirt.io/storage.upload.target": "",
                "cdi.kubevirt.io/storage.contentType": "archive",
                "cdi.kubevirt.io/storage.preallocation.requested": "true",
            })
        );
    }

    #[test]
    fn the_yaml_equals_the_manifest() {
        let manifest = build_manifest(&full("pvc/disk"));
        let text = to_yaml(&manifest).unwrap();
        assert!(text.contains("kind: PersistentVolumeClaim\n"), "{text}");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), manifest);
    }
}
