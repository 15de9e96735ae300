//! Container images as OCI layouts (OCI image layout specification 1.1), made from files.

use std::path::Path;

use aws_lc_rs::digest;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use crate::fail::OrFail;
use crate::tokens::pem;
use crate::tools;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The compression of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed.
    None,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

impl Compression {
    fn apply(self, tar: &[u8]) -> (Vec<u8>, &'static str) {
        match self {
            Self::None => (tar.to_vec(), ""),
            Self::Gzip => (tools::filter("gzip", ["-c", "-1", "-n"], tar), "+gzip"),
            Self::Zstd => (tools::filter("zstd", ["-c", "-1"], tar), "+zstd"),
        }
    }
}

/// Describes an image to build.
#[derive(Debug, Clone)]
pub struct Image {
    /// The processor architecture, as Go names it.
    pub architecture: &'static str,
    /// The layers as tars, the lowest first, and the compression of each.
    pub layers: Vec<(Vec<u8>, Compression)>,
    /// Environment variables in the form `NAME=value`.
    pub env: Vec<&'static str>,
    /// Labels.
    pub labels: Vec<(&'static str, &'static str)>,
}

impl Image {
    /// An image for amd64 with these layers.
    pub fn new(layers: Vec<(Vec<u8>, Compression)>) -> Self {
        Self { architecture: "amd64", layers, env: vec!["PATH=/bin"], labels: Vec::new() }
    }

    /// An image with a single layer that contains `content` as `/disk/disk.img`.
    pub fn of_disk(content: &[u8], compression: Compression) -> Self {
        Self::new(vec![(tar(&[("disk/disk.img", content)]), compression)])
    }
}

/// A tar of files with these names and contents.
pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let folder = tempfile::tempdir().or_fail("a folder");
    for (name, content) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().or_fail("a folder above a file")).or_fail(name);
        std::fs::write(path, content).or_fail(name);
    }
    tar_of(folder.path(), files.iter().map(|(name, _)| *name))
}

/// A tar of these files in `folder`, in the given order and without entries for directories. The
/// same files always give the same tar.
pub fn tar_of<'a>(folder: &Path, names: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let folder = folder.to_str().or_fail("a path of ASCII").to_owned();
    let options = ["--format=gnu", "--sparse", "--no-recursion", "--mtime=@0", "-cf", "-", "-C"];
    let options = options.map(str::to_owned);
    let words = options.into_iter().chain([folder]);
    tools::filter("tar", words.chain(names.into_iter().map(str::to_owned)), &[])
}

/// Writes a layout with one entry `test`: the image, or an index if there are several `images`.
pub fn write_layout(folder: &Path, images: &[Image]) {
    let blobs = folder.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).or_fail("a folder for blobs");
    let put = |bytes: &[u8], media_type: &str| put_blob(&blobs, bytes, media_type);
    let mut manifests: Vec<Value> = images.iter().map(|image| put_image(&put, image)).collect();
    let mut top = match manifests.len() {
        1 => manifests.remove(0),
        _ => put(index_of(&manifests).to_string().as_bytes(), INDEX),
    };
    top["annotations"] = json!({ "org.opencontainers.image.ref.name": "test" });
    write_index(folder, &[top]);
}

fn index_of(manifests: &[Value]) -> Value {
    json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests })
}

/// Writes the files of a layout that are not blobs.
fn write_index(folder: &Path, manifests: &[Value]) {
    std::fs::write(folder.join("index.json"), index_of(manifests).to_string())
        .or_fail("index.json");
    std::fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)
        .or_fail("oci-layout");
}

/// The media type of a disk that KubeVirt exports.
pub const KUBEVIRT_DISK: &str = "application/vnd.kubevirt.disk.raw+zstd";

/// The media type that ORAS gives to any file.
pub const ORAS_FILE: &str = "application/vnd.oci.image.layer.v1.tar";

