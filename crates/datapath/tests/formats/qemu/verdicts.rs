//! Checks that `check` agrees with `qemu-img check` on images with any damage to their tables.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;

use bytes::Bytes;
use diskimage::bytes_at::le32;
use testkit::cases::check_all;
use testkit::random::Random;

use crate::metadata;
use crate::qemu::ask::{Opened, Verdict, format, our_check, ours, qemu, qemu_check};
use crate::qemu::cases_of_each_sample;
use crate::qemu::samples::{SAMPLES, Sample};

/// Reasons for which we refuse images that qemu-img opens (docs/use/formats.md). They are all in
/// headers, except for tables that are shared.
const NOT_OPENED: [(&str, &[&str]); 4] = [
    ("qcow2", &["backing file"]),
    ("vdi", &["before each block", "image type", "differences to another"]),
    (
        "vmdk",
        &[
            "its descriptor",
            "it has no descriptor",
            "the descriptor",
            "in other files",
            "in another file",
            "differences to another",
            "compression algorithm",
            "the capacity is 0",
            "which are more than",
            "a grain has",
            "grain table has",
            "compressed grains",
            "needs a grain directory",
            "expected 1, 2 or 3",
            "the header needs",
            "the footer contradicts the header",
            "the footer at",
            "L1 size too big",
            "share a table",
        ],
    ),
    (
        "vhdx",
        &[
            "(64 TiB)",
            "outside the metadata region",
            "is shorter than",
            "regions must begin at",
            "log contains changes",
        ],
    ),
];

/// Offset of the logical sector size in the sample.
const VHDX_SECTOR_SIZE_AT: usize = 0x21_0020;

/// A damaged sample.
struct Case<'a> {
    sample: &'a Sample,
    seed: u64,
    image: Bytes,
}

impl<'a> Case<'a> {
    fn new(sample: &'a Sample, seed: u64) -> Self {
        Self { sample, seed, image: damaged(sample, seed).into() }
    }

    /// Returns true for a VHDX with sectors of 4096 bytes, which QEMU does not open.
    fn has_large_sectors(&self) -> bool {
        self.sample.format == "vhdx" && le32(&self.image, VHDX_SECTOR_SIZE_AT) == Some(4096)
    }

    /// Returns true if we may refuse the image: for a known reason, or because qemu-img cannot
    /// read it either. (`qemu-img check` opens more images than its other commands.)
    fn is_not_opened(&self, reason: &str) -> bool {
        let mut known = NOT_OPENED.iter().filter(|(format, _)| *format == self.sample.format);
        known.any(|(_, reasons)| reasons.iter().any(|known| reason.contains(known)))
            || matches!(qemu(&self.image, self.sample.format), Opened::Refused(_))
    }
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, seed {}", self.sample.name, self.seed)
    }
}

/// Returns the sample with one to three changes in its headers and tables; sometimes it is also
/// truncated or extended.
fn damaged(sample: &Sample, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut image = sample.image.clone();
    let mut ranges = metadata::find(sample.format, &image);
    // Most metadata of a VHDX is covered by checksums. Damage to it is always refused, so a few
    // such cases suffice.
    if sample.format == "vhdx" && !random.one_in(20) {
        ranges.drain(..ranges.len() - 3);
    }
    for _ in 0..=random.below(3) {
        let index = index(random.below(ranges.len() as u64));
        damage(&mut image, ranges[index].clone(), &mut random);
    }
    if random.one_in(12) {
        image.truncate(index(random.below(image.len() as u64)));
    } else if random.one_in(12) {
        image.resize(image.len() + index(random.below(5000)), 0xab);
    }
    image
}

/// Changes one number in `range`.
fn damage(image: &mut [u8], range: Range<usize>, random: &mut Random) {
    let width = [1, 2, 4, 8, 8, 8][index(random.below(6))];
    let places = (range.len() / width) as u64;
    if places == 0 {
        return;
    }
    let mut place = || range.start + width * index(random.below(places));
    // Most entries of most tables are empty, so one that is in use is preferred.
    let other = place();
    let places: Vec<usize> = (0..8).map(|_| place()).collect();
    let is_used = |at: &&usize| image[**at..**at + width].iter().any(|byte| *byte != 0);
    let at = *places.iter().find(is_used).unwrap_or(&places[0]);
    let old = image[at..at + width].to_vec();
    let number = &mut image[at..at + width];
    match random.below(8) {
        0 => number.fill(0),
        1 => number.fill(0xff),
        2 => random.fill(number),
        3 | 4 => {
            let bit = index(random.below(8 * width as u64));
            number[bit / 8] ^= 1 << (bit % 8);
        }
        5 => number[width - 1] = number[width - 1].wrapping_add(1),
        6 => image.copy_within(at..at + width, other),
        _ => {
            image.copy_within(other..other + width, at);
            image[other..other + width].copy_from_slice(&old);
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// Compares both verdicts and returns the one of qemu-img.
fn check(case: &Case<'_>) -> Verdict {
    let (theirs, they_say) = qemu_check(&case.image, case.sample.format);
    let (ours, we_say) = our_check(case.image.clone(), format(case.sample.format));
    let agree = match (ours, theirs) {
        // Such errors keep qemu-img from finishing its check.
        (Verdict::Errors, Verdict::GaveUp) => true,
        (Verdict::Refused, _) => case.is_not_opened(&we_say),
        (_, Verdict::Refused) => case.has_large_sectors(),
        (ours, theirs) => ours == theirs,
    };
    assert!(agree, "we: {ours:?} ({we_say:.300}), qemu-img: {theirs:?} ({they_say:.400})");
    theirs
}

#[test]
#[ignore = "slow: 27 s of CPU time"]
fn damaged_images_get_the_same_verdict_as_from_qemu() {
    // qemu-img cannot check a VHD.
    for sample in SAMPLES.iter().filter(|sample| sample.format != "vpc") {
        let count = cases_of_each_sample(300) as u64;
        let verdicts = Mutex::new(BTreeMap::new());
        check_all((0..count).map(|seed| Case::new(sample, seed)), |case| {
            let verdict = check(case);
            *verdicts.lock().unwrap().entry(verdict).or_insert(0) += 1;
        });
        let verdicts = verdicts.into_inner().unwrap();
        println!("{}: {verdicts:?}", sample.name);
        assert!(verdicts.len() >= 3, "{}: only {verdicts:?}", sample.name);
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn sound_samples_are_read_and_checked_as_in_qemu() {
    for sample in SAMPLES.iter() {
        let (image, format) = (Bytes::from(sample.image.clone()), format(sample.format));
        for ranged in [false, true] {
            let theirs = Opened::Disk(sample.disk());
            assert_eq!(ours(&image, format, ranged), theirs, "{}", sample.name);
        }
        if sample.format != "vpc" {
            let (theirs, said) = qemu_check(&image, sample.format);
            let (ours, _) = our_check(image, format);
            assert_eq!((ours, theirs), (Verdict::Sound, Verdict::Sound), "{}: {said}", sample.name);
        }
    }
}
