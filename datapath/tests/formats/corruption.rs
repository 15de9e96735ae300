//! Every single byte of every header and table, damaged.

use std::fmt;

use bytes::Bytes;
use datapath::memory;
use diskimage::Format;
use testkit::cases::check_all;

use crate::check::{ask_qemu, import, is_itself};
use crate::samples::{Sample, samples};

/// Of the damages that change nothing, qemu-img sees one in so many: a look costs 15 ms.
const LOOK_AT: usize = 127;

/// What all cases that run at once may hold.
const MAX_HELD_BYTES: usize = 64 << 20;

struct Case<'a> {
    number: usize,
    sample: &'a Sample,
    at: usize,
    value: u8,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sample, at, value, ..
        } = self;
        write!(f, "{} with {value:#04x} at {at:#x}", sample.name)
    }
}

impl Case<'_> {
    fn image(&self) -> Bytes {
        let mut image = self.sample.image.to_vec();
        image[self.at] = self.value;
        image.into()
    }
}

/// Each byte of the metadata, set to nothing, to everything, and with its lowest and highest bit turned over.
fn cases(sample: &Sample) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    for at in sample.metadata.iter().cloned().flatten() {
        let byte = sample.image[at];
        let mut values = vec![0, 0xff, byte ^ 1, byte ^ 0x80];
        values.retain(|value| *value != byte);
        values.dedup();
        for value in values {
            let number = cases.len();
            cases.push(Case {
                number,
                sample,
                at,
                value,
            });
        }
    }
    cases
}

fn check(case: &Case<'_>) {
    let (image, sample) = (case.image(), case.sample);
    let disks = [false, true].map(|ranged| import(&image, ranged, &[1 << 20]));
    for outcome in disks.iter().flatten() {
        if outcome.format == Format::Raw && is_itself(&image, &outcome.disk) {
            continue;
        }
        let unchanged = outcome.disk == sample.disk;
        if unchanged && !case.number.is_multiple_of(LOOK_AT) {
            continue;
        }
        match ask_qemu(&image, sample.format) {
            Some(disk) => assert!(outcome.disk == disk, "qemu-img reads another disk"),
            // It looks at what we need not: nothing may have come of that.
            None => assert!(unchanged, "another disk, and qemu-img refuses the image"),
        }
    }
    let [passed, mapped] = &disks;
    if let (Some(passed), Some(mapped)) = (passed, mapped) {
        assert!(passed.disk == mapped.disk, "the routes lead to different disks");
    }
}

fn check_format(format: &str) {
    for sample in samples().iter().filter(|sample| sample.format == format) {
        let cases = cases(sample);
        assert!(cases.len() > 20, "{}: {} cases", sample.name, cases.len());
        check_all(cases, check);
    }
    let held = memory::peak();
    assert!(held < MAX_HELD_BYTES, "{held} bytes were held at once");
}

#[test]
fn vdi() {
    check_format("vdi");
}

#[test]
fn vmdk() {
    check_format("vmdk");
}

#[test]
fn vhd() {
    check_format("vpc");
}

#[test]
fn vhdx() {
    check_format("vhdx");
}
