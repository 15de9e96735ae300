//! Applies deltas to the disk that they are based on. The expected disk comes from qemu-img, which
//! reads both as one chain.

mod applied;
mod broken;
mod changed;
mod refused;

use std::path::{Path, PathBuf};

use datapath::delta::{DeltaBase, apply_delta};
use datapath::disk::DiskOptions;
use datapath::options::WriteOptions;
use datapath::transfer::TransferReport;
use stream::Error;
use stream::options::ReadOptions;
use stream::source::Source;
use tempfile::TempDir;
use testkit::disk;
use testkit::images::{Compression, Content, Delta, Spec};

use crate::common::fast_folder;

const MIB: u64 = 1 << 20;

fn base(path: &Path, delta: &Delta) -> DeltaBase {
    DeltaBase {
        disk: DiskOptions::new(path, u64::MAX),
        name: Some(delta.base_name()),
        may_be_larger: true,
    }
}

/// Applies `source` with default options.
fn apply(source: &dyn Source, base: &DeltaBase) -> Result<TransferReport, Error> {
    apply_delta(source, base, &ReadOptions::default(), &WriteOptions::default())
}

/// A delta, and a copy of its base to which it is applied.
struct Scene {
    /// Removed at the end.
    folder: TempDir,
    delta: Delta,
    target: PathBuf,
}

impl Scene {
    /// Has every kind of cluster, and the L1 table behind everything else.
    fn new() -> Self {
        let folder = fast_folder();
        let spec = Spec {
            cluster_size: 4096,
            compression: Compression::Zlib,
            virtual_size: 5 * MIB,
            resized_to: Some(6 * MIB),
            ..Spec::new(Content::Empty)
        };
        let delta = spec.build_delta(5 * MIB, folder.path(), "delta");
        let target = copy(&delta, folder.path());
        Self { folder, delta, target }
    }

    fn bytes(&self) -> Vec<u8> {
        bytes(&self.delta)
    }

    fn base(&self) -> DeltaBase {
        base(&self.target, &self.delta)
    }

    fn apply(&self, source: &dyn Source) -> Result<TransferReport, Error> {
        apply(source, &self.base())
    }

    /// Checks that the target is the disk with the delta, and restores the base.
    fn assert_applied(&self, case: &str) {
        assert_applied(&self.target, &self.delta, case);
        copy(&self.delta, self.folder.path());
    }
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
