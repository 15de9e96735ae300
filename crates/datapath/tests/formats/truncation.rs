//! Checks that a truncated qcow2 image or compressed disk is an error, unless the whole disk is in
//! what is left.

use std::fmt;
use std::path::Path;

use crate::common::objects::{Object, image};
use crate::common::{Memory, fast_folder, file, transfer};
use bytes::Bytes;
use datapath::Error;
use testkit::cases::check_all;
use testkit::images::{Compression, Content, Spec};
use testkit::{disk, tools};

/// Shorter prefixes cannot be told from a tiny raw disk: the magic numbers of the compressed
/// formats and what must follow them take up to this many bytes.
const MAGIC_BYTES: usize = 18;

/// Small objects are cut at every byte within this distance of their ends…
const EDGE_BYTES: usize = 192;

/// …and all objects at every multiple of this.
const STEP_BYTES: usize = 512;

struct Cut<'a> {
    object: &'a Object,
    at: usize,
    ranged: bool,
}

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranged = if self.ranged { " from a ranged source" } else { "" };
        write!(f, "the first {} bytes of {}{ranged}", self.at, self.object.name)
    }
}

fn check(cut: &Cut<'_>) {
    let folder = fast_folder();
    let target = file(&folder.path().join("disk"));
    let image = cut.object.bytes.slice(..cut.at);
    let source = Memory { ranged: cut.ranged, ..Memory::new(image.clone()) };
    match transfer(&source, &target) {
        Ok(_) => {
            let disk = std::fs::read(&target.path).unwrap();
            assert!(disk == cut.object.disk, "a false success");
            if cut.object.name.contains("cluster=") {
                assert_as_qemu(&image, &disk, folder.path());
            }
        }
        Err(error) => {
            assert!(matches!(error, Error::Format(_) | Error::Decode(_)), "{error}");
            assert!(!target.path.exists(), "the partial target is left");
        }
    }
}

/// Checks that qemu-img does not read another disk from `image`. It may refuse the image because
/// of refcounts, which we do not need.
fn assert_as_qemu(image: &[u8], disk: &[u8], folder: &Path) {
    let (qcow2, raw) = (folder.join("qcow2"), folder.join("raw"));
    std::fs::write(&qcow2, image).unwrap();
    if tools::qemu_converts("qcow2", &qcow2, &raw) {
        assert!(std::fs::read(raw).unwrap() == disk, "qemu-img reads another disk");
    }
}

/// Checks truncated images with clusters of `cluster_size`, which consist of few clusters and much
/// metadata.
fn check_cuts(cluster_size: u64, virtual_size: u64) {
    let folder = fast_folder();
    let plain = Spec { cluster_size, virtual_size, ..Spec::new(Content::Sparse) };
    let specs = [
        plain.clone(),
        Spec { content: Content::Dense, compression: Compression::Zlib, ..plain },
        Spec { compression: Compression::Zstd, ..plain },
        Spec { content: Content::RandomOrder, extended_l2: cluster_size >= 16384, ..plain },
        Spec { content: Content::ZeroClusters, ..plain },
        Spec { content: Content::Snapshots, ..plain },
    ];
    let objects = specs.map(|spec| image(&spec, folder.path()));
    check_objects(&objects, if cluster_size < 4096 { EDGE_BYTES } else { 0 });
}

/// Checks cuts within `edge` bytes of both ends, and at sectors.
fn check_objects(objects: &[Object], edge: usize) {
    let mut cuts = Vec::new();
    for object in objects {
        let length = object.bytes.len();
        let is_tried =
            |at: &usize| *at < edge || *at + edge >= length || at.is_multiple_of(STEP_BYTES);
        for at in (MAGIC_BYTES..=length).filter(is_tried) {
            cuts.extend([false, true].map(|ranged| Cut { object, at, ranged }));
        }
    }
    check_all(cuts, check);
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn truncated_compressed_disks_are_refused() {
    let disk = Bytes::from(disk::sparse_content(3, 64 << 10, 3));
    let raw = Object { name: "a disk".into(), bytes: disk.clone(), disk };
    check_objects(&tools::COMPRESSORS.map(|program| raw.packed(program)), EDGE_BYTES);
}

#[test]
#[ignore = "slow: 4 s of CPU time"]
fn truncated_images_with_512_byte_clusters_are_refused() {
    check_cuts(512, 96 << 10);
}

#[test]
#[ignore = "slow: 6 s of CPU time"]
fn truncated_images_with_2_kib_clusters_are_refused() {
    check_cuts(2048, 128 << 10);
}

#[test]
#[ignore = "slow: 4 s of CPU time"]
fn truncated_images_with_16_kib_clusters_are_refused() {
    check_cuts(16384, 256 << 10);
}

#[test]
#[ignore = "slow: 10 s of CPU time"]
fn truncated_images_with_64_kib_clusters_are_refused() {
    check_cuts(65536, 512 << 10);
}
