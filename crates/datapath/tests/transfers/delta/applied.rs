//! Applies every kind of delta to files and to devices.

use std::os::unix::fs::FileExt;

use datapath::delta::apply_delta;
use datapath::options::{ReadRoute, WriteOptions};
use datapath::transfer::TransferReport;
use stream::facts::RouteTaken;
use stream::options::ReadOptions;
use testkit::cases::check_all;
use testkit::images::{Compression, Content, Delta, Spec, Version};
use testkit::loopdev::{DIRT, LoopDevice};

use crate::common::{Memory, fast_folder};
use crate::delta::{MIB, Scene, apply, assert_applied, base, bytes, copy};

fn one_pass() -> WriteOptions {
    WriteOptions { route: ReadRoute::OnePass, ..WriteOptions::default() }
}

/// Returns every combination of version, cluster size, compression and extended L2 entries, each
/// for a base of the same size, for a smaller base, and resized later. The sizes are odd numbers
/// of sectors.
fn matrix() -> Vec<Case> {
    let mut cases = Vec::new();
    for spec in Spec::matrix().into_iter().filter(|spec| spec.content == Content::Sparse) {
        let size = 6 * MIB + 7 * 512;
        let spec = Spec { virtual_size: size, ..spec };
        let resized = Spec { resized_to: Some(size + 3 * MIB - 512), ..spec.clone() };
        let smaller = Case(spec.clone(), 5 * MIB - 3 * 512);
        cases.extend([Case(spec, size), smaller, Case(resized, size)]);
    }
    cases
}

struct Case(Spec, u64);

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {} bytes", self.0, self.1)
    }
}

#[test]
#[ignore = "slow: 9 s of CPU time"]
fn every_kind_of_delta_gives_the_disk_that_qemu_img_makes() {
    check_all(matrix(), |Case(spec, base_size)| {
        let folder = fast_folder();
        let delta = spec.build_delta(*base_size, folder.path(), "delta");
        let routes = [
            ("ranged", Memory::ranged(bytes(&delta)), WriteOptions::default(), RouteTaken::Ranged),
            ("a pipe", Memory::new(bytes(&delta)), WriteOptions::default(), RouteTaken::OnePass),
            ("one pass", Memory::ranged(bytes(&delta)), one_pass(), RouteTaken::OnePass),
        ];
        for (route, source, options, taken) in routes {
            let target = copy(&delta, folder.path());
            let (base, reading) = (base(&target, &delta), ReadOptions::default());
            let report = apply_delta(&source, &base, &reading, &options).unwrap();
            assert_applied(&target, &delta, route);
            assert_eq!(target.metadata().unwrap().len(), delta.virtual_size, "{route}");
            assert_eq!((report.facts.route, report.virtual_size), (taken, delta.virtual_size));
            assert_only_differences_were_written(&report, &delta);
        }
    });
}

/// Checks that parts which are not in the delta were not written.
fn assert_only_differences_were_written(report: &TransferReport, delta: &Delta) {
    let image = delta.qcow2.metadata().unwrap().len();
    // Compressed clusters and zeros are smaller in the image than on the disk.
    let most = (image * 4).max(delta.virtual_size / 2) + MIB;
    assert!(report.written_bytes <= most, "{} bytes written for {image}", report.written_bytes);
}

#[test]
#[ignore = "root: loop devices"]
fn devices_of_both_sector_sizes_are_updated_in_place() {
    for (sector_size, cluster_size, extended_l2, compression) in [
        (512, 64 << 10, false, Compression::Zlib),
        (4096, 4096, false, Compression::Plain),
        (4096, 64 << 10, true, Compression::Zstd),
        (512, 512, false, Compression::Plain),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let spec = Spec {
            cluster_size,
            extended_l2,
            compression,
            virtual_size: 8 * MIB,
            seed: cluster_size + u64::from(sector_size),
            ..Spec::new(Content::Empty)
        };
        let delta = spec.build_delta(8 * MIB, folder.path(), "delta");
        let device = LoopDevice::new(folder.path(), 10 * MIB, sector_size);
        for source in [Memory::ranged(bytes(&delta)), Memory::new(bytes(&delta))] {
            let content = std::fs::read(&delta.base).unwrap();
            let node = std::fs::File::options().write(true).open(device.path()).unwrap();
            node.write_all_at(&content, 0).unwrap();
            drop(node);
            apply(&source, &base(device.path(), &delta)).unwrap();
            assert_applied(device.path(), &delta, &delta.name);
            let mut rest = vec![0; 2 << 20];
            let node = std::fs::File::open(device.path()).unwrap();
            node.read_exact_at(&mut rest, 8 * MIB).unwrap();
            assert!(
                rest.iter().all(|byte| *byte == DIRT),
                "the bytes behind the disk were changed"
            );
        }
    }
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_disk_that_has_grown_keeps_its_size_and_its_end() {
    let scene = Scene::new();
    let file = std::fs::File::options().write(true).open(&scene.target).unwrap();
    file.set_len(6 * MIB).unwrap();
    file.write_all_at(b"end", 9 * MIB).unwrap();
    scene.apply(&Memory::ranged(scene.bytes())).unwrap();
    let disk = std::fs::read(&scene.target).unwrap();
    assert!(disk.len() as u64 == 9 * MIB + 3 && disk.ends_with(b"\0end"));
    scene.assert_applied("grown");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io, xz, zstd"]
fn compressed_deltas_and_deltas_in_small_chunks_are_applied() {
    let scene = Scene::new();
    for layer in ["gzip", "zstd", "xz"] {
        let packed = testkit::tools::filter(layer, ["-c"], &scene.bytes());
        scene.apply(&Memory::new(packed)).unwrap();
        scene.assert_applied(layer);
    }
    for chunks in [vec![1, 4095], vec![513, 70_000], vec![usize::MAX]] {
        let case = format!("{chunks:?}");
        scene.apply(&Memory { chunks, ..Memory::new(scene.bytes()) }).unwrap();
        scene.assert_applied(&case);
    }
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn the_delta_of_the_next_stage_is_applied_after_the_first() {
    let Scene { folder, delta: first, target } = Scene::new();
    apply(&Memory::new(bytes(&first)), &base(&target, &first)).unwrap();
    // The next delta is based on the result of the first one.
    let virtual_size = first.virtual_size;
    let spec = Spec { version: Version::V3, virtual_size, seed: 77, ..Spec::new(Content::Empty) };
    let next = spec.build_delta_to(&first.raw, folder.path(), "next");
    apply(&Memory::ranged(bytes(&next)), &base(&target, &next)).unwrap();
    assert_applied(&target, &next, "the second stage");
}
