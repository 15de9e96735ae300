//! Small files that demand large resources, above all memory. The function that makes a file
//! explains what it attacks.

use crate::tools;

/// A file that demands too much.
pub struct Bomb {
    /// Names what the file demands.
    pub name: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
    /// True if the file itself is large, so that it attacks only as an uncompressed image.
    pub is_large: bool,
    /// A part of the error message with which the file is refused if 256 MiB of memory are
    /// available.
    pub refused: &'static str,
}

const MIB: usize = 1 << 20;

/// The logarithm of the largest window that `zstd` accepts by default: 128 MiB.
const LONG: u32 = 27;

/// Returns all files.
pub fn all() -> Vec<Bomb> {
    let bomb = |name, bytes| Bomb { name, bytes, is_large: false, refused: " bytes of memory" };
    vec![
        bomb("four windows", windows(&[LONG; 4], vec![0; 64 * MIB])),
        bomb("a window, a dictionary and a window", window_dictionary_window()),
        bomb("a map in three windows", windows(&[LONG; 3], packed(&compressed_map(1 << 20)))),
        Bomb { is_large: true, ..bomb("a map alone", compressed_map(9 << 20)) },
        bomb("a map alone, as it comes", packed(&compressed_map(9 << 20))),
        bomb("a map of short runs", packed(&alternating_map(9 << 20))),
        Bomb {
            // This one fits into the memory: 32 MiB, and three times that for the L2 tables.
            refused: "truncated: an L2 table",
            ..bomb("an L1 table of the largest size", packed(&large_l1()))
        },
        bomb("clusters of zeros that wait", packed(&waiting_zeros())),
        bomb("clusters of data that wait", packed(&waiting_data())),
        bomb("a block map of many blocks", packed(&block_map())),
    ]
}

/// Returns files that use as much of the `available` bytes for an image as they can, and some that
/// demand more. All of them are refused, since those that fit are truncated.
pub fn to_the_brim(available: usize) -> Vec<Bomb> {
    const ENTRY: usize = 24;
    let bomb = |name, mut bytes: Vec<u8>, is_cut: bool| {
        bytes.truncate(bytes.len() - if is_cut { 4 } else { 0 });
        Bomb { name, bytes, is_large: false, refused: "" }
    };
    // Subtracts what a decoder needs besides its window or dictionary.
    let room = available - 3 * MIB;
    let mut left = room;
    let logs: Vec<u32> = (20..=27)
        .rev()
        .filter(|log| {
            let fits = left >= 1 << log;
            left -= if fits { 1 << log } else { 0 };
            fits
        })
        .take(3)
        .collect();
    let dictionary = |bytes: usize| {
        let filter = format!("--lzma2=preset=0,dict={bytes}");
        tools::filter("xz", ["-c", "-q", "-T1", &filter], &vec![0; bytes + MIB])
    };
    let clusters = room / ENTRY / ENTRIES * ENTRIES;
    vec![
        bomb("windows", windows(&logs, vec![0; 1 << logs[2]]), true),
        bomb("a dictionary", dictionary(room), true),
        bomb("a dictionary of half the memory", dictionary(room / 2), true),
        bomb("a dictionary of 20 MiB", dictionary(20 * MIB), true),
        bomb("a map", packed(&compressed_map(clusters)), false),
        bomb("a map that is too large", packed(&compressed_map(11 << 20)), false),
        bomb("a map of short runs", packed(&alternating_map(clusters / 2)), false),
        bomb("a map of short runs that is too large", packed(&alternating_map(9 << 20)), false),
    ]
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    tools::filter("zstd", ["-c", "-q", "-3"], bytes)
}

/// A zstd layer with a window of 2^`log` bytes.
fn long(log: u32, bytes: &[u8]) -> Vec<u8> {
    tools::filter("zstd", ["-c", "-q", "-1", &format!("--long={log}")], bytes)
}

/// Nested zstd layers with windows of these sizes, the outermost first. A skippable frame of 150
/// MiB follows each frame except the outermost. While it is skipped, the window of its own layer
/// looks unused, and the windows of the layers around it fill up.
fn windows(logs: &[u32], content: Vec<u8>) -> Vec<u8> {
    const SKIPPED: usize = 150 * MIB;
    let mut bytes = content;
    for (layer, log) in logs.iter().enumerate().rev() {
        bytes = long(*log, &bytes);
        if layer > 0 {
            bytes.extend(0x184D_2A50_u32.to_le_bytes());
            bytes.extend(u32::try_from(SKIPPED).unwrap_or(0).to_le_bytes());
            bytes.resize(bytes.len() + SKIPPED, 0);
        }
    }
    bytes
}

/// A dictionary of 64 MiB between two windows of 128 MiB, all of which are filled.
fn window_dictionary_window() -> Vec<u8> {
    let inner = long(LONG, &vec![0; 150 * MIB]);
    let inner = [inner, b"\x50\x2A\x4D\x18\0\0\xC0\x08".to_vec(), vec![0; 140 * MIB]].concat();
    let middle = tools::filter("xz", ["-c", "-q", "-T1", "--lzma2=preset=0,dict=64MiB"], &inner);
    let mut outer = long(LONG, &middle);
    // Padding: an image shorter than a header gets no memory at all.
    outer.extend(0x184D_2A50_u32.to_le_bytes());
    outer.extend(512_u32.to_le_bytes());
    outer.resize(outer.len() + 512, 0);
    outer
}

/// The smallest cluster size. Disks of a few GiB then have millions of clusters.
const CLUSTER_BITS: u32 = 9;
const CLUSTER: usize = 1 << CLUSTER_BITS;
const ENTRIES: usize = CLUSTER / 8;

