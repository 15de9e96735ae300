//! Decides where the parts of an image go, and writes them.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::{Built, Guest, Qcow2};

/// Bit 63 of L1 and standard L2 entries: the reference count is exactly one.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;
/// Size of a v3 header without the compression type.
const HEADER_BYTES: u32 = 104;
const EXTENDED_L2: u64 = 1 << 4;

/// The parts of an image and their positions.
pub(super) struct Plan<'a> {
    spec: &'a Qcow2,
    /// The distinct L2 tables.
    tables: Vec<Vec<Guest>>,
    /// For the disk and each snapshot: the L2 table of each L1 entry.
    maps: Vec<Vec<Option<usize>>>,
    /// Numbers of the uncompressed clusters.
    plain: Vec<u8>,
    /// For each compressed cluster: its offset in the area of compressed clusters, and its bytes.
    packed: BTreeMap<u8, (usize, Vec<u8>)>,
    /// The first cluster of each part, and its number of clusters.
    places: Vec<(usize, usize)>,
    blocks: usize,
    clusters: usize,
}

impl<'a> Plan<'a> {
    pub(super) fn new(spec: &'a Qcow2) -> Self {
        let mut plan = Self {
            spec,
            tables: Vec::new(),
            maps: Vec::new(),
            plain: Vec::new(),
            packed: BTreeMap::new(),
            places: Vec::new(),
            blocks: 0,
            clusters: 0,
        };
        plan.add_map(&spec.guest);
        spec.snapshots.iter().for_each(|guest| plan.add_map(guest));
        plan.add_clusters();
        plan.place();
        plan
    }

    fn add_map(&mut self, guest: &[Guest]) {
        let map = guest.chunks(self.spec.per_table()).map(|part| {
            if part.iter().all(|guest| *guest == Guest::Hole) {
                return None;
            }
            let known = self.tables.iter().position(|table| table == part);
            Some(known.unwrap_or_else(|| {
                self.tables.push(part.to_vec());
                self.tables.len() - 1
            }))
        });
        let map = map.collect();
        self.maps.push(map);
    }

    fn add_clusters(&mut self) {
        let mut end = 0;
        for guest in self.tables.iter().flatten() {
            match guest {
                Guest::Hole => {}
                Guest::ZeroAllocated(number) | Guest::Data(number) | Guest::Part(number, _) => {
                    if !self.plain.contains(number) {
                        self.plain.push(*number);
                    }
                }
                Guest::Compressed(number) => {
                    self.packed.entry(*number).or_insert_with(|| {
                        let bytes = deflate(&vec![*number; self.spec.cluster()]);
                        let at = end;
                        end += bytes.len();
                        (at, bytes)
                    });
                }
            }
        }
    }

    /// Index of an L1 table in `places`. The refcount table has index 0, and the refcount blocks
    /// follow.
    fn l1(&self, map: usize) -> usize {
        1 + self.blocks + map
    }

    fn snapshot_table(&self) -> usize {
        self.l1(self.maps.len())
    }

    fn l2(&self, table: usize) -> usize {
        self.snapshot_table() + 1 + table
    }

    fn data(&self, index: usize) -> usize {
        self.l2(self.tables.len()) + index
    }

    fn packed_area(&self) -> usize {
        self.data(self.plain.len())
    }

    fn place(&mut self) {
        let cluster = self.spec.cluster();
        let l1 =
            (self.spec.guest.len().div_ceil(self.spec.per_table()) * 8).div_ceil(cluster).max(1);
        let snapshots = (self.spec.snapshots.len() * SNAPSHOT_BYTES).div_ceil(cluster);
        let packed = self.packed.values().map(|(at, bytes)| at + bytes.len()).max();
        // A compressed cluster's length is stated in sectors, so the last one is rounded up.
        let packed = packed.unwrap_or(0).next_multiple_of(512).div_ceil(cluster);
        let others =
            2 + self.maps.len() * l1 + snapshots + self.tables.len() + self.plain.len() + packed;
        let per_block = (cluster * 8) >> self.spec.refcount_order;
        self.blocks = 1;
        while self.blocks * per_block < others + self.blocks {
            self.blocks += 1;
        }
        assert!(self.blocks <= cluster / 8, "{} refcount blocks", self.blocks);
        let mut lengths = vec![1; self.packed_area() + 1];
        (0..self.maps.len()).for_each(|map| lengths[self.l1(map)] = l1);
        lengths[self.snapshot_table()] = snapshots;
        lengths[self.packed_area()] = packed;
        let mut parts: Vec<usize> = (0..lengths.len()).collect();
        parts.sort_by_key(|part| self.spec.order.get(*part).copied().unwrap_or(0));
        self.places = lengths.iter().map(|length| (0, *length)).collect();
        self.clusters = 1;
        for part in parts {
            self.places[part].0 = self.clusters;
            self.clusters += lengths[part];
        }
    }

