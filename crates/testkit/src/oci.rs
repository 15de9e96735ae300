//! Container images as OCI layouts (OCI image layout specification 1.1), made from files.

use std::path::Path;

use aws_lc_rs::digest;
use serde_json::{Value, json};

use crate::fail::OrFail;
use crate::tools;

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
    let put = |bytes: &[u8], media_type: &str| {
        let hash = digest::digest(&digest::SHA256, bytes);
        let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(blobs.join(&hex), bytes).or_fail("a blob");
        json!({ "mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len() })
    };
    let mut manifests: Vec<Value> = images.iter().map(|image| put_image(&put, image)).collect();
    let mut top = match manifests.len() {
        1 => manifests.remove(0),
        _ => {
            let media_type = "application/vnd.oci.image.index.v1+json";
            let index = json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": manifests });
            put(index.to_string().as_bytes(), media_type)
        }
    };
    top["annotations"] = json!({ "org.opencontainers.image.ref.name": "test" });
    let index = json!({ "schemaVersion": 2, "manifests": [top] });
    std::fs::write(folder.join("index.json"), index.to_string()).or_fail("index.json");
    let layout = json!({ "imageLayoutVersion": "1.0.0" });
    std::fs::write(folder.join("oci-layout"), layout.to_string()).or_fail("oci-layout");
}

/// Packs the layout in `folder` into the tar `archive`, which `oci-archive:` can read.
pub fn archive_layout(folder: &Path, archive: &Path) {
    let words = ["-C".as_ref(), folder.as_os_str(), "-cf".as_ref(), archive.as_os_str(), ".".as_ref()];
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
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": put(config.to_string().as_bytes(), "application/vnd.oci.image.config.v1+json"),
        "layers": layers,
    });
    let mut descriptor = put(manifest.to_string().as_bytes(), media_type);
    descriptor["platform"] = json!({ "architecture": image.architecture, "os": "linux" });
    descriptor
}