/// The annotation with the name of a file.
pub const TITLE: &str = "org.opencontainers.image.title";

/// The configuration of artifacts that need none.
pub const EMPTY_CONFIG: (&str, &str) = ("application/vnd.oci.empty.v1+json", "{}");

/// An artifact to build: files in a registry, as opposed to a container image.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// The type of the artifact.
    pub artifact_type: Option<&'static str>,
    /// Type and content of its configuration.
    pub config: (&'static str, String),
    /// Files of the artifact.
    pub layers: Vec<ArtifactLayer>,
    /// Fields of its entry in an index, besides digest and size.
    pub descriptor: Value,
}

/// A file of an artifact.
#[derive(Debug, Clone)]
pub struct ArtifactLayer {
    /// Media type of the file.
    pub media_type: &'static str,
    /// Bytes of the file.
    pub content: Vec<u8>,
    /// Annotations of the file.
    pub annotations: Value,
}

impl ArtifactLayer {
    /// A disk as KubeVirt's export writes it.
    pub fn kubevirt_disk(name: &str, disk: &[u8]) -> Self {
        let annotations = json!({
            "io.kubevirt.disk.name": name,
            "io.kubevirt.disk.size": disk.len().to_string(),
            TITLE: format!("{name}.raw.zst"),
        });
        Self {
            media_type: KUBEVIRT_DISK,
            content: tools::filter("zstd", ["-c", "-3"], disk),
            annotations,
        }
    }

    /// A file as ORAS pushes it.
    pub fn oras_file(title: &str, content: &[u8]) -> Self {
        Self {
            media_type: ORAS_FILE,
            content: content.to_vec(),
            annotations: json!({ TITLE: title }),
        }
    }
}

impl Artifact {
    /// A virtual machine as KubeVirt's export writes it.
    pub fn kubevirt_export(layers: Vec<ArtifactLayer>) -> Self {
        let machine = json!({ "kind": "VirtualMachine", "metadata": { "name": "vm" }, "spec": {} });
        Self {
            artifact_type: Some("application/vnd.kubevirt.virtualmachine.v1"),
            config: ("application/vnd.kubevirt.virtualmachine.config.v1+json", machine.to_string()),
            layers,
            descriptor: json!({ "platform": { "architecture": "amd64", "os": "linux" } }),
        }
    }

    /// What `oras push` and `podman manifest add --artifact` write.
    pub fn of_files(layers: Vec<ArtifactLayer>) -> Self {
        let (media_type, content) = EMPTY_CONFIG;
        Self {
            artifact_type: Some("application/vnd.unknown.artifact.v1"),
            config: (media_type, content.to_owned()),
            layers,
            descriptor: json!({}),
        }
    }

    /// A disk for a kind of hypervisor, as an index of Podman's machines lists it.
    pub fn podman_machine(disktype: &str, architecture: &str, layer: ArtifactLayer) -> Self {
        let descriptor = json!({
            "annotations": { "disktype": disktype },
            "platform": { "architecture": architecture, "os": "linux" },
        });
        Self { artifact_type: None, descriptor, ..Self::of_files(vec![layer]) }
    }
}

/// A layout whose `index.json` lists `artifacts`. Returns the names of its files in the order in
/// which KubeVirt sends them.
pub fn write_artifacts(folder: &Path, artifacts: &[Artifact]) -> Vec<String> {
    let blobs = folder.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).or_fail("a folder for blobs");
    let mut names = vec!["oci-layout".to_owned(), "index.json".to_owned()];
    let put = |bytes: &[u8], media_type: &str| put_blob(&blobs, bytes, media_type);
    let file_of = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().or_fail("a digest");
        format!("blobs/{}", digest.replace(':', "/"))
    };
    let mut manifests = Vec::new();
    for artifact in artifacts {
        let layers: Vec<Value> =
            artifact.layers.iter().map(|layer| put_layer(&put, layer)).collect();
        let (media_type, content) = &artifact.config;
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": put(content.as_bytes(), media_type),
            "layers": layers,
        });
        artifact.artifact_type.iter().for_each(|kind| manifest["artifactType"] = json!(kind));
        let described = put(manifest.to_string().as_bytes(), MANIFEST);
        names.extend([&described, &manifest["config"]].into_iter().chain(&layers).map(&file_of));
        let mut descriptor = artifact.descriptor.clone();
        merge(&mut descriptor, described);
        manifests.push(descriptor);
    }
    write_index(folder, &manifests);
    names
}

