//! The dynamic disk header ("Dynamic Disk Header Format").

use super::footer::{VhdFooter, check_sum};
use crate::bytes_at::{be32, be64};
use crate::offsets::Host;
use crate::{Error, Format};

/// Length of the header in bytes.
const HEADER_BYTES: usize = 1024;

/// Offsets of the fields in the header.
const TABLE_OFFSET_AT: usize = 16;
const MAX_TABLE_ENTRIES_AT: usize = 28;
const BLOCK_SIZE_AT: usize = 32;
const CHECKSUM_AT: usize = 36;
const PARENT_NAME_AT: usize = 64;
const PARENT_NAME_BYTES: usize = 512;

/// Smallest block whose bitmap fills a byte. QEMU accepts smaller blocks and assumes that they
/// have no bitmap. The specification says otherwise, and no program writes such images.
const MIN_BLOCK_BYTES: u64 = 8 * 512;

/// Largest number of block allocation table entries, the same limit as in QEMU: the size of the
/// table in bytes fits in 31 bits.
const MAX_ENTRIES: u32 = i32::MAX.unsigned_abs() / 4;

/// A validated header that fits the size of its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DynamicHeader {
    /// Offset of the block allocation table.
    pub(super) table_offset: Host,
    /// Number of table entries: at least one for each block of the disk.
    pub(super) table_entries: u32,
    /// Size of a block in bytes, without its bitmap: a power of two from 4 KiB to 2 GiB.
    pub(super) block_size: u64,
}

impl DynamicHeader {
    /// Reads the header that `footer` points to.
    pub(super) fn parse(head: &[u8], footer: &VhdFooter) -> Result<Self, Error> {
        let header = find_header(head, footer)?;
        let table_offset = Host(be64(header, TABLE_OFFSET_AT).unwrap_or(0));
        let table_entries = be32(header, MAX_TABLE_ENTRIES_AT).unwrap_or(0);
        // Check the block size first, because the number of blocks and the end of the table are
        // derived from it.
        let block_size = be32(header, BLOCK_SIZE_AT).map_or(0, u64::from);
        if !block_size.is_power_of_two() || block_size < MIN_BLOCK_BYTES {
            return Err(Format::Vhd.header_error(format!(
                "block size {block_size}, must be a power of two and at least {MIN_BLOCK_BYTES}"
            )));
        }
        if table_entries > MAX_ENTRIES {
            return Err(Format::Vhd.header_error(format!(
                "the block allocation table has {table_entries} entries, the limit is {MAX_ENTRIES}"
            )));
        }
        let blocks = footer.virtual_size.div_ceil(block_size);
        if u64::from(table_entries) < blocks {
            return Err(Format::Vhd.header_error(format!(
                "the block allocation table has {table_entries} entries, the disk {blocks} blocks"
            )));
        }
        let end = table_offset.checked_add(u64::from(table_entries) * 4);
        if end.is_none_or(|end| i64::try_from(end.0).is_err()) {
            return Err(Format::Vhd.header_error(format!(
                "the block allocation table cannot be at {table_offset:#x}"
            )));
        }
        Ok(Self { table_offset, table_entries, block_size })
    }
}

/// Reads "Parent Unicode Name": UTF-16, big-endian, terminated by a zero or by the end of the
/// field.
pub(super) fn parent_name(head: &[u8], footer: &VhdFooter) -> Result<String, Error> {
    let header = find_header(head, footer)?;
    let field = header.get(PARENT_NAME_AT..PARENT_NAME_AT + PARENT_NAME_BYTES).unwrap_or_default();
    let units = field.as_chunks().0.iter().map(|unit| u16::from_be_bytes(*unit));
    Ok(crate::text::printable_utf16(units))
}

fn find_header<'h>(head: &'h [u8], footer: &VhdFooter) -> Result<&'h [u8], Error> {
    let start = footer.data_offset;
    let end = start.saturating_add(HEADER_BYTES as u64);
    let at = |place: Host| usize::try_from(place.0).unwrap_or(usize::MAX);
    let header = head.get(at(start)..at(end));
    let header = header.ok_or_else(|| Format::Vhd.short_header_error(end.0, head))?;
    if !header.starts_with(b"cxsparse") {
        return Err(Format::Vhd.header_error(format!("no dynamic disk header at {start:#x}")));
    }
    check_sum("dynamic disk header", header, CHECKSUM_AT)?;
    Ok(header)
}
