//! Writes qcow2 images with the layout of `qemu-img convert`, in which all metadata comes first
//! (QEMU `docs/interop/qcow2.rst`).

use std::io::{Error, Result};

use bytes::Bytes;

/// Size of a cluster in bytes: QEMU's default.
pub const CLUSTER_BYTES: usize = 64 << 10;

/// Number of entries in an L2 table.
const L2_ENTRIES: usize = CLUSTER_BYTES / 8;

/// Positions of the tables, in clusters. The data follows the L2 tables.
const REFCOUNT_TABLE: u64 = 1;
const REFCOUNT_BLOCK: u64 = 2;
const L1_TABLE: u64 = 3;
const L2_TABLES: usize = 4;

/// Bit 63 of L1 and L2 entries: the reference count is one.
const COPIED: u64 = 1 << 63;
/// Bit 62 of an L2 entry: the cluster is compressed.
const COMPRESSED: u64 = 1 << 62;
/// Number of bits of a compressed cluster's offset: 62 - (cluster_bits - 8).
const OFFSET_BITS: u32 = 54;

/// How the clusters are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clusters {
    /// Uncompressed.
    Plain,
    /// Each cluster is deflated.
    Deflate,
    /// Each cluster is a Zstandard frame.
    Zstd,
}

impl Clusters {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Deflate, Self::Zstd];

    /// The variant's name in benchmark names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }

    /// Compresses a cluster. Returns `None` if it is stored uncompressed, perhaps because it would
    /// not get smaller.
    pub fn compress(self, cluster: &[u8]) -> Result<Option<Vec<u8>>> {
        let packed = match self {
            Self::Plain => return Ok(None),
            Self::Zstd => zstd::bulk::compress(cluster, 3)?,
            Self::Deflate => {
                let mut compressor =
                    libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
                let mut packed = vec![0; compressor.deflate_compress_bound(cluster.len())];
                let length =
                    compressor.deflate_compress(cluster, &mut packed).map_err(Error::other)?;
                packed.truncate(length);
                packed
            }
        };
        Ok((packed.len() < cluster.len()).then_some(packed))
    }
}

/// Returns an image of a disk that consists of whole clusters. All of them are allocated.
pub fn qcow2(disk: &[u8], clusters: Clusters) -> Result<Bytes> {
    let tables = disk.len().div_ceil(CLUSTER_BYTES).div_ceil(L2_ENTRIES);
    let mut image = vec![0; (L2_TABLES + tables) * CLUSTER_BYTES];
    // Each table is referenced once, and each host cluster as often as there are compressed
    // clusters in it.
    let mut refcounts = vec![1u16; L2_TABLES + tables];
    for (index, cluster) in disk.chunks(CLUSTER_BYTES).enumerate() {
        let packed = clusters.compress(cluster)?;
        if packed.is_none() {
            image.resize(image.len().next_multiple_of(CLUSTER_BYTES), 0);
        }
        let start = image.len();
        image.extend(packed.as_deref().unwrap_or(cluster));
        let last = image.len() - 1;
        refcounts.resize(last / CLUSTER_BYTES + 1, 0);
        refcounts[start / CLUSTER_BYTES..].iter_mut().for_each(|count| *count += 1);
        let entry = match packed {
            Some(_) => {
                let more_sectors = (last / 512 - start / 512) as u64;
                COMPRESSED | more_sectors << OFFSET_BITS | start as u64
            }
            None => COPIED | start as u64,
        };
        put(&mut image, L2_TABLES * CLUSTER_BYTES + index * 8, &entry.to_be_bytes());
    }
    image.resize(image.len().next_multiple_of(CLUSTER_BYTES), 0);
    for table in 0..tables {
        let entry = COPIED | cluster_offset((L2_TABLES + table) as u64);
        put(&mut image, offset_in_image(L1_TABLE) + table * 8, &entry.to_be_bytes());
    }
    write_refcounts(&mut image, &refcounts);
    write_header(&mut image, disk.len() as u64, tables, clusters);
    Ok(image.into())
}

fn write_refcounts(image: &mut [u8], refcounts: &[u16]) {
    let block = cluster_offset(REFCOUNT_BLOCK).to_be_bytes();
    put(image, offset_in_image(REFCOUNT_TABLE), &block);
    for (cluster, count) in refcounts.iter().enumerate() {
        put(image, offset_in_image(REFCOUNT_BLOCK) + cluster * 2, &count.to_be_bytes());
    }
}

fn write_header(image: &mut [u8], disk_bytes: u64, tables: usize, clusters: Clusters) {
    let zstd = clusters == Clusters::Zstd;
    let mut put32 = |at: usize, value: u32| put(image, at, &value.to_be_bytes());
    put32(0, u32::from_be_bytes(*b"QFI\xfb"));
    put32(4, 3);
    put32(20, CLUSTER_BYTES.ilog2());
    put32(36, u32::try_from(tables).unwrap_or(u32::MAX));
    put32(56, 1);
    put32(96, 4);
    put32(100, 112);
    put(image, 24, &disk_bytes.to_be_bytes());
    put(image, 40, &cluster_offset(L1_TABLE).to_be_bytes());
    put(image, 48, &cluster_offset(REFCOUNT_TABLE).to_be_bytes());
    // The incompatible feature "compression type", and the type itself.
    put(image, 72, &(u64::from(zstd) << 3).to_be_bytes());
    put(image, 104, &[u8::from(zstd)]);
}

fn cluster_offset(cluster: u64) -> u64 {
    cluster * CLUSTER_BYTES as u64
}

fn offset_in_image(cluster: u64) -> usize {
    usize::try_from(cluster_offset(cluster)).unwrap_or(usize::MAX)
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}