/// A qcow2 image without usable refcounts. Its L1 table lists `tables` L2 tables, whose entries
/// are returned by `entry`, called with the number of the guest's cluster.
fn qcow2(tables: usize, entry: impl Fn(usize) -> u64) -> Vec<u8> {
    let l1_clusters = (tables * 8).div_ceil(CLUSTER);
    let first_table = 1 + l1_clusters;
    let mut image = vec![0; (first_table + tables) * CLUSTER];
    head(&mut image, CLUSTER_BITS, (tables * ENTRIES * CLUSTER) as u64, tables, CLUSTER as u64);
    for table in 0..tables {
        let at = (first_table + table) * CLUSTER;
        put_be64(&mut image, CLUSTER + table * 8, at as u64 | 1 << 63);
        for index in 0..ENTRIES {
            put_be64(&mut image, at + index * 8, entry(table * ENTRIES + index));
        }
    }
    image
}

/// A qcow2 header of version 3 with the dirty flag, so that readers ignore the refcounts.
fn head(image: &mut [u8], cluster_bits: u32, virtual_size: u64, l1_entries: usize, l1_offset: u64) {
    put(image, 0, b"QFI\xfb\0\0\0\x03");
    put_be32(image, 20, cluster_bits);
    put_be64(image, 24, virtual_size);
    put_be32(image, 36, u32::try_from(l1_entries).unwrap_or(u32::MAX));
    put_be64(image, 40, l1_offset);
    // The header must state some position of a refcount table.
    put_be64(image, 48, 1 << cluster_bits);
    put_be32(image, 56, 1);
    put_be64(image, 72, 1);
    put_be32(image, 96, 4);
    put_be32(image, 100, 104);
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put_be32(image: &mut [u8], at: usize, value: u32) {
    put(image, at, &value.to_be_bytes());
}

fn put_be64(image: &mut [u8], at: usize, value: u64) {
    put(image, at, &value.to_be_bytes());
}

/// An image in which every guest cluster maps to the same compressed cluster, far after the
/// tables. Each L2 entry of 8 bytes costs 24 bytes of memory. All entries are equal, so they
/// compress well.
fn compressed_map(clusters: usize) -> Vec<u8> {
    let tables = clusters / ENTRIES;
    let behind = (tables as u64 + 100) << CLUSTER_BITS;
    let mut image = qcow2(tables, |_| behind | 1 << 62);
    image.resize(image.len() + 200 * CLUSTER, 0xff);
    image
}

/// An image whose guest clusters map to five clusters in turn, each time to the next but one, so
/// that no run is longer than one cluster.
fn alternating_map(clusters: usize) -> Vec<u8> {
    let tables = clusters / ENTRIES;
    // The data clusters are missing: writing them would take time and no more memory.
    let behind = (tables as u64 + 100_000) << CLUSTER_BITS;
    qcow2(tables, |cluster| (behind + ((cluster as u64 * 2 % 5) << CLUSTER_BITS)) | 1 << 63)
}

/// An image with 4 Mi scattered L2 tables, in clusters of 512 bytes.
fn large_l1() -> Vec<u8> {
    const TABLES: usize = 4 << 20;
    let l1 = 1024_usize;
    let mut image = vec![0; l1 + TABLES * 8];
    head(&mut image, 9, (TABLES * 64 * 512) as u64, TABLES, l1 as u64);
    let behind = image.len().next_multiple_of(512) as u64;
    for table in 0..TABLES {
        put_be64(&mut image, l1 + table * 8, (behind + 512 * table as u64) | 1 << 63);
    }
    image.resize(image.len() + 512 * 1000, 0);
    image
}

/// A disk of zeros before its tables, in the smallest clusters. Each cluster has to wait for the
/// tables.
fn waiting_zeros() -> Vec<u8> {
    let l1_at = 800 * MIB;
    let mut image = vec![0; l1_at + 512];
    head(&mut image, 9, 1 << 35, 1 << 20, l1_at as u64);
    image
}

/// Like [`waiting_zeros`], with data that is not zero and can be parked only beyond the end of the
/// disk.
fn waiting_data() -> Vec<u8> {
    let l1_at = 640 * MIB;
    let mut image = vec![0x55; l1_at + 512];
    image[..4096].fill(0);
    head(&mut image, 9, 1 << 31, 1 << 16, l1_at as u64);
    image
}

/// A VDI image whose ten million blocks all map to the first one, which is missing. Each map entry
/// of 4 bytes costs 24 bytes of memory.
fn block_map() -> Vec<u8> {
    const BLOCKS: u32 = 10 << 20;
    let map_at = 512_u32;
    let data_at = (map_at + BLOCKS * 4).next_multiple_of(1 << 20);
    let mut image = vec![0; data_at as usize];
    put(&mut image, 0, b"<<< Oracle VM VirtualBox Disk Image >>>\n");
    // `VDICore.h`: signature, version, header size, dynamic image, offsets, sector size, block
    // size, block counts.
    for (at, value) in [
        (0x40, 0xbeda_107f),
        (0x44, 0x0001_0001),
        (0x48, 0x190),
        (0x4c, 1),
        (0x154, map_at),
        (0x158, data_at),
        (0x168, 512),
        (0x178, 1 << 20),
        (0x180, BLOCKS),
        (0x184, BLOCKS),
    ] {
        put(&mut image, at, &value.to_le_bytes());
    }
    put(&mut image, 0x170, &(u64::from(BLOCKS) << 20).to_le_bytes());
    // The UUID of the image must not be zero.
    put(&mut image, 0x188, &[7; 16]);
    image
}
