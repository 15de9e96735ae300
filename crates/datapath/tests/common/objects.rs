//! Small images of every kind, each with the disk that it must become.

use std::path::Path;
use std::sync::OnceLock;

use bytes::Bytes;
use testkit::disk;
use testkit::images::{Compression, Content, Spec};
use testkit::tools;

/// More than the first MiB, which is held back until the end, and not a multiple of a page.
pub const DISK_BYTES: u64 = (1 << 20) + (200 << 10) + 512;

/// An image, possibly compressed, and the disk in it.
#[derive(Clone)]
pub struct Object {
    pub name: String,
    pub bytes: Bytes,
    pub disk: Bytes,
}

/// Returns raw and qcow2 images, plain and in every compression.
pub fn objects() -> &'static [Object] {
    static OBJECTS: OnceLock<Vec<Object>> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        let folder = super::fast_folder();
        let raw = Bytes::from(disk::sparse_content(1, DISK_BYTES, 3));
        let mut objects = vec![Object { name: "raw".into(), bytes: raw.clone(), disk: raw }];
        for program in tools::COMPRESSORS {
            let packed = objects[0].packed(program);
            objects.push(packed);
        }
        objects.extend(specs().iter().map(|spec| image(spec, folder.path())));
        let plain = objects.iter().position(|object| object.name.contains("Plain"));
        let packed = objects[plain.unwrap()].packed("gzip").packed("zstd");
        objects.push(packed);
        objects
    })
}

fn specs() -> Vec<Spec> {
    let plain = Spec { cluster_size: 4096, virtual_size: DISK_BYTES, ..Spec::new(Content::Sparse) };
    vec![
        plain.clone(),
        Spec { cluster_size: 512, ..plain },
        Spec { compression: Compression::Zlib, ..plain },
        Spec { cluster_size: 65536, compression: Compression::Zstd, ..plain },
        Spec { cluster_size: 16384, extended_l2: true, content: Content::RandomOrder, ..plain },
        Spec { content: Content::Snapshots, ..plain },
        // The L1 table comes last, so all clusters have to wait for it.
        Spec { compression: Compression::Zlib, resized_to: Some(6 << 20), ..plain },
    ]
}

/// Builds the image of `spec` and the disk that qemu-img converts it to.
pub fn image(spec: &Spec, folder: &Path) -> Object {
    let image = spec.build(folder, "image");
    Object {
        name: spec.to_string(),
        bytes: std::fs::read(&image.qcow2).unwrap().into(),
        disk: std::fs::read(&image.raw).unwrap().into(),
    }
}

impl Object {
    /// Returns the object compressed by `program`.
    pub fn packed(&self, program: &str) -> Self {
        Self {
            name: format!("{} in {program}", self.name),
            bytes: tools::filter(program, ["-c"], &self.bytes).into(),
            disk: self.disk.clone(),
        }
    }
}
