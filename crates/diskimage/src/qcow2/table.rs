//! Entries of the L1, L2 and refcount tables (qcow2.rst, "Cluster mapping" and "Host cluster
//! management").

use super::header::Qcow2Header;
use crate::bytes_at::be64;
use crate::offsets::Host;
use crate::wanted_ranges::LoadedTable;
use crate::{Error, Format};

/// Table kind: the L1 table.
pub(super) const L1: u8 = 0;
/// Table kind: an L2 table. `LoadedTable::note` is the first guest byte that it maps.
pub(super) const L2: u8 = 1;
/// Table kind: the refcount table.
pub(super) const REFCOUNT_TABLE: u8 = 2;
/// Table kind: a refcount block. `LoadedTable::note` is the first image byte that it counts.
pub(super) const REFCOUNT_BLOCK: u8 = 3;
/// Table kind, used only by checks: the snapshot table.
pub(super) const SNAPSHOTS: u8 = 4;
/// Table kind, used only by checks: the L1 table of a snapshot.
pub(super) const SNAPSHOT_L1: u8 = 5;
/// Table kind, used only by checks: the bitmap directory.
pub(super) const BITMAPS: u8 = 6;
/// Table kind, used only by checks: the table of a bitmap.
pub(super) const BITMAP_TABLE: u8 = 7;

/// Bits 9-55 of L1 and standard L2 entries: a host offset.
pub(super) const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
/// Bit 63 of L1 and standard L2 entries (`QCOW_OFLAG_COPIED` in QEMU): the refcount is exactly
/// one.
pub(super) const COPIED: u64 = 1 << 63;
/// Bit 62 of an L2 entry: the cluster is compressed.
pub(super) const COMPRESSED: u64 = 1 << 62;
/// Bit 0 of a standard L2 entry: the cluster reads as zeros.
pub(super) const ZERO: u64 = 1;
/// Number of subclusters in a cluster with extended L2 entries.
pub(super) const SUBCLUSTERS: u32 = 32;

/// How a cluster is stored, according to its L2 entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterMapping {
    /// Nothing is stored. The cluster reads as zeros. In a delta it reads as the base, unless
    /// [`zero_subclusters`] reports zeros.
    Unmapped,
    /// A host cluster is allocated, but the guest reads zeros.
    ZeroAllocated {
        /// Offset of the host cluster.
        host: Host,
    },
    /// The whole cluster, or the subclusters whose bits are set, are stored uncompressed.
    Data {
        /// Offset of the host cluster.
        host: Host,
        /// Bit n is set if subcluster n is stored. All bits are set without extended L2.
        subclusters: u32,
        /// Nothing else refers to the host cluster.
        is_sole: bool,
    },
    /// The cluster is stored compressed.
    Compressed {
        /// Offset of the first compressed byte; not aligned.
        host: Host,
        /// Bytes until the end of the last sector that holds compressed bytes.
        length: u64,
    },
}

/// Parses entry `index` of an L2 table.
pub(super) fn l2_entry(
    header: &Qcow2Header,
    table: LoadedTable<'_>,
    index: usize,
) -> Result<ClusterMapping, Error> {
    let width = if header.extended_l2 { 16 } else { 8 };
    let at = index.saturating_mul(width);
    let entry = be64(table.bytes, at).unwrap_or(0);
    let corrupt =
        |what: String| Format::Qcow2.corrupt_error(what, table.host.saturating_add(at as u64));

    if entry & COMPRESSED != 0 {
        let (host, length) = compressed_location(header, entry);
        return Ok(ClusterMapping::Compressed { host, length });
    }
    let is_sole = entry & COPIED != 0;
    let host = Host(entry & OFFSET_MASK);
    if !host.is_multiple_of(header.cluster_size()) {
        return Err(corrupt(format!("L2 entry points to the unaligned cluster {host:#x}")));
    }
    if header.extended_l2 {
        let bitmap = be64(table.bytes, at + 8).unwrap_or(0);
        let (stored, zero) = (low_half(bitmap), low_half(bitmap >> SUBCLUSTERS));
        if stored & zero != 0 {
            return Err(corrupt(format!("subclusters both stored and zero (bitmap {bitmap:#x})")));
        }
        return match (host, stored) {
            (Host(0), 0) => Ok(ClusterMapping::Unmapped),
            (Host(0), _) => Err(corrupt("stored subclusters without a cluster".into())),
            (_, 0) => Ok(ClusterMapping::ZeroAllocated { host }),
            _ => Ok(ClusterMapping::Data { host, subclusters: stored, is_sole }),
        };
    }
    // Like QEMU, treat the zero flag as an error in version 2: writers of that version cannot have
    // meant it.
    match (entry & ZERO != 0, host) {
        (true, _) if header.version < 3 => Err(corrupt("zero cluster in a version 2 image".into())),
        (_, Host(0)) => Ok(ClusterMapping::Unmapped),
        (true, _) => Ok(ClusterMapping::ZeroAllocated { host }),
        (false, _) => Ok(ClusterMapping::Data { host, subclusters: u32::MAX, is_sole }),
    }
}

