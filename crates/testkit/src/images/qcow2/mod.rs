//! qcow2 images cluster by cluster, as any program may leave them and the specification allows: clusters in any order, shared by
//! any number of references, counted by refcounts of any width. qemu-img writes few of them, and reads all.

mod plan;

use self::plan::Plan;

/// Name, offset and width in bytes of the fields of a header of version 3 (qcow2.rst, "Header").
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

/// Subclusters of a cluster with extended L2 entries.
const SUBCLUSTERS: usize = 32;
/// Incompatible feature: the image was not closed, and its refcounts may be out of date.
pub const DIRTY: u64 = 1 << 0;
/// Incompatible feature: the image was found inconsistent.
pub const CORRUPT: u64 = 1 << 1;

/// A cluster of the disk. Those of the same number share a cluster of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Guest {
    /// Never written.
    Hole,
    /// Reads as zeros, and has a cluster.
    ZeroAllocated(u8),
    /// Has a cluster.
    Data(u8),
    /// Only these subclusters of it are the guest's (extended L2 entries only).
    Part(u8, u32),
    /// A compressed cluster, which shares clusters of the image with others.
    Compressed(u8),
}

/// An image to build.
#[derive(Debug, Clone)]
pub struct Qcow2 {
    /// 2 or 3.
    pub version: u32,
    /// log2 of the bytes of a cluster.
    pub cluster_bits: u32,
    /// log2 of the bits of a refcount.
    pub refcount_order: u32,
    /// 32 subclusters in each cluster.
    pub extended_l2: bool,
    /// Incompatible feature bits to set: [`DIRTY`], [`CORRUPT`].
    pub flags: u64,
    /// The disk.
    pub guest: Vec<Guest>,
    /// Its snapshots. Tables that are the same as those of the disk are shared with it.
    pub snapshots: Vec<Vec<Guest>>,
    /// The order of the parts of the image, by ascending key; missing keys count as 0, and those with the same key come in the
    /// order refcount table, refcount blocks, L1 tables, snapshot table, L2 tables, clusters, compressed clusters.
    pub order: Vec<u16>,
}

/// A built image.
#[derive(Debug, Clone)]
pub struct Built {
    /// The image.
    pub image: Vec<u8>,
    /// The disk.
    pub disk: Vec<u8>,
    /// The place of the L1 table.
    pub l1: usize,
    /// The place of the first L2 table, if there is one.
    pub l2: usize,
    /// The place of the refcount table.
    pub refcount_table: usize,
    /// The place of the first refcount block.
    pub refcounts: usize,
    /// The place of the snapshot table; 0 if there is none.
    pub snapshot_table: usize,
}

impl Qcow2 {
    /// A v3 image with refcounts of 16 bits.
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

    /// Entries of an L2 table.
    fn per_table(&self) -> usize {
        self.cluster() / self.entry_bytes()
    }

    /// The disk.
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

    /// The bytes of a plain cluster: others in each subcluster.
    fn stored(&self, number: u8) -> Vec<u8> {
        let part = self.cluster() / SUBCLUSTERS;
        let bytes = (0..SUBCLUSTERS).flat_map(|index| vec![number ^ index.to_le_bytes()[0] << 3 | 1; part]);
        bytes.collect()
    }

    /// Builds the image.
    ///
    /// # Panics
    ///
    /// If a refcount does not fit its width.
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

    /// Most kinds of references; a cluster and a table have several.
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

    /// qemu-img finds the image clean, and reads the disk that it was built of.
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
    fn images_are_what_they_say() {
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
