//! Deltas onto the disk that they are deltas to. The oracle is qemu-img, which reads both as one chain.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{Memory, fast_folder};
use datapath::delta::{Base, Report, apply};
use datapath::transfer::{Options, Route, RouteTaken};
use datapath::{Error, target};
use testkit::cases::check_all;
use testkit::disk;
use testkit::images::{Compression, Content, Delta, Spec, Version};
use testkit::loopdev::{DIRT, LoopDevice};
use tokio_util::sync::CancellationToken;

const MIB: u64 = 1 << 20;

fn base(path: &Path, delta: &Delta) -> Base {
    Base {
        path: path.to_owned(),
        available: u64::MAX,
        name: delta.base_name(),
        cache: target::Cache::Auto,
    }
}

/// A copy of the base, which the delta is applied to.
fn copy(delta: &Delta, folder: &Path) -> PathBuf {
    let target = folder.join("disk.img");
    std::fs::copy(&delta.base, &target).unwrap();
    target
}

fn bytes(delta: &Delta) -> Vec<u8> {
    std::fs::read(&delta.qcow2).unwrap()
}

fn one_pass() -> Options {
    Options {
        route: Route::OnePass,
        ..Options::default()
    }
}

/// The delta is on the disk, and the file has the size that it should have.
fn assert_applied(target: &Path, delta: &Delta, case: &str) {
    disk::assert_same(target, &delta.raw, delta.virtual_size, case);
}

/// Every combination of version, cluster size, compression and extended L2 entries, each to a base of the same size, to a
/// smaller one, and resized later. Sizes are odd numbers of sectors.
fn matrix() -> Vec<(Spec, u64)> {
    let mut cases = Vec::new();
    for spec in Spec::matrix()
        .into_iter()
        .filter(|spec| spec.content == Content::Sparse)
    {
        let size = 6 * MIB + 7 * 512;
        let spec = Spec {
            virtual_size: size,
            ..spec
        };
        let resized = Spec {
            resized_to: Some(size + 3 * MIB - 512),
            ..spec.clone()
        };
        cases.extend([(spec.clone(), size), (spec, 5 * MIB - 3 * 512), (resized, size)]);
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
fn every_kind_of_delta_makes_the_disk_that_qemu_img_makes() {
    let cases = matrix()
        .into_iter()
        .map(|(spec, base_size)| Case(spec, base_size));
    check_all(cases, |Case(spec, base_size)| {
        let folder = fast_folder();
        let delta = spec.build_delta(*base_size, folder.path(), "delta");
        let routes = [
            (
                "ranged",
                Memory::ranged(bytes(&delta)),
                Options::default(),
                RouteTaken::Ranged,
            ),
            (
                "a pipe",
                Memory::new(bytes(&delta)),
                Options::default(),
                RouteTaken::OnePass,
            ),
            (
                "one pass",
                Memory::ranged(bytes(&delta)),
                one_pass(),
                RouteTaken::OnePass,
            ),
        ];
        for (route, source, options, taken) in routes {
            let target = copy(&delta, folder.path());
            let report = apply(&source, &base(&target, &delta), &options).unwrap();
            assert_applied(&target, &delta, route);
            assert_eq!(target.metadata().unwrap().len(), delta.virtual_size, "{route}");
            assert_eq!(
                (report.facts.route, report.virtual_size),
                (taken, delta.virtual_size)
            );
            assert_only_differences_were_written(&report, &delta);
        }
    });
}

/// What the delta does not have is not written again.
fn assert_only_differences_were_written(report: &Report, delta: &Delta) {
    let image = delta.qcow2.metadata().unwrap().len();
    // Compressed clusters and zeros take less in the image than on the disk.
    let most = (image * 4).max(delta.virtual_size / 2) + MIB;
    assert!(
        report.written_bytes <= most,
        "{} bytes written for {image}",
        report.written_bytes
    );
}

#[test]
fn devices_of_both_sector_sizes_are_changed_in_place() {
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
            apply(&source, &base(device.path(), &delta), &Options::default()).unwrap();
            assert_applied(device.path(), &delta, &delta.name);
            let mut rest = vec![0; 2 << 20];
            let node = std::fs::File::open(device.path()).unwrap();
            node.read_exact_at(&mut rest, 8 * MIB).unwrap();
            assert!(
                rest.iter().all(|byte| *byte == DIRT),
                "what lies behind the disk was touched"
            );
        }
    }
}

