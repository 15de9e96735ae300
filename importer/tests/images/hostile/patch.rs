//! Changes to valid qcow2 images, by the specification: "Header" and "L2 table entry".

use std::fmt;
use std::ops::Range;

use testkit::fail::OrFail;
use testkit::images::Image;
use testkit::images::qcow2::HEADER_FIELDS;
use testkit::random::Random;

/// A valid image to start from.
pub(crate) struct Corpus {
    pub(crate) name: &'static str,
    pub(crate) image: Image,
    bytes: Vec<u8>,
}

impl Corpus {
    pub(crate) fn new(name: &'static str, image: Image) -> Self {
        let bytes = std::fs::read(&image.qcow2).or_fail("read the image");
        Self { name, image, bytes }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The big-endian number in `width` bytes at `offset`.
    fn number(&self, offset: u64, width: u64) -> u64 {
        let bytes = &self.bytes[index(offset)..index(offset + width)];
        bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn cluster_size(&self) -> u64 {
        1 << self.number(20, 4)
    }

    /// Offsets of the used L1 entries.
    fn l1_entries(&self) -> Vec<u64> {
        let (entries, offset) = (self.number(36, 4), self.number(40, 8));
        (0..entries).map(|entry| offset + 8 * entry).filter(|at| self.number(*at, 8) != 0).collect()
    }

    /// Offsets of the used entries in the first L2 table.
    fn l2_entries(&self) -> Vec<u64> {
        const OFFSET_BITS: u64 = 0x00FF_FFFF_FFFF_FE00;
        let table = self.number(self.l1_entries()[0], 8) & OFFSET_BITS;
        let entries = (table..table + self.cluster_size()).step_by(8);
        entries.filter(|at| self.number(*at, 8) != 0).collect()
    }
}

/// Bytes that replace those at an offset of the image.
#[derive(Clone)]
pub(crate) struct Patch {
    name: String,
    offset: u64,
    bytes: Vec<u8>,
}

impl Patch {
    /// A patch with the low `width` bytes of `value`, big-endian.
    fn number(name: &str, offset: u64, width: u64, value: u64) -> Self {
        let bytes = value.to_be_bytes()[index(8 - width)..].to_vec();
        Self { name: format!("{name} at {offset} = {value:#x}"), offset, bytes }
    }

    pub(crate) fn apply(&self, image: &[u8]) -> Vec<u8> {
        let mut patched = image.to_vec();
        let at = index(self.offset);
        patched[at..at + self.bytes.len()].copy_from_slice(&self.bytes);
        patched
    }
}

impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Every field of the header with every boundary value that it can hold.
pub(crate) fn header_fields(base: &Corpus) -> Vec<Patch> {
    let mut patches = Vec::new();
    for (name, offset, width) in HEADER_FIELDS {
        let (offset, width) = (offset as u64, width as u64);
        let largest = u64::MAX >> (64 - 8 * width);
        for value in boundary_values(base).into_iter().filter(|value| *value <= largest) {
            patches.push(Patch::number(name, offset, width, value));
        }
    }
    patches
}

/// The first, second and last used entries of the L1 table and of one L2 table. Each gets every
/// boundary value, without flags and with one of the flags in turn.
pub(crate) fn table_entries(base: &Corpus) -> Vec<Patch> {
    // Bit 63: refcount is one. Bit 62: compressed. Bit 0: zeros. Bits 1 and 56: reserved.
    const FLAGS: [u64; 6] = [1 << 63, 1 << 62, 3 << 62, 1, 2, 1 << 56];
    let mut patches = Vec::new();
    for (name, entries) in [("L1 entry", base.l1_entries()), ("L2 entry", base.l2_entries())] {
        let last = entries.len() - 1;
        // A table may have fewer than three used entries.
        let mut chosen = vec![entries[0], entries[last.min(1)], entries[last]];
        chosen.dedup();
        for at in chosen {
            for (value, flags) in boundary_values(base).into_iter().zip(FLAGS.into_iter().cycle()) {
                patches.extend([0, flags].map(|flags| Patch::number(name, at, 8, value | flags)));
            }
        }
    }
    patches
}

/// Numbers around which the meaning of sizes and offsets changes.
fn boundary_values(base: &Corpus) -> Vec<u64> {
    let (cluster, end) = (base.cluster_size(), base.bytes().len() as u64);
    let mut values = vec![0, 1, 2, 3, 8, 9, 21, 22, 31, 32, 63, 64, 104, 511, 512];
    values.extend([cluster - 1, cluster, cluster + 1, cluster + 512, 3 * cluster]);
    values.extend([end - 1, end, end - end % cluster, end.next_multiple_of(cluster) + cluster]);
    // The offsets of the L1 table and of the first L2 table, as if they were data or each other.
    values.extend([base.number(40, 8), base.number(base.l1_entries()[0], 8)]);
    for bits in [31, 32, 41, 54, 56, 61, 63] {
        values.extend([(1 << bits) - 1, 1 << bits]);
    }
    values.push(u64::MAX);
    values.sort_unstable();
    values.dedup();
    values
}

/// Makes `count` patches of random bytes: half of them in the tables in front, half anywhere.
pub(crate) fn noise(base: &Corpus, seed: u64, count: u64) -> Vec<Patch> {
    let mut random = Random::new(seed);
    let end = base.bytes().len() as u64;
    let front = end.min(8 * base.cluster_size());
    let patch = |round: u64| {
        let mut bytes = vec![0; index(1 << random.below(6))];
        random.fill(&mut bytes);
        let within: Range<u64> = 4..if round.is_multiple_of(2) { front } else { end };
        let room = within.end - within.start - bytes.len() as u64;
        let offset = within.start + random.below(room);
        Patch { name: format!("noise {bytes:02x?} at {offset}"), offset, bytes }
    };
    (0..count).map(patch).collect()
}

fn index(n: u64) -> usize {
    usize::try_from(n).or_fail("tests run on 64-bit machines")
}
