//! Checks that the disk does not depend on how a network splits the stream into chunks.

use std::fmt;

use datapath::options::{ReadRoute, WriteOptions};
use datapath::transfer_image;
use proptest::prelude::*;
use stream::facts::RouteTaken;
use stream::options::{PayloadKind, ReadOptions};
use testkit::cases::check_all;

use crate::common::objects::{Object, objects};
use crate::common::{Memory, fast_folder, file};
use crate::samples::samples;

/// Images up to this size are also sent byte by byte.
const SMALL_BYTES: usize = 2 << 20;

fn all() -> impl Iterator<Item = Object> {
    objects().iter().cloned().chain(samples().iter().map(|sample| sample.object.clone()))
}

struct Case {
    object: Object,
    chunks: Vec<usize>,
    ranged: bool,
    route: ReadRoute,
}

impl Case {
    fn new(object: &Object, chunks: &[usize]) -> Self {
        let chunks = chunks.to_vec();
        Self { object: object.clone(), chunks, ranged: false, route: ReadRoute::Auto }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranged = if self.ranged { " from a ranged source" } else { "" };
        write!(f, "{} in chunks of {:?}{ranged}", self.object.name, self.chunks)
    }
}

fn check(Case { object, chunks, ranged, route }: &Case) {
    let folder = fast_folder();
    let target = file(&folder.path().join("disk"));
    let source =
        Memory { chunks: chunks.clone(), ranged: *ranged, ..Memory::new(object.bytes.clone()) };
    let (content, reading) = (PayloadKind::default(), ReadOptions::default());
    let writing = WriteOptions { route: *route, ..WriteOptions::default() };
    let report = transfer_image(&source, content, &target, &reading, &writing).unwrap();
    assert_eq!(report.virtual_size, object.disk.len() as u64);
    if report.facts.route != RouteTaken::Ranged {
        assert_eq!(report.source_bytes, object.bytes.len() as u64);
    }
    assert!(*route == ReadRoute::Auto || report.facts.route != RouteTaken::Ranged);
    assert!(std::fs::read(target.path).unwrap() == object.disk, "the disk differs");
}

/// Sizes from a single byte to more than a whole image.
fn chunk() -> impl Strategy<Value = usize> {
    prop_oneof![1usize..16, 1usize..600, 500usize..5000, 1000usize..200_000, 1000usize..9_000_000]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
    fn any_split_gives_the_same_disk(chunks in prop::collection::vec(chunk(), 1..40), ranged: bool) {
        let cases = all().map(|object| {
            let least = if object.bytes.len() <= SMALL_BYTES { 1 } else { 1000 };
            let chunks: Vec<_> = chunks.iter().map(|size| (*size).max(least)).collect();
            Case { ranged, ..Case::new(&object, &chunks) }
        });
        check_all(cases.collect::<Vec<_>>(), check);
    }
}

#[test]
#[ignore = "slow: 9 s of CPU time"]
fn single_bytes_give_the_same_disk() {
    let small = all().filter(|object| object.bytes.len() <= SMALL_BYTES);
    check_all(small.map(|object| Case::new(&object, &[1])).collect::<Vec<_>>(), check);
}

#[test]
#[ignore = "slow: 4 s of CPU time"]
fn a_split_anywhere_in_the_head_or_metadata_changes_nothing() {
    // Magic numbers, the ends of the qcow2 headers of both versions, and the first sector, by
    // which a format is recognised.
    let cuts = (1..=24).chain(71..=73).chain(103..=113).chain(511..=513);
    let heads = cuts
        .flat_map(|cut| objects().iter().map(move |object| Case::new(object, &[cut, usize::MAX])));
    let metadata = samples().iter().flat_map(|sample| {
        let places = sample.metadata.iter().cloned().flatten().step_by(7).filter(|at| *at > 0);
        places.map(|at| Case::new(&sample.object, &[at, 1, usize::MAX]))
    });
    check_all(heads.chain(metadata).collect::<Vec<_>>(), check);
}

#[test]
#[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
fn a_ranged_source_may_be_read_in_one_pass() {
    let cases = all().map(|object| Case {
        ranged: true,
        route: ReadRoute::OnePass,
        ..Case::new(&object, &[100_000])
    });
    check_all(cases.collect::<Vec<_>>(), check);
}
