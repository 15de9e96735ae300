//! Checks that the disk does not depend on how a network splits the stream.

use std::fmt;

use proptest::prelude::*;
use testkit::cases::check_all;

use crate::check::import_cut;
use crate::samples::{Sample, samples};

struct Case<'a> {
    sample: &'a Sample,
    chunks: Vec<usize>,
    ranged: bool,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranged = if self.ranged { " from a ranged source" } else { "" };
        write!(f, "{} in chunks of {:?}{ranged}", self.sample.name, self.chunks)
    }
}

fn check(case: &Case<'_>) {
    let outcome = import_cut(&case.sample.image, case.ranged, &case.chunks).expect("a whole image");
    assert!(outcome.disk == case.sample.disk, "the disk differs");
}

/// Sizes from 1000 bytes to more than a whole image. Chunks of single bytes are tried only with
/// small images, by `single_bytes_give_the_same_disk`.
fn chunk() -> impl Strategy<Value = usize> {
    prop_oneof![1000usize..20_000, 10_000usize..200_000, 100_000usize..9_000_000]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "tools: qemu-img"]
    fn any_split_gives_the_same_disk(chunks in prop::collection::vec(chunk(), 1..20), ranged: bool) {
        check_all(samples().iter().map(|sample| Case { sample, chunks: chunks.clone(), ranged }), check);
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_split_anywhere_in_the_metadata_changes_nothing() {
    for sample in samples() {
        let places = sample.metadata.iter().cloned().flatten().step_by(7);
        let cases = places.filter(|at| *at > 0).map(|at| Case {
            sample,
            chunks: vec![at, 1, usize::MAX],
            ranged: false,
        });
        check_all(cases.collect::<Vec<_>>(), check);
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn single_bytes_give_the_same_disk() {
    let small = samples().iter().filter(|sample| sample.image.len() < 150 << 10);
    let cases = small.map(|sample| Case { sample, chunks: vec![1], ranged: false });
    let cases: Vec<_> = cases.collect();
    assert!(!cases.is_empty(), "all samples are large");
    check_all(cases, check);
}
