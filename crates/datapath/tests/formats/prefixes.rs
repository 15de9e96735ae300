//! Images that end too early.

use std::fmt;

use testkit::cases::check_all;

use crate::check::{ask_qemu, import, is_itself};
use crate::samples::{Sample, samples};
use diskimage::Format;

/// Between headers and tables, images are cut at about this many places, at multiples of a sector.
const CUTS: usize = 200;
const SECTOR: usize = 512;

struct Cut<'a> {
    sample: &'a Sample,
    at: usize,
}

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the first {} bytes of {}", self.at, self.sample.name)
    }
}

/// Returns cuts at every byte of the metadata, at sectors elsewhere, and at half sectors near the
/// end.
fn cuts(sample: &Sample) -> Vec<Cut<'_>> {
    let length = sample.image.len();
    let step = (length / CUTS).next_multiple_of(SECTOR);
    let mut places: Vec<usize> = sample.metadata.iter().cloned().flatten().collect();
    places.extend((SECTOR..length).step_by(step));
    places.extend((length.saturating_sub(4 * SECTOR)..length).step_by(SECTOR / 2));
    places.sort_unstable();
    places.dedup();
    places.retain(|at| *at > 0);
    places.into_iter().map(|at| Cut { sample, at }).collect()
}

fn check(cut: &Cut<'_>) {
    let (image, sample) = (cut.sample.image.slice(..cut.at), cut.sample);
    for ranged in [false, true] {
        let Some(outcome) = import(&image, ranged) else {
            continue;
        };
        // A truncated signature is not recognised, and a fixed VHD without its footer is a raw
        // disk.
        if outcome.format == Format::Raw && is_itself(&image, &outcome.disk) {
            continue;
        }
        // If qemu-img refuses the image, the missing part must not contain any byte of the disk.
        let expected = ask_qemu(&image, sample.format);
        let expected = expected.as_deref().unwrap_or(&sample.disk);
        assert!(outcome.disk == expected, "a false success, ranged: {ranged}");
    }
}

#[test]
#[ignore = "slow: 21 s of CPU time"]
fn every_prefix_fails_or_gives_the_disk_that_qemu_reads() {
    for sample in samples() {
        check_all(cuts(sample), check);
    }
}
