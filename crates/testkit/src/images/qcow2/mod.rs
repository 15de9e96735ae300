//! Builds qcow2 images cluster by cluster, with layouts that the specification allows but qemu-img
//! rarely writes: clusters in any order, shared by any number of references, and reference counts
//! of any width. qemu-img can read all of them.

mod plan;

use self::plan::Plan;

/// Name, offset and width in bytes of the fields of a version 3 header (qcow2.rst, "Header").
pub const HEADER_FIELDS: [(&str, usize, usize); 18] = [
    ("version", 4, 4),
    ("backing file offset", 8, 8),
    ("backing file size", 16, 4),
    ("cluster bits", 20, 4),
    ("size", 24, 8),
    ("crypt method", 32, 4),
    ("L1 size", 36, 4),
    ("L1 table offset", 40, 8),
    ("refcount table offset", 48, 8),
    ("refcount table clusters", 56, 4),
    ("snapshots", 60, 4),
    ("snapshot table offset", 64, 8),
    ("incompatible features", 72, 8),
    ("compatible features", 80, 8),
    ("autoclear features", 88, 8),
    ("refcount order", 96, 4),
    ("header length", 100, 4),
    ("compression type", 104, 1),
];

/// Number of subclusters in a cluster with extended L2 entries.
const SUBCLUSTERS: usize = 32;
/// Incompatible feature: the image was not closed, and its refcounts may be out of date.
pub const DIRTY: u64 = 1 << 0;
/// Incompatible feature: the image was found to be inconsistent.
pub const CORRUPT: u64 = 1 << 1;

/// A cluster of the guest's disk. Clusters with the same number share one cluster of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Guest {
    /// Never written.
    Hole,
    /// Allocated, but reads as zeros.
    ZeroAllocated(u8),
    /// Allocated, with data.
    Data(u8),
    /// Allocated, but only these subclusters have data (extended L2 entries only).
    Part(u8, u32),
    /// Compressed. Several compressed clusters are packed into one cluster of the image.
    Compressed(u8),
}

/// Describes an image to build.
#[derive(Debug, Clone)]
pub struct Qcow2 {
    /// The version: 2 or 3.
    pub version: u32,
    /// Binary logarithm of the cluster size in bytes.
    pub cluster_bits: u32,
    /// Binary logarithm of the width of a reference count in bits.
    pub refcount_order: u32,
    /// Divides each cluster into 32 subclusters.
    pub extended_l2: bool,
    /// Incompatible feature bits to set: [`DIRTY`], [`CORRUPT`].
    pub flags: u64,
    /// The clusters of the disk.
    pub guest: Vec<Guest>,
    /// The clusters of each snapshot. Snapshots share L2 tables that are equal to those of the
    /// disk.
    pub snapshots: Vec<Vec<Guest>>,
    /// Keys by which the parts of the image are sorted. A missing key counts as 0, and parts with
    /// equal keys keep this order: refcount table, refcount blocks, L1 tables, snapshot table, L2
    /// tables, clusters, compressed clusters.
    pub order: Vec<u16>,
}

/// A built image.
#[derive(Debug, Clone)]
pub struct Built {
    /// The bytes of the image.
    pub image: Vec<u8>,
    /// The bytes of the disk.
    pub disk: Vec<u8>,
    /// Offset of the L1 table.
    pub l1: usize,
    /// Offset of the first L2 table; 0 if there is none.
    pub l2: usize,
    /// Offset of the refcount table.
    pub refcount_table: usize,
    /// Offset of the first refcount block.
    pub refcounts: usize,
    /// Offset of the snapshot table; 0 if there is none.
    pub snapshot_table: usize,
}

impl Qcow2 {
    /// A v3 image with reference counts of 16 bits.
    pub fn new(cluster_bits: u32, guest: Vec<Guest>) -> Self {
        Self {
            version: 3,
            cluster_bits,
            refcount_order: 4,
            extended_l2: false,
            flags: 0,
            guest,
            snapshots: Vec::new(),
            order: Vec::new(),
        }
    }

