//! Checks dirty bitmaps: the directory, a table for each bitmap, and the clusters that the tables
//! refer to (qcow2.rst, "Bitmaps extension").

use super::clusters::{ClusterTable, ClusterUse};
use crate::bytes_at::{be16, be32, be64};
use crate::offsets::Host;
use crate::qcow2::header::Qcow2Header;
use crate::qcow2::table::{BITMAP_TABLE, BITMAPS, OFFSET_MASK, table_entries};
use crate::wanted_ranges::{LoadedTable, RangeBatch};
use crate::{Error, Format};

/// Length of the fixed part of a directory entry.
const ENTRY_BYTES: usize = 24;
/// Largest bitmap in bytes, the same limit as in QEMU (`BME_MAX_PHYS_SIZE`).
const MAX_BITMAP_BYTES: u64 = 512 << 20;
/// Allowed values for log2 of the number of bytes that one bit covers.
const GRANULARITY_BITS: std::ops::RangeInclusive<u8> = 9..=31;
const MAX_NAME_BYTES: usize = 1023;
/// The only defined type of bitmap: dirty tracking.
const DIRTY_TRACKING: u8 = 1;
/// Flag: the bitmap was not written back. Its contents are not examined.
const IN_USE: u32 = 1 << 0;
/// Reserved flags.
const RESERVED_FLAGS: u32 = !3;
/// Reserved bits of table entries: 1-8 and 56-63.
const RESERVED: u64 = 0xff00_0000_0000_01fe;
/// Bit 0 of an entry without a cluster: all bits that it covers are set.
const ALL_ONES: u64 = 1;

/// Requests the directory.
pub(super) fn queue_directory(header: &Qcow2Header, tables: &mut RangeBatch) {
    if let Some(directory) = &header.bitmaps {
        let length = directory.end - directory.start;
        tables.push_table(directory.start, length, BITMAPS, 0);
    }
}

/// Requests the tables of all bitmaps. Fails if the directory is invalid, because QEMU does not
/// open such an image.
pub(super) fn check_directory(
    header: &Qcow2Header,
    directory: &[u8],
    clusters: &mut ClusterTable,
    tables: &mut RangeBatch,
) -> Result<(), Error> {
    let Some(place) = &header.bitmaps else {
        return Ok(());
    };
    clusters.count_references(ClusterUse::Other, place.start, place.end - place.start, 1);
    // Read to the end of the directory instead of trusting the number in the header: QEMU refuses
    // an image where the two differ.
    let (mut at, mut count) = (0, 0);
    while let Some(entry) = directory.get(at..).filter(|entry| !entry.is_empty()) {
        count += 1;
        let bitmap = BitmapEntry::parse(header, entry).ok_or_else(|| {
            let what = format!("the bitmap directory is invalid at {at:#x}");
            Format::Qcow2.corrupt_error(what, place.start)
        })?;
        let length = bitmap.table_entries * 8;
        clusters.count_references(ClusterUse::Other, bitmap.table_offset, length, 1);
        tables.push_table(bitmap.table_offset, length, BITMAP_TABLE, 0);
        at += bitmap.bytes;
    }
    if count != header.bitmap_count {
        let said = header.bitmap_count;
        let what = format!("the bitmap directory has {count} entries, the header states {said}");
        return Err(Format::Qcow2.corrupt_error(what, place.start));
    }
    Ok(())
}

/// Counts the clusters of one bitmap.
pub(super) fn learn_table(
    header: &Qcow2Header,
    table: LoadedTable<'_>,
    clusters: &mut ClusterTable,
) -> Result<(), Error> {
    for entry in table_entries(table.bytes) {
        let host = Host(entry & OFFSET_MASK);
        let is_place =
            host == Host(0) || entry & ALL_ONES == 0 && host.is_multiple_of(header.cluster_size());
        if entry & RESERVED != 0 || !is_place {
            let what = format!("a bitmap table has the invalid entry {entry:#x}");
            return Err(Format::Qcow2.corrupt_error(what, table.host));
        }
        if host != Host(0) {
            clusters.count_references(ClusterUse::Other, host, header.cluster_size(), 1);
        }
    }
    Ok(())
}

/// An entry of the bitmap directory.
struct BitmapEntry {
    /// Length of the entry in bytes.
    bytes: usize,
    table_offset: Host,
    table_entries: u64,
}

impl BitmapEntry {
    /// Parses an entry. Returns `None` if QEMU would not accept it.
    fn parse(header: &Qcow2Header, entry: &[u8]) -> Option<Self> {
        let table_offset = Host(be64(entry, 0)?);
        let table_entries = u64::from(be32(entry, 8)?);
        let flags = be32(entry, 12)?;
        let (kind, granularity) = (*entry.get(16)?, *entry.get(17)?);
        let name = usize::from(be16(entry, 18)?);
        let extra = be32(entry, 20)?;
        let bytes = (ENTRY_BYTES + name).next_multiple_of(8);
        let bitmap_bytes = table_entries.checked_mul(header.cluster_size())?;
        let needed = needed_bytes(header, granularity);
        // QEMU does not read a bitmap that was not written back, and does not compare its size
        // with the disk.
        let has_size = if flags & IN_USE == 0 {
            table_entries == needed.div_ceil(header.cluster_size())
        } else {
            true
        };
        let is_right = bytes <= entry.len()
            && extra == 0
            && kind == DIRTY_TRACKING
            && flags & RESERVED_FLAGS == 0
            && name <= MAX_NAME_BYTES
            && GRANULARITY_BITS.contains(&granularity)
            && table_offset != Host(0)
            && table_offset.is_multiple_of(header.cluster_size())
            && (1..=MAX_BITMAP_BYTES).contains(&bitmap_bytes)
            && has_size;
        is_right.then_some(Self { bytes, table_offset, table_entries })
    }
}

/// Returns the length of a bitmap of the disk in bytes, rounded up to whole 64-bit words.
fn needed_bytes(header: &Qcow2Header, granularity: u8) -> u64 {
    let bits = header.virtual_size.div_ceil(1 << granularity.min(63));
    bits.div_ceil(64) * 8
}
