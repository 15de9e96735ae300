//! The JSON documents of an artifact: config, manifest, index and `oci-layout`.

use oci::{DISK_NAME, DISK_SIZE, KUBEVIRT_DISK, OCI_INDEX, OCI_MANIFEST, REF_NAME, TITLE};
use serde_json::{Value, json};
use stream::digest::{DigestAlgorithm, RunningDigest};

use super::layer::WrittenLayer;
use super::name::DiskName;

/// The names in a layout.
pub(super) const INDEX: &str = "index.json";
pub(super) const LAYOUT: &str = "oci-layout";
pub(super) const BLOBS: &str = "blobs";

/// Kinds of objects in a config, with the artifact's type and the config's media type.
const MACHINES: [(&str, &str, &str); 2] = [
    (
        "VirtualMachine",
        "application/vnd.kubevirt.virtualmachine.v1",
        "application/vnd.kubevirt.virtualmachine.config.v1+json",
    ),
    (
        "VirtualMachineTemplate",
        "application/vnd.kubevirt.virtualmachinetemplate.v1",
        "application/vnd.kubevirt.virtualmachinetemplate.config.v1+json",
    ),
];

/// The empty config of the image specification, for artifacts without one.
const EMPTY_CONFIG: (&str, &[u8]) = ("application/vnd.oci.empty.v1+json", b"{}");

/// The definition of a virtual machine or of a template.
pub(super) struct MachineConfig {
    bytes: Vec<u8>,
    artifact_type: &'static str,
    media_type: &'static str,
}

impl MachineConfig {
    /// Parses a JSON document. Fails with the reason if it is not a known kind of object.
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, String> {
        let object: Value = serde_json::from_slice(&bytes).map_err(|error| {
            format!("not JSON ({error}); write it with kubectl get vm NAME -o json")
        })?;
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let Some((_, artifact_type, media_type)) =
            MACHINES.iter().find(|(known, ..)| *known == kind)
        else {
            let kinds = MACHINES.map(|(kind, ..)| kind).join(" or ");
            return Err(format!("its kind is {kind:?}, expected {kinds}"));
        };
        Ok(Self { bytes, artifact_type, media_type })
    }
}

/// A disk whose layer is complete.
pub(super) struct PackedDisk {
    pub(super) name: DiskName,
    pub(super) layer: WrittenLayer,
}

impl PackedDisk {
    /// Returns a disk whose numbers have as many digits as possible.
    pub(super) fn placeholder(name: &DiskName) -> Self {
        let digest = RunningDigest::new(DigestAlgorithm::Sha256).finish_digest();
        let layer = WrittenLayer { digest, bytes: u64::MAX, disk_bytes: u64::MAX };
        Self { name: name.clone(), layer }
    }

    fn to_descriptor(&self) -> Value {
        let name = self.name.to_string();
        json!({
            "mediaType": KUBEVIRT_DISK,
            "digest": self.layer.digest,
            "size": self.layer.bytes,
            "annotations": {
                DISK_NAME: name,
                DISK_SIZE: binary_quantity(self.layer.disk_bytes),
                TITLE: format!("{name}.raw.zst"),
            },
        })
    }
}

/// The parts of an artifact that do not depend on its disks.
pub(super) struct ArtifactDescription {
    pub(super) config: Option<MachineConfig>,
    pub(super) architecture: String,
    pub(super) image_name: Option<String>,
}

/// A small blob.
pub(super) struct DocumentBlob {
    /// `sha256:hex`.
    pub(super) digest: String,
    pub(super) bytes: Vec<u8>,
}

impl DocumentBlob {
    fn new(bytes: Vec<u8>) -> Self {
        let mut digest = RunningDigest::new(DigestAlgorithm::Sha256);
        digest.update(&bytes);
        Self { digest: digest.finish_digest(), bytes }
    }

    fn to_descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.bytes.len() })
    }
}

/// All documents of a layout.
pub(super) struct LayoutDocuments {
    pub(super) oci_layout: Vec<u8>,
    pub(super) index: Vec<u8>,
    pub(super) manifest: DocumentBlob,
    pub(super) config: DocumentBlob,
}

