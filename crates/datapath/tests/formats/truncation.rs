//! A truncated qcow2 image or compressed disk is an error, unless all of its disk is in what is left.

use std::fmt;
use std::path::Path;

use crate::common::objects::{Object, image};
use crate::common::{Memory, fast_folder, file, transfer};
use bytes::Bytes;
use datapath::Error;
use testkit::cases::check_all;
use testkit::images::{Compression, Content, Spec};
use testkit::{disk, tools};

/// A shorter prefix cannot be told from a tiny raw disk: the magic numbers of the compressed formats and what must follow them
/// take up to this many bytes.
const MAGIC_BYTES: usize = 18;

/// Every cut is tried in this many bytes at both ends of a small object…
const EDGE_BYTES: usize = 192;

/// …and every cut at a multiple of this, whatever its size.
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

/// qemu-img may refuse what we need not look at (its refcounts), but must not read another disk.
fn assert_as_qemu(image: &[u8], disk: &[u8], folder: &Path) {
    let (qcow2, raw) = (folder.join("qcow2"), folder.join("raw"));
    std::fs::write(&qcow2, image).unwrap();
    if tools::qemu_converts("qcow2", &qcow2, &raw) {
        assert!(std::fs::read(raw).unwrap() == disk, "qemu-img reads another disk");
    }
}

/// Clusters of `cluster_size`, all of the image's metadata around a few of them.
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

/// Cuts in `edge` bytes at both ends, and at sectors.
fn check_objects(objects: &[Object], edge: usize) {
    let mut cuts = Vec::new();
    for object in objects {
        let length = object.bytes.len();
        let is_tried = |at: &usize| *at < edge || *at + edge >= length || at.is_multiple_of(STEP_BYTES);
        for at in (MAGIC_BYTES..=length).filter(is_tried) {
            cuts.extend([false, true].map(|ranged| Cut { object, at, ranged }));
        }
    }
    check_all(cuts, check);
}

#[test]
fn compressed_disks() {
    let disk = Bytes::from(disk::sparse_content(3, 64 << 10, 3));
    let raw = Object { name: "a disk".into(), bytes: disk.clone(), disk };
    check_objects(&tools::COMPRESSORS.map(|program| raw.packed(program)), EDGE_BYTES);
}

#[test]
fn clusters_of_512_bytes() {
    check_cuts(512, 96 << 10);
}

#[test]
fn clusters_of_2_kib() {
    check_cuts(2048, 128 << 10);
}

#[test]
fn clusters_of_16_kib() {
    check_cuts(16384, 256 << 10);
}

#[test]
fn clusters_of_64_kib() {
    check_cuts(65536, 512 << 10);
}