    fn cluster(&self) -> usize {
        1 << self.cluster_bits
    }

    fn entry_bytes(&self) -> usize {
        if self.extended_l2 { 16 } else { 8 }
    }

    /// Number of entries in an L2 table.
    fn per_table(&self) -> usize {
        self.cluster() / self.entry_bytes()
    }

    /// The bytes of the disk.
    pub fn disk(&self) -> Vec<u8> {
        self.guest.iter().flat_map(|guest| self.content(*guest)).collect()
    }

    fn content(&self, guest: Guest) -> Vec<u8> {
        match guest {
            Guest::Hole | Guest::ZeroAllocated(_) => vec![0; self.cluster()],
            Guest::Data(number) => self.stored(number),
            Guest::Compressed(number) => vec![number; self.cluster()],
            Guest::Part(number, subclusters) => {
                let mut bytes = self.stored(number);
                for (index, part) in bytes.chunks_mut(self.cluster() / SUBCLUSTERS).enumerate() {
                    if subclusters >> index & 1 == 0 {
                        part.fill(0);
                    }
                }
                bytes
            }
        }
    }

    /// The bytes of an uncompressed cluster, which differ in each subcluster.
    fn stored(&self, number: u8) -> Vec<u8> {
        let part = self.cluster() / SUBCLUSTERS;
        let bytes =
            (0..SUBCLUSTERS).flat_map(|index| vec![number ^ index.to_le_bytes()[0] << 3 | 1; part]);
        bytes.collect()
    }

    /// Builds the image.
    ///
    /// # Panics
    ///
    /// Panics if a reference count does not fit into its width.
    pub fn build(&self) -> Built {
        Plan::new(self).write()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::images::Oracle;
    use crate::tools;

    /// A disk with most kinds of references. Some clusters and tables are referenced several
    /// times.
    fn shared(extended_l2: bool) -> Vec<Guest> {
        let part = if extended_l2 { Guest::Part(7, 0x00ff_0f01) } else { Guest::Data(7) };
        let mut guest = vec![
            Guest::Data(1),
            Guest::Data(2),
            Guest::Data(1),
            Guest::Hole,
            Guest::ZeroAllocated(3),
            Guest::Compressed(4),
            Guest::Compressed(5),
            Guest::Compressed(4),
            part,
            part,
        ];
        guest.resize(200, Guest::Hole);
        guest.push(Guest::Data(1));
        guest
    }

    /// Fails unless qemu-img finds the image consistent and converts it to the expected disk.
    fn check(spec: &Qcow2) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let built = spec.build();
        std::fs::write(path("image"), &built.image).unwrap();
        let words = ["check", "-f", "qcow2"].map(OsStr::new);
        tools::run("qemu-img", words.into_iter().chain([path("image").as_os_str()]));
        Oracle::ask("qcow2", &path("image"), &path("raw"));
        assert!(std::fs::read(path("raw")).unwrap() == built.disk, "{spec:?}");
    }

    #[test]
    #[ignore = "tools: qemu-img"]
    fn qemu_img_finds_the_images_consistent_and_reads_the_same_disk() {
        for (extended_l2, cluster_bits) in [(false, 9), (false, 12), (true, 14)] {
            for refcount_order in 4..=6 {
                let guest = shared(extended_l2);
                let snapshot = guest[..100].iter().copied().chain([Guest::Data(9); 50]);
                check(&Qcow2 {
                    extended_l2,
                    refcount_order,
                    snapshots: vec![guest.clone(), snapshot.collect()],
                    order: (0..40).map(|n| n * 79 % 31).collect(),
                    ..Qcow2::new(cluster_bits, guest)
                });
            }
        }
        for refcount_order in 0..=3 {
            check(&Qcow2 { refcount_order, ..Qcow2::new(9, (1..200).map(Guest::Data).collect()) });
        }
        check(&Qcow2 { version: 2, ..Qcow2::new(16, vec![Guest::Data(1), Guest::Compressed(2)]) });
    }
}