    /// The offset of a part in the image.
    fn at(&self, part: usize) -> usize {
        self.places[part].0 * self.spec.cluster()
    }

    /// The offset and length in the image of a cluster of the disk.
    fn host(&self, guest: Guest) -> Option<(usize, usize)> {
        match guest {
            Guest::Hole => None,
            Guest::ZeroAllocated(number) | Guest::Data(number) | Guest::Part(number, _) => {
                let index = self.plain.iter().position(|plain| *plain == number)?;
                Some((self.at(self.data(index)), self.spec.cluster()))
            }
            Guest::Compressed(number) => {
                let (at, bytes) = &self.packed[&number];
                let host = self.at(self.packed_area()) + at;
                Some((host, (host + bytes.len()).next_multiple_of(512) - host))
            }
        }
    }

    /// Counts the references to each cluster of the image.
    fn references(&self) -> Vec<u64> {
        let cluster = self.spec.cluster();
        let mut counts = vec![0; self.clusters];
        counts[0] = 1;
        let mut count = |host: usize, length: usize| {
            let clusters = host / cluster..(host + length).div_ceil(cluster);
            clusters.for_each(|cluster| counts[cluster] += 1);
        };
        for part in (0..self.l2(0)).filter(|part| self.places[*part].1 > 0) {
            count(self.at(part), self.places[part].1 * cluster);
        }
        for table in self.maps.iter().flatten().flatten() {
            count(self.at(self.l2(*table)), cluster);
            let hosts = self.tables[*table].iter().filter_map(|guest| self.host(*guest));
            hosts.for_each(|(host, length)| count(host, length));
        }
        counts
    }

