//! Changes every single byte of every header and table.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use diskimage::Format;
use stream::error::SourceError;
use stream::memory;
use stream::source::{Source, SourceBody};
use testkit::cases::check_all;

use crate::check::{ask_qemu, import_from, is_itself};
use crate::samples::{Sample, samples};

/// Of the damaged images that still give the same disk, one in this many is compared with
/// qemu-img, which takes 15 ms each time.
const LOOK_AT: usize = 127;

/// Limit on the memory that all tests running at once may hold. A damaged table could ask for much
/// more.
const MAX_HELD_BYTES: usize = 256 << 20;

struct Case<'a> {
    number: usize,
    sample: &'a Sample,
    at: usize,
    value: u8,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sample, at, value, .. } = self;
        write!(f, "{} with {value:#04x} at {at:#x}", sample.object.name)
    }
}

/// A damaged image by one route. It is not copied, because there are tens of thousands of cases,
/// and images of 8 MiB.
struct Damaged<'a> {
    case: &'a Case<'a>,
    ranged: bool,
}

impl Source for Damaged<'_> {
    fn name(&self) -> String {
        "memory".into()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.ranged.then_some(self.case.sample.object.bytes.len() as u64)
    }

    fn is_ranged(&self) -> bool {
        self.ranged
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let (image, at) = (&self.case.sample.object.bytes, self.case.at);
        let damage = Bytes::copy_from_slice(&[self.case.value]);
        Ok(Box::new(Parts {
            parts: [image.slice(..at), damage, image.slice(at + 1..)],
            position: 0,
        }))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        let mut bytes = self.case.sample.object.bytes[range.clone()].to_vec();
        if range.contains(&self.case.at) {
            bytes[self.case.at - range.start] = self.case.value;
        }
        Ok(bytes.into())
    }
}

/// The parts of an image, which are read one after another.
struct Parts {
    parts: [Bytes; 3],
    position: u64,
}

impl Parts {
    /// Returns up to `most` bytes from the front.
    fn take(&mut self, most: u64) -> Option<Bytes> {
        let part = self.parts.iter_mut().find(|part| !part.is_empty())?;
        let length = part.len().min(usize::try_from(most).unwrap());
        self.position += length as u64;
        Some(part.split_to(length))
    }
}

impl SourceBody for Parts {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        Ok(self.take(1 << 20))
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        while self.position < offset && self.take(offset - self.position).is_some() {}
        Ok(())
    }
}

impl Case<'_> {
    fn image(&self) -> Bytes {
        let mut image = self.sample.object.bytes.to_vec();
        image[self.at] = self.value;
        image.into()
    }
}

/// Returns cases that set each byte of the metadata to 0 and to 0xff, and flip its lowest and its
/// highest bit.
fn cases(sample: &Sample) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    for at in sample.metadata.iter().cloned().flatten() {
        let byte = sample.object.bytes[at];
        let mut values = vec![0, 0xff, byte ^ 1, byte ^ 0x80];
        values.retain(|value| *value != byte);
        values.dedup();
        for value in values {
            let number = cases.len();
            cases.push(Case { number, sample, at, value });
        }
    }
    cases
}

fn check(case: &Case<'_>) {
    let sample = case.sample;
    let disks = [false, true].map(|ranged| import_from(&Damaged { case, ranged }));
    for outcome in disks.iter().flatten() {
        let unchanged = outcome.disk == sample.object.disk;
        if unchanged && !case.number.is_multiple_of(LOOK_AT) {
            continue;
        }
        let image = case.image();
        if outcome.format == Format::Raw && is_itself(&image, &outcome.disk) {
            continue;
        }
        match ask_qemu(&image, sample.format) {
            Some(disk) => assert!(outcome.disk == disk, "qemu-img reads another disk"),
            // qemu-img also reads parts that we do not need. It may refuse the image because of
            // them, but then the disk must be unchanged.
            None => assert!(unchanged, "another disk, and qemu-img refuses the image"),
        }
    }
    let [passed, mapped] = &disks;
    if let (Some(passed), Some(mapped)) = (passed, mapped) {
        assert!(passed.disk == mapped.disk, "the routes lead to different disks");
    }
}

#[test]
#[ignore = "slow: 23 s of CPU time"]
fn a_damaged_image_fails_or_reads_as_in_qemu() {
    for sample in samples() {
        let cases = cases(sample);
        assert!(cases.len() > 20, "{}: {} cases", sample.object.name, cases.len());
        check_all(cases, check);
    }
    let held = memory::peak_bytes();
    assert!(held < MAX_HELD_BYTES, "{held} bytes were held at once");
}