/// Returns the subclusters of entry `index` that read as zeros, whatever a base image contains
/// there: a bit for each one with extended L2, otherwise all or none. `table` must be accepted by
/// [`l2_entry`].
pub(super) fn zero_subclusters(header: &Qcow2Header, table: &[u8], index: usize) -> u32 {
    let width = if header.extended_l2 { 16 } else { 8 };
    let at = index.saturating_mul(width);
    let entry = be64(table, at).unwrap_or(0);
    if entry & COMPRESSED != 0 {
        0
    } else if header.extended_l2 {
        low_half(be64(table, at + 8).unwrap_or(0) >> SUBCLUSTERS)
    } else if entry & ZERO != 0 {
        u32::MAX
    } else {
        0
    }
}

/// Decodes a "Compressed Clusters Descriptor": x = 62 - (cluster_bits - 8) bits of offset, then
/// the number of additional sectors. Returns the first byte of the cluster, and the number of
/// bytes to the end of its last sector.
pub(super) fn compressed_location(header: &Qcow2Header, entry: u64) -> (Host, u64) {
    let offset_bits = 70 - header.cluster_bits;
    let host = entry & ((1 << offset_bits) - 1);
    let sectors = (entry & (COMPRESSED - 1)) >> offset_bits;
    (Host(host), (sectors + 1) * 512 - host % 512)
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
pub(super) fn low_half(value: u64) -> u32 {
    value as u32
}

/// Reads a refcount from a block. A block fills a cluster with refcounts of `2^refcount_order`
/// bits each.
pub(super) fn read_refcount(header: &Qcow2Header, block: &[u8], index: u64) -> Option<u64> {
    let bits = 1u64 << header.refcount_order;
    let index = usize::try_from(index).ok()?;
    if bits >= 8 {
        let width = usize::try_from(bits / 8).ok()?;
        let at = index.checked_mul(width)?;
        let bytes = block.get(at..at.checked_add(width)?)?;
        return Some(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)));
    }
    // For refcounts narrower than a byte, "the bits are numbered from the least significant one".
    let per_byte = usize::try_from(8 / bits).ok()?;
    let byte = u64::from(*block.get(index / per_byte)?);
    let shift = (index % per_byte) as u64 * bits;
    Some(byte >> shift & ((1 << bits) - 1))
}

/// Returns the number of host clusters whose refcounts fit in one block.
pub(super) fn refcounts_per_block(header: &Qcow2Header) -> u64 {
    (header.cluster_size() * 8) >> header.refcount_order
}

/// Returns the number of image bytes whose refcounts fit in one block.
pub(super) fn bytes_per_block(header: &Qcow2Header) -> u64 {
    refcounts_per_block(header).saturating_mul(header.cluster_size())
}

/// Returns the 64-bit entries of a table.
pub(super) fn table_entries(table: &[u8]) -> impl Iterator<Item = u64> {
    (0..table.len() / 8).filter_map(|index| be64(table, index * 8))
}

/// Returns the runs of consecutive set bits: (first, count).
pub(super) fn bit_runs(mut bits: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut base = 0;
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let skip = bits.trailing_zeros();
        let shifted = bits >> skip;
        let count = shifted.trailing_ones();
        let run = (base + skip, count);
        base += skip + count;
        bits = shifted.checked_shr(count).unwrap_or(0);
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qcow2::testing::header;

    #[test]
    fn a_compressed_entry_gives_offset_and_length() {
        // 64 KiB clusters: 54 bits of offset, 8 bits of sectors.
        let entry = COMPRESSED | (3 << 54) | 0x5_0123;
        assert_eq!(compressed_location(&header(16), entry), (Host(0x5_0123), 4 * 512 - 0x123));
    }

    #[test]
    fn refcounts_of_every_width_are_read() {
        let mut header = header(16);
        for order in 0..=6 {
            header.refcount_order = order;
            let mut block = vec![0u8; 64];
            // The refcount at index 3 is 1, all others are 0.
            match order {
                0..=2 => block[3 * (1 << order) / 8] |= 1 << (3 * (1 << order) % 8),
                _ => block[(3 << order) / 8 + (1 << order) / 8 - 1] = 1,
            }
            for index in 0..6 {
                assert_eq!(
                    read_refcount(&header, &block, index),
                    Some(u64::from(index == 3)),
                    "order {order}"
                );
            }
        }
    }

    #[test]
    fn set_bits_are_grouped_into_runs() {
        assert_eq!(bit_runs(0b1011_0001).collect::<Vec<_>>(), [(0, 1), (4, 2), (7, 1)]);
        assert_eq!(bit_runs(u32::MAX).collect::<Vec<_>>(), [(0, 32)]);
        assert_eq!(bit_runs(1 << 31).collect::<Vec<_>>(), [(31, 1)]);
        assert_eq!(bit_runs(0).count(), 0);
    }

    #[test]
    fn a_zero_flag_is_refused_in_version_2() {
        let mut header = header(16);
        header.version = 2;
        let table = LoadedTable { kind: L2, host: Host(0), note: 0, bytes: &1u64.to_be_bytes() };
        assert!(l2_entry(&header, table, 0).is_err());
        header.version = 3;
        assert_eq!(l2_entry(&header, table, 0), Ok(ClusterMapping::Unmapped));
    }
}