/// Makes the `index.json` of a layout the only image in another one, as `skopeo copy` needs it to
/// push an index.
pub fn wrap_index(folder: &Path) {
    let index = std::fs::read(folder.join("index.json")).or_fail("index.json");
    let descriptor = put_blob(&folder.join("blobs/sha256"), &index, INDEX);
    write_index(folder, &[descriptor]);
}

/// A tar of the files `names` of the layout in `folder`, as KubeVirt sends it: ustar, no
/// directories.
pub fn tar_layout(folder: &Path, names: &[String]) -> Vec<u8> {
    let folder = folder.to_str().or_fail("a path of ASCII");
    let options = ["--format=ustar", "--no-recursion", "--mtime=@0", "-cf", "-", "-C", folder];
    tools::filter("tar", options.into_iter().chain(names.iter().map(String::as_str)), &[])
}

fn put_layer(put: &impl Fn(&[u8], &str) -> Value, layer: &ArtifactLayer) -> Value {
    let mut descriptor = put(&layer.content, layer.media_type);
    descriptor["annotations"] = layer.annotations.clone();
    descriptor
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

/// Writes a blob and returns its descriptor.
fn put_blob(blobs: &Path, bytes: &[u8], media_type: &str) -> Value {
    let hash = digest::digest(&digest::SHA256, bytes);
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(blobs.join(&hex), bytes).or_fail("a blob");
    json!({ "mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len() })
}

/// Packs the layout in `folder` into the tar `archive`, which `oci-archive:` can read.
pub fn archive_layout(folder: &Path, archive: &Path) {
    let words =
        ["-C".as_ref(), folder.as_os_str(), "-cf".as_ref(), archive.as_os_str(), ".".as_ref()];
    tools::run("tar", words);
}

fn put_image(put: &impl Fn(&[u8], &str) -> Value, image: &Image) -> Value {
    let mut diff_ids = Vec::new();
    let mut layers = Vec::new();
    for (tar, compression) in &image.layers {
        let (bytes, suffix) = compression.apply(tar);
        layers.push(put(&bytes, &format!("application/vnd.oci.image.layer.v1.tar{suffix}")));
        diff_ids.push(put(tar, "")["digest"].clone());
    }
    let labels: serde_json::Map<String, Value> =
        image.labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let config = json!({
        "architecture": image.architecture,
        "os": "linux",
        "config": { "Env": image.env, "Labels": labels },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": put(config.to_string().as_bytes(), "application/vnd.oci.image.config.v1+json"),
        "layers": layers,
    });
    let mut descriptor = put(manifest.to_string().as_bytes(), MANIFEST);
    descriptor["platform"] = json!({ "architecture": image.architecture, "os": "linux" });
    descriptor
}

/// A new publisher: the public key as PEM, and a function that signs with the private one, as
/// `cosign sign --key` does (ECDSA, P-256, SHA-256).
pub fn publisher() -> (String, impl Fn(&[u8]) -> Vec<u8>) {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).or_fail("a key");
    let pem = pem("PUBLIC KEY", pair.public_key().as_der().or_fail("a public key").as_ref());
    let sign = move |bytes: &[u8]| {
        pair.sign(&SystemRandom::new(), bytes).or_fail("a signature").as_ref().to_vec()
    };
    (pem, sign)
}