impl ArtifactDescription {
    /// Returns the documents for `disks`. Their lengths depend only on the names of the disks: the
    /// manifest is padded with spaces to the length that it has with the longest numbers. An
    /// archive can therefore reserve space for it before the layers, and the same disks have the
    /// same manifest in a directory and in an archive.
    pub(super) fn render(&self, disks: &[PackedDisk]) -> LayoutDocuments {
        // Without a definition of the machine, the artifact does not claim to be one, because
        // importers of machines would accept it and fail later. The type of the only kind of layer
        // is then the type of the artifact (image-spec, "Guidelines for Artifact Usage").
        let empty = (KUBEVIRT_DISK, EMPTY_CONFIG.0, EMPTY_CONFIG.1);
        let (artifact_type, config_type, config) = self
            .config
            .as_ref()
            .map_or(empty, |config| (config.artifact_type, config.media_type, &config.bytes[..]));
        let config = DocumentBlob::new(config.to_vec());
        let to_manifest = |layers: Vec<Value>| {
            let manifest = json!({
                "schemaVersion": 2,
                "mediaType": OCI_MANIFEST,
                "artifactType": artifact_type,
                "config": config.to_descriptor(config_type),
                "layers": layers,
            });
            manifest.to_string().into_bytes()
        };
        let longest =
            disks.iter().map(|disk| PackedDisk::placeholder(&disk.name).to_descriptor()).collect();
        let mut manifest = to_manifest(disks.iter().map(PackedDisk::to_descriptor).collect());
        manifest.resize(manifest.len().max(to_manifest(longest).len()), b' ');
        let manifest = DocumentBlob::new(manifest);

        let mut descriptor = manifest.to_descriptor(OCI_MANIFEST);
        descriptor["platform"] = json!({ "architecture": self.architecture, "os": "linux" });
        if let Some(name) = &self.image_name {
            descriptor["annotations"] = json!({ REF_NAME: name });
        }
        let index = json!({
            "schemaVersion": 2,
            "mediaType": OCI_INDEX,
            "artifactType": artifact_type,
            "manifests": [descriptor],
        });
        LayoutDocuments {
            oci_layout: json!({ "imageLayoutVersion": "1.0.0" }).to_string().into_bytes(),
            index: index.to_string().into_bytes(),
            manifest,
            config,
        }
    }
}

/// Returns `bytes` as the shortest Kubernetes quantity with a binary suffix.
fn binary_quantity(bytes: u64) -> String {
    let mut quantity = (bytes, "");
    for suffix in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
        if quantity.0 == 0 || !quantity.0.is_multiple_of(1024) {
            break;
        }
        quantity = (quantity.0 / 1024, suffix);
    }
    format!("{}{}", quantity.0, quantity.1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn description(config: Option<MachineConfig>) -> ArtifactDescription {
        ArtifactDescription { config, architecture: "amd64".to_owned(), image_name: None }
    }

    #[test]
    fn quantities_are_the_shortest() {
        for (bytes, text) in [
            (0, "0"),
            (512, "512"),
            (65536, "64Ki"),
            (10 << 30, "10Gi"),
            (1 << 60, "1Ei"),
            (1025 << 10, "1025Ki"),
        ] {
            assert_eq!(binary_quantity(bytes), text);
        }
    }

    #[test]
    fn configs_are_machines_or_templates() {
        let parse = |text: &str| MachineConfig::parse(text.as_bytes().to_vec());
        assert_eq!(parse(r#"{"kind":"VirtualMachine"}"#).unwrap().artifact_type, MACHINES[0].1);
        assert_eq!(
            parse(r#"{"kind":"VirtualMachineTemplate"}"#).unwrap().media_type,
            MACHINES[1].2
        );
        for (text, part) in [
            ("", "not JSON"),
            ("[]", "expected VirtualMachine or"),
            (r#"{"kind":"Pod"}"#, r#"its kind is "Pod""#),
            (r#"{"kind":7}"#, r#"its kind is """#),
        ] {
            let error = parse(text).err().unwrap();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn lengths_are_known_before_the_layers(
            numbers in prop::collection::vec((any::<u64>(), 0u32..64, any::<u64>(), 0u32..64), 1..5),
        ) {
            let names: Vec<_> = (0..numbers.len()).map(|n| DiskName::parse(&format!("d{n}")).unwrap()).collect();
            let placeholders: Vec<_> = names.iter().map(PackedDisk::placeholder).collect();
            let before = description(None).render(&placeholders);
            let disks: Vec<_> = names
                .iter()
                .zip(&numbers)
                .map(|(name, (bytes, shift, disk_bytes, disk_shift))| {
                    let mut disk = PackedDisk::placeholder(name);
                    (disk.layer.bytes, disk.layer.disk_bytes) = (bytes >> shift, disk_bytes >> disk_shift);
                    disk
                })
                .collect();
            let after = description(None).render(&disks);
            prop_assert_eq!(after.manifest.bytes.len(), before.manifest.bytes.len());
            prop_assert_eq!(after.index.len(), before.index.len());
            let manifest: Value = serde_json::from_slice(&after.manifest.bytes).unwrap();
            prop_assert_eq!(manifest["layers"][0]["size"].as_u64().unwrap(), numbers[0].0 >> numbers[0].1);
        }
    }
}