    pub(super) fn write(&self) -> Built {
        let cluster = self.spec.cluster();
        let counts = self.references();
        let mut image = vec![0; self.clusters * cluster];
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.header());
        for block in 0..self.blocks {
            put(self.at(0) + block * 8, &be(self.at(1 + block)));
        }
        let copied = |host: usize| if counts[host / cluster] == 1 { COPIED } else { 0 };
        for (map, tables) in self.maps.iter().enumerate() {
            for (index, table) in tables.iter().enumerate() {
                if let Some(table) = table {
                    let host = self.at(self.l2(*table));
                    let entry = number(host) | copied(host);
                    put(self.at(self.l1(map)) + index * 8, &entry.to_be_bytes());
                }
            }
        }
        for (index, table) in self.tables.iter().enumerate() {
            for (place, guest) in table.iter().enumerate() {
                let at = self.at(self.l2(index)) + place * self.spec.entry_bytes();
                put(at, &self.entry(*guest, copied));
            }
        }
        for (index, plain) in self.plain.iter().enumerate() {
            put(self.at(self.data(index)), &self.spec.stored(*plain));
        }
        for (at, bytes) in self.packed.values() {
            put(self.at(self.packed_area()) + at, bytes);
        }
        put(self.at(self.snapshot_table()), &self.snapshots());
        self.put_refcounts(&mut image, &counts);
        Built {
            image,
            disk: self.spec.disk(),
            l1: self.at(self.l1(0)),
            l2: if self.tables.is_empty() { 0 } else { self.at(self.l2(0)) },
            refcount_table: self.at(0),
            refcounts: self.at(1),
            snapshot_table: if self.spec.snapshots.is_empty() {
                0
            } else {
                self.at(self.snapshot_table())
            },
        }
    }

    /// The header (qcow2.rst, "Header").
    fn header(&self) -> Vec<u8> {
        let spec = self.spec;
        let mut header = vec![0; 104];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"QFI\xfb");
        put(4, &spec.version.to_be_bytes());
        put(20, &spec.cluster_bits.to_be_bytes());
        put(24, &be(spec.guest.len() * spec.cluster()));
        put(36, &be(self.maps[0].len())[4..]);
        put(40, &be(self.at(self.l1(0))));
        put(48, &be(self.at(0)));
        put(56, &1u32.to_be_bytes());
        if !spec.snapshots.is_empty() {
            put(60, &be(spec.snapshots.len())[4..]);
            put(64, &be(self.at(self.snapshot_table())));
        }
        if spec.version == 3 {
            let extended = if spec.extended_l2 { EXTENDED_L2 } else { 0 };
            put(72, &(spec.flags | extended).to_be_bytes());
            put(96, &spec.refcount_order.to_be_bytes());
            put(100, &HEADER_BYTES.to_be_bytes());
        } else {
            header.truncate(72);
        }
        header
    }

    /// An L2 entry (qcow2.rst, "Cluster mapping").
    fn entry(&self, guest: Guest, copied: impl Fn(usize) -> u64) -> Vec<u8> {
        let Some((host, length)) = self.host(guest) else {
            return vec![0; self.spec.entry_bytes()];
        };
        let all = u64::from(u32::MAX);
        let (entry, bitmap) = match guest {
            Guest::Compressed(_) => {
                let sectors = number((host + length) / 512 - host / 512 - 1);
                (COMPRESSED | sectors << (70 - self.spec.cluster_bits) | number(host), 0)
            }
            Guest::ZeroAllocated(_) if self.spec.extended_l2 => {
                (number(host) | copied(host), all << 32)
            }
            Guest::ZeroAllocated(_) => (number(host) | copied(host) | ZERO, 0),
            Guest::Part(_, subclusters) => (number(host) | copied(host), u64::from(subclusters)),
            _ => (number(host) | copied(host), all),
        };
        let mut bytes = entry.to_be_bytes().to_vec();
        if self.spec.extended_l2 {
            bytes.extend(bitmap.to_be_bytes());
        }
        bytes
    }

    /// The snapshot table (qcow2.rst, "Snapshots").
    fn snapshots(&self) -> Vec<u8> {
        let mut table = Vec::new();
        for (index, guest) in self.spec.snapshots.iter().enumerate() {
            let mut entry = [0; SNAPSHOT_BYTES];
            entry[..8].copy_from_slice(&be(self.at(self.l1(1 + index))));
            entry[8..12].copy_from_slice(&be(self.maps[1 + index].len())[4..]);
            // The length of the extra data. The ID and the name are empty.
            entry[36..40].copy_from_slice(&16u32.to_be_bytes());
            entry[48..56].copy_from_slice(&be(guest.len() * self.spec.cluster()));
            table.extend(entry);
        }
        table
    }

    /// Writes the reference counts (qcow2.rst, "Host cluster management"). Those narrower than a
    /// byte begin at its lowest bit.
    fn put_refcounts(&self, image: &mut [u8], counts: &[u64]) {
        let bits = 1usize << self.spec.refcount_order;
        let per_block = self.spec.cluster() * 8 / bits;
        for (index, count) in counts.iter().enumerate() {
            assert!(bits == 64 || *count < 1 << bits, "{count} references in {bits} bits");
            let (block, place) = (index / per_block, index % per_block);
            let at = self.at(1 + block) + place * bits / 8;
            match bits {
                1..8 => image[at] |= count.to_le_bytes()[0] << (place * bits % 8),
                _ => {
                    let bytes = bits / 8;
                    image[at..at + bytes].copy_from_slice(&count.to_be_bytes()[8 - bytes..]);
                }
            }
        }
    }
}

/// Size of an entry of the snapshot table: its fixed part and 16 bytes of extra data.
const SNAPSHOT_BYTES: usize = 56;

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory cannot fail.
    encoder.write_all(bytes).ok();
    encoder.finish().unwrap_or_default()
}

fn number(value: usize) -> u64 {
    value as u64
}

fn be(value: usize) -> [u8; 8] {
    number(value).to_be_bytes()
}
