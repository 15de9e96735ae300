//! A truncated qcow2 image is an error, unless all of its disk is in what is left.

use std::fmt;
use std::path::Path;

use crate::common::objects::{Object, image};
use crate::common::{Memory, fast_folder, file};
use datapath::options::{PayloadKind, ReadOptions, WriteOptions};
use datapath::{Error, transfer_image};
use testkit::cases::check_all;
use testkit::images::{Compression, Content, Spec};
use testkit::tools;

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
    let source = Memory {
        ranged: cut.ranged,
        ..Memory::new(image.clone())
    };
    match transfer_image(
        &source,
        PayloadKind::default(),
        &target,
        &ReadOptions::default(),
        &WriteOptions::default(),
    ) {
        Ok(_) => {
            let disk = std::fs::read(&target.path).unwrap();
            assert!(disk == cut.object.disk, "a false success");
            assert_as_qemu(&image, &disk, folder.path());
        }
        Err(error) => {
            assert!(matches!(error, Error::Format(_)), "{error}");
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
    let plain = Spec {
        cluster_size,
        virtual_size,
        ..Spec::new(Content::Sparse)
    };
    let specs = [
        plain.clone(),
        Spec {
            content: Content::Dense,
            compression: Compression::Zlib,
            ..plain
        },
        Spec {
            compression: Compression::Zstd,
            ..plain
        },
        Spec {
            content: Content::RandomOrder,
            extended_l2: cluster_size >= 16384,
            ..plain
        },
        Spec {
            content: Content::ZeroClusters,
            ..plain
        },
        Spec {
            content: Content::Snapshots,
            ..plain
        },
    ];
    let objects: Vec<Object> = specs.iter().map(|spec| image(spec, folder.path())).collect();
    let mut cuts = Vec::new();
    for object in &objects {
        for at in (STEP_BYTES..=object.bytes.len()).step_by(STEP_BYTES) {
            cuts.extend([false, true].map(|ranged| Cut { object, at, ranged }));
        }
    }
    check_all(cuts, check);
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