/// A delta of every kind of cluster, with the L1 table behind everything.
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

#[test]
fn a_disk_that_was_grown_keeps_its_size_and_its_end() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    let target = copy(&delta, folder.path());
    let file = std::fs::File::options().write(true).open(&target).unwrap();
    file.set_len(6 * MIB).unwrap();
    file.write_all_at(b"end", 9 * MIB).unwrap();
    apply(
        &Memory::ranged(bytes(&delta)),
        &base(&target, &delta),
        &Options::default(),
    )
    .unwrap();
    assert_applied(&target, &delta, "grown");
    let disk = std::fs::read(&target).unwrap();
    assert!(disk.len() as u64 == 9 * MIB + 3 && disk.ends_with(b"\0end"));
}

#[test]
fn deltas_in_layers_and_in_small_chunks_are_applied() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    for layer in ["gzip", "zstd", "xz"] {
        let target = copy(&delta, folder.path());
        let packed = testkit::tools::filter(layer, ["-c"], &bytes(&delta));
        apply(&Memory::new(packed), &base(&target, &delta), &Options::default()).unwrap();
        assert_applied(&target, &delta, layer);
    }
    for chunks in [vec![1, 4095], vec![513, 70_000], vec![usize::MAX]] {
        let target = copy(&delta, folder.path());
        let mut source = Memory::new(bytes(&delta));
        source.chunks.clone_from(&chunks);
        apply(&source, &base(&target, &delta), &Options::default()).unwrap();
        assert_applied(&target, &delta, &format!("{chunks:?}"));
    }
}

/// The delta is refused, and the disk is what it was, to the byte and in length.
#[track_caller]
fn refused(source: &Memory, base_of: &Base, delta: &Delta, sentence: &str) {
    let error = apply(source, base_of, &Options::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains(sentence), "{error}");
    let (before, after) = (
        std::fs::read(&delta.base).unwrap(),
        std::fs::read(&base_of.path).unwrap(),
    );
    assert!(before == after, "a refused delta changed the disk");
}

#[test]
fn what_is_no_delta_to_this_disk_is_refused_before_anything_is_touched() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    let target = copy(&delta, folder.path());
    let other = Base {
        name: "other".into(),
        ..base(&target, &delta)
    };
    let ranged = Memory::ranged(bytes(&delta));
    let sentence = "snapshot backing file 'delta.base' does not match expected checkpoint 'other', unable to safely rebase snapshot";
    refused(&ranged, &other, &delta, sentence);
    refused(&Memory::new(bytes(&delta)), &other, &delta, sentence);

    let small = Base {
        available: 6 * MIB - 512,
        ..base(&target, &delta)
    };
    refused(
        &ranged,
        &small,
        &delta,
        "is larger than the reported available storage",
    );

    let whole = Spec::new(Content::Sparse).build(folder.path(), "whole");
    let whole = Memory::ranged(std::fs::read(whole.qcow2).unwrap());
    refused(&whole, &base(&target, &delta), &delta, "no backing file");
    let raw = Memory::ranged(std::fs::read(&delta.base).unwrap());
    refused(&raw, &base(&target, &delta), &delta, "raw");
    refused(&Memory::new(Vec::new()), &base(&target, &delta), &delta, "");

    let missing = Base {
        path: folder.path().join("missing"),
        ..base(&target, &delta)
    };
    let error = apply(&ranged, &missing, &Options::default()).unwrap_err();
    assert!(matches!(error, Error::Target(_)), "{error}");
    assert!(!missing.path.exists(), "a disk that is not there was made");
}

