//! Checks that we do not read what qemu-img refuses to open, and that otherwise we read the same
//! disk.

use std::fmt;

use bytes::Bytes;
use testkit::cases::check_all;
use testkit::random::Random;

use crate::qemu::ask::{Opened, format, ours, qemu};
use crate::qemu::cases_of_each_sample;
use crate::qemu::fields::{Field, fields};
use crate::qemu::samples::{SAMPLES, Sample};

/// Messages of QEMU about parts that we do not read: entries of the snapshot table and of the
/// bitmap directory.
const NOT_READ: [&str; 8] = [
    "in snapshot table entry",
    "Failed to read snapshot table",
    "Snapshot table is too big",
    "Bitmap '",
    "Bitmap extra data",
    "bitmap directory",
    "bitmaps found than specified",
    "Could not read bitmap",
];

/// A sample with one field changed.
struct Case<'a> {
    sample: &'a Sample,
    field: &'a Field,
    value: u64,
}

impl Case<'_> {
    fn image(&self) -> Bytes {
        self.field.put(&self.sample.image, self.value).into()
    }

    /// Returns true if QEMU refuses the image because of parts that we do not read, or if we read
    /// it on purpose (docs/use/formats.md).
    fn is_known(&self, reason: &str) -> bool {
        let has_large_sectors =
            self.sample.format == "vhdx" && self.field.is_metadata_item() && self.value == 4096;
        has_large_sectors || NOT_READ.iter().any(|known| reason.contains(known))
    }
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} = {:#x}", self.sample.name, self.field.name, self.value)
    }
}

fn check(case: &Case<'_>) {
    let image = case.image();
    let theirs = qemu(&image, case.sample.format);
    for ranged in [false, true] {
        match (ours(&image, format(case.sample.format), ranged), &theirs) {
            (Opened::Refused(_), _) => {}
            (Opened::Disk(disk), Opened::Disk(other)) => {
                assert!(disk == *other, "qemu-img reads another disk")
            }
            (Opened::Disk(disk), Opened::Refused(reason)) => {
                assert!(case.is_known(reason), "we read it, qemu-img: {reason}");
                // The disk may have another size, which a bitmap does not fit, so only the common
                // part is compared.
                let sample = case.sample.disk();
                let common = disk.len().min(sample.len());
                let is_same = disk[..common] == sample[..common];
                assert!(is_same, "we read another disk, qemu-img: {reason}");
            }
            (Opened::Large, Opened::Refused(reason)) => {
                assert!(case.is_known(reason), "we open it, qemu-img: {reason}")
            }
            (Opened::Large, _) => {}
            (ours, theirs) => panic!("{ours:.80?}, and qemu-img says {theirs:.200?}"),
        }
    }
}

#[test]
#[ignore = "slow: 6 s of CPU time"]
fn no_header_field_gives_a_disk_that_qemu_does_not_read() {
    for (seed, sample) in (1..).zip(SAMPLES.iter()) {
        let fields = fields(sample);
        let values = |field| Field::values(field, &sample.image).into_iter();
        let cases = fields.iter().flat_map(|field| values(field).map(move |value| (field, value)));
        let mut cases: Vec<_> = cases.map(|(field, value)| Case { sample, field, value }).collect();
        assert!(cases.len() > 1000, "{}: {} cases", sample.name, cases.len());
        Random::new(seed).shuffle(&mut cases);
        cases.truncate(cases_of_each_sample(60));
        check_all(cases, check);
    }
}

/// We once read each of these, although QEMU refuses it. For each kind, the value is the first one
/// that is refused.
#[test]
#[ignore = "tools: qemu-img"]
fn images_that_qemu_refuses_are_refused() {
    for (sample, field, value) in [
        ("qcow2", "header at 0x0: snapshots", 65_537),
        ("qcow2", "header at 0x0: snapshot table offset", 0x201),
        ("qcow2, snapshots", "header at 0x0: snapshot table offset", (1 << 63) - 512),
        ("qcow2", "header at 0x0: refcount table offset", (1 << 63) - (1 << 29)),
        ("qcow2", "header at 0x0: size", 128 * 512 + 1),
        ("qcow2", "header at 0x0: autoclear features", 2),
        ("qcow2", "header at 0x0: header length", 511),
        ("qcow2", "header at 0x0: length of the first extension", 401),
        ("qcow2", "header at 0x0: length of the first extension", u64::from(u32::MAX)),
        ("qcow2, bitmap", "bitmaps at 0x70: bitmaps", 0),
        ("qcow2, bitmap", "bitmaps at 0x70: bitmaps", 65_536),
        ("qcow2, bitmap", "bitmaps at 0x70: reserved", 1),
        ("qcow2, bitmap", "bitmaps at 0x70: length of the extension", 23),
        ("qcow2, bitmap", "bitmaps at 0x70: size of the directory", 0),
        ("qcow2, bitmap", "bitmaps at 0x70: size of the directory", 1 << 26),
        ("qcow2, bitmap", "bitmaps at 0x70: offset of the directory", 1),
        ("vdi", "header at 0x0: blocks", 0x1fff_ff81),
        ("vmdk", "header at 0x0: redundant directory", (1 << 54) - 1),
        ("vhdx", "region table at 0x30000: signature", 0),
    ] {
        let sample = SAMPLES.iter().find(|known| known.name == sample).unwrap();
        let fields = fields(sample);
        let field = fields.iter().find(|known| known.name == field).expect(field);
        let case = Case { sample, field, value };
        let image = case.image();
        let theirs = qemu(&image, sample.format);
        assert!(matches!(theirs, Opened::Refused(_)), "{case}: qemu-img opens it");
        for ranged in [false, true] {
            let ours = ours(&image, format(sample.format), ranged);
            assert!(matches!(ours, Opened::Refused(_)), "{case}: we open it");
        }
    }
}
