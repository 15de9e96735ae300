//! Checks that the disk does not depend on how a network splits the stream into chunks.

use std::fmt;

use crate::common::objects::{Object, objects};
use crate::common::{Memory, fast_folder, file, transfer};
use datapath::facts::RouteTaken;
use datapath::options::{PayloadKind, ReadOptions, ReadRoute, WriteOptions};
use datapath::transfer_image;
use proptest::prelude::*;
use testkit::cases::check_all;

/// An object that arrives in chunks.
struct Case<'a> {
    object: &'a Object,
    chunks: Vec<usize>,
    ranged: bool,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranged = if self.ranged { " from a ranged source" } else { "" };
        write!(f, "{} in chunks of {:?}{ranged}", self.object.name, self.chunks)
    }
}

fn check(case: &Case<'_>) {
    let folder = fast_folder();
    let target = file(&folder.path().join("disk"));
    let source = Memory {
        chunks: case.chunks.clone(),
        ranged: case.ranged,
        ..Memory::new(case.object.bytes.clone())
    };
    let report = transfer(&source, &target).unwrap();
    assert_eq!(report.virtual_size, case.object.disk.len() as u64);
    if report.facts.route != RouteTaken::Ranged {
        assert_eq!(report.source_bytes, case.object.bytes.len() as u64);
    }
    assert!(std::fs::read(target.path).unwrap() == case.object.disk, "the disk differs");
}

/// Sizes from a single byte to more than a whole image.
fn chunk() -> impl Strategy<Value = usize> {
    prop_oneof![1usize..16, 1usize..600, 500usize..5000, 1000usize..2_000_000]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
    fn any_split_gives_the_same_disk(chunks in prop::collection::vec(chunk(), 1..40), ranged: bool) {
        check_all(objects().iter().map(|object| Case { object, chunks: chunks.clone(), ranged }), check);
    }
}

#[test]
#[ignore = "slow: 8 s of CPU time"]
fn single_bytes_give_the_same_disk() {
    check_all(
        objects().iter().map(|object| Case { object, chunks: vec![1], ranged: false }),
        check,
    );
}

#[test]
#[ignore = "slow: 3 s of CPU time"]
fn a_split_anywhere_in_the_head_changes_nothing() {
    // Magic numbers, the ends of the qcow2 headers of both versions, and the first sector, by
    // which a format is recognised.
    let cuts = (1..=24).chain(71..=73).chain(103..=113).chain(511..=513);
    let cases = cuts.flat_map(|cut| {
        objects().iter().map(move |object| Case {
            object,
            chunks: vec![cut, usize::MAX],
            ranged: false,
        })
    });
    check_all(cases.collect::<Vec<_>>(), check);
}

#[test]
#[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
fn a_ranged_source_may_be_read_in_one_pass() {
    for object in objects() {
        let folder = fast_folder();
        let target = file(&folder.path().join("disk"));
        let options = WriteOptions { route: ReadRoute::OnePass, ..WriteOptions::default() };
        let report = transfer_image(
            &Memory::ranged(object.bytes.clone()),
            PayloadKind::default(),
            &target,
            &ReadOptions::default(),
            &options,
        )
        .unwrap();
        assert_ne!(report.facts.route, RouteTaken::Ranged);
        assert!(std::fs::read(target.path).unwrap() == object.disk, "{}", object.name);
    }
}