#[test]
fn only_the_last_part_of_the_bases_name_counts() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    let wanted = |target: &Path| Base {
        name: "checkpoint".into(),
        ..base(target, &delta)
    };
    for name in [
        "checkpoint",
        "/etc/checkpoint",
        "../../checkpoint",
        "a/b/checkpoint",
    ] {
        delta.rename_base(name);
        let target = copy(&delta, folder.path());
        apply(
            &Memory::ranged(bytes(&delta)),
            &wanted(&target),
            &Options::default(),
        )
        .unwrap();
        assert_applied(&target, &delta, name);
    }
    for name in [
        "checkpoint2",
        "/checkpoint/x",
        "Checkpoint",
        r#"json:{"driver":"raw","file":{"driver":"file","filename":"/etc/checkpoint"}}"#,
        "nbd://127.0.0.1:1/checkpoint?",
    ] {
        delta.rename_base(name);
        let target = copy(&delta, folder.path());
        refused(
            &Memory::ranged(bytes(&delta)),
            &wanted(&target),
            &delta,
            "does not match expected checkpoint",
        );
    }
}

#[test]
fn a_delta_that_breaks_anywhere_can_be_applied_again() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    let target = copy(&delta, folder.path());
    let length = bytes(&delta).len();
    // Each attempt breaks somewhere else, on top of what the ones before left.
    for (number, at) in (0..length).step_by(length / 40).enumerate() {
        let broken = Memory {
            broken_at: Some(at),
            ranged: number % 2 == 0,
            ..Memory::new(bytes(&delta))
        };
        apply(&broken, &base(&target, &delta), &Options::default()).unwrap_err();
        assert!(target.metadata().unwrap().len() >= 5 * MIB, "the disk was cut");
    }
    apply(
        &Memory::new(bytes(&delta)),
        &base(&target, &delta),
        &Options::default(),
    )
    .unwrap();
    assert_applied(&target, &delta, "after forty failures");
    apply(
        &Memory::ranged(bytes(&delta)),
        &base(&target, &delta),
        &Options::default(),
    )
    .unwrap();
    assert_applied(&target, &delta, "twice");
}

#[test]
fn a_truncated_delta_is_an_error_and_the_disk_is_kept() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    let whole = bytes(&delta);
    for ranged in [true, false] {
        for percent in [0, 1, 10, 50, 90, 99] {
            let part = whole[..whole.len() * percent / 100].to_vec();
            let source = Memory {
                ranged,
                ..Memory::new(part)
            };
            let target = copy(&delta, folder.path());
            apply(&source, &base(&target, &delta), &Options::default()).unwrap_err();
            assert!(
                target.metadata().unwrap().len() >= 5 * MIB,
                "{percent} %: the disk was cut"
            );
        }
    }
}

#[test]
fn a_stopped_delta_leaves_the_disk_in_its_place() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    let target = copy(&delta, folder.path());
    let stop = CancellationToken::new();
    stop.cancel();
    let options = Options {
        stop,
        ..Options::default()
    };
    let error = apply(&Memory::new(bytes(&delta)), &base(&target, &delta), &options).unwrap_err();
    assert!(matches!(error, Error::Stopped), "{error}");
    assert!(target.metadata().unwrap().len() >= 5 * MIB);
}

#[test]
fn stages_follow_each_other() {
    let folder = fast_folder();
    let first = rich_delta(folder.path());
    let target = copy(&first, folder.path());
    apply(
        &Memory::new(bytes(&first)),
        &base(&target, &first),
        &Options::default(),
    )
    .unwrap();
    // The next delta is to what the first one made.
    let spec = Spec {
        version: Version::V3,
        virtual_size: first.virtual_size,
        seed: 77,
        ..Spec::new(Content::Empty)
    };
    let next = spec.build_delta_to(&first.raw, folder.path(), "next");
    apply(
        &Memory::ranged(bytes(&next)),
        &base(&target, &next),
        &Options::default(),
    )
    .unwrap();
    assert_applied(&target, &next, "the second stage");
}
