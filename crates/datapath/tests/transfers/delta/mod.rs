//! Applies deltas to the disk that they are based on. The expected disk comes from qemu-img, which
//! reads both as one chain.

mod applied;
mod broken;
mod changed;
mod refused;

use std::path::{Path, PathBuf};

use datapath::Error;
use datapath::delta::{DeltaBase, DeltaReport, apply_delta};
use datapath::options::{ReadOptions, WriteOptions};
use datapath::source::Source;
use testkit::disk;
use testkit::images::{Compression, Content, Delta, Spec};

const MIB: u64 = 1 << 20;

fn base(path: &Path, delta: &Delta) -> DeltaBase {
    DeltaBase {
        path: path.to_owned(),
        available: u64::MAX,
        name: Some(delta.base_name()),
        preallocated: false,
        cache: datapath::disk::CacheMode::Auto,
    }
}

/// Applies `source` to the disk `target` with default options.
fn apply(source: &dyn Source, target: &Path, delta: &Delta) -> Result<DeltaReport, Error> {
    let base = base(target, delta);
    apply_delta(source, &base, &ReadOptions::default(), &WriteOptions::default())
}

/// Copies the base, so that the delta can be applied to the copy.
fn copy(delta: &Delta, folder: &Path) -> PathBuf {
    let target = folder.join("disk.img");
    std::fs::copy(&delta.base, &target).unwrap();
    target
}

fn bytes(delta: &Delta) -> Vec<u8> {
    std::fs::read(&delta.qcow2).unwrap()
}

/// Checks that the target is the disk with the delta, and that it has the right size.
fn assert_applied(target: &Path, delta: &Delta, case: &str) {
    disk::assert_same(target, &delta.raw, delta.virtual_size, case);
}

/// Returns a delta with every kind of cluster, whose L1 table is behind everything else.
fn rich_delta(folder: &Path) -> Delta {
    let spec = Spec {
        cluster_size: 4096,
        compression: Compression::Zlib,
        virtual_size: 5 * MIB,
        resized_to: Some(6 * MIB),
        ..Spec::new(Content::Empty)
    };
    spec.build_delta(5 * MIB, folder, "delta")
}
