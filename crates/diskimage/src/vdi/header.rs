//! The header of a VDI image (`VDICore.h`, `VDIPREHEADER` and `VDIHEADER1`); all numbers are
//! little-endian.

use crate::bytes_at::{le16, le32, le64};
use crate::offsets::Host;
use crate::{Error, Format};

/// Block size in bytes: the only one that VirtualBox creates by itself and that QEMU reads.
pub(super) const BLOCK_BYTES: u64 = 1 << 20;

/// Length in bytes of the version 1.1 header, including the text before it. A later header
/// contains a geometry after these bytes.
const HEADER_BYTES: usize = 0x1c8;
const SECTOR_BYTES: u64 = 512;
/// Largest number of blocks: a map of 2 GiB minus one sector (QEMU, `VDI_BLOCKS_IN_IMAGE_MAX`).
const MAX_BLOCKS: u64 = ((1 << 31) - SECTOR_BYTES) / 4;
const VERSION_1_1: u32 = 0x0001_0001;

const VERSION_AT: usize = 0x44;
const TYPE_AT: usize = 0x4c;
const MAP_OFFSET_AT: usize = 0x154;
const DATA_OFFSET_AT: usize = 0x158;
const SECTOR_SIZE_AT: usize = 0x168;
const DISK_SIZE_AT: usize = 0x170;
const BLOCK_SIZE_AT: usize = 0x178;
const BLOCK_EXTRA_AT: usize = 0x17c;
const BLOCKS_AT: usize = 0x180;
const ALLOCATED_AT: usize = 0x184;
/// Offset of the UUID that names the parent of a differencing image.
const LINK_UUID_AT: usize = 0x1a8;
/// Offset of the UUID that identifies the state of the parent.
const PARENT_UUID_AT: usize = 0x1b8;

/// The relevant header fields, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VdiHeader {
    /// How the image is allocated: `dynamic` or `static`.
    pub(super) kind: &'static str,
    /// Size of the virtual disk in bytes, rounded up to a sector of 512 bytes as QEMU does.
    pub(super) virtual_size: u64,
    /// Offset of the block map; a multiple of 512.
    pub(super) map_offset: Host,
    /// Offset of block 0; a multiple of 512.
    pub(super) data_offset: Host,
    /// Number of block map entries: at least one for each block of the disk.
    pub(super) blocks: u64,
    /// Number of entries that refer to a block, according to the header.
    pub(super) allocated: u32,
}

impl VdiHeader {
    /// Reads the header from the beginning of the image.
    pub(super) fn parse(head: &[u8]) -> Result<Self, Error> {
        let Some(header) = head.get(..HEADER_BYTES) else {
            return Err(Format::Vdi.short_header_error(HEADER_BYTES as u64, head));
        };
        // All fields lie within the header, so none of these reads fails.
        let number = |at| le32(header, at).unwrap_or_default();
        check_version(number(VERSION_AT))?;
        let kind = parse_kind(number(TYPE_AT), header)?;
        check_parent(header)?;
        check_geometry(number(SECTOR_SIZE_AT), number(BLOCK_SIZE_AT), number(BLOCK_EXTRA_AT))?;
        let size = le64(header, DISK_SIZE_AT).unwrap_or_default();
        Ok(Self {
            kind,
            virtual_size: virtual_size(size, u64::from(number(BLOCKS_AT)))?,
            map_offset: aligned_offset("the block map", number(MAP_OFFSET_AT))?,
            data_offset: aligned_offset("the first block", number(DATA_OFFSET_AT))?,
            blocks: number(BLOCKS_AT).into(),
            allocated: number(ALLOCATED_AT),
        })
    }
}

fn check_version(version: u32) -> Result<(), Error> {
    if version == VERSION_1_1 {
        return Ok(());
    }
    let (major, minor) = (version >> 16, version & 0xffff);
    Err(Format::Vdi.unsupported_error(format!(
        "version {major}.{minor} is not supported, only 1.1: convert the image once with `VBoxManage clonemedium`"
    )))
}

fn parse_kind(kind: u32, header: &[u8]) -> Result<&'static str, Error> {
    match kind {
        // Blocks are allocated when they are first written.
        1 => Ok("dynamic"),
        // All blocks are allocated from the beginning.
        2 => Ok("static"),
        // Undo images (3) and differencing images (4).
        3 | 4 => Err(parent_error(header)),
        other => Err(Format::Vdi
            .header_error(format!("image type {other}, must be 1 (dynamic) or 2 (static)"))),
    }
}

fn check_parent(header: &[u8]) -> Result<(), Error> {
    let is_set = |at: usize| header.get(at..at + 16).is_some_and(|uuid| uuid != [0; 16]);
    if is_set(LINK_UUID_AT) || is_set(PARENT_UUID_AT) {
        return Err(parent_error(header));
    }
    Ok(())
}

fn parent_error(header: &[u8]) -> Error {
    Error::Parent { format: Format::Vdi, name: read_uuid(header, LINK_UUID_AT).unwrap_or_default() }
}

/// Reads a UUID as VirtualBox prints it. Its first three fields are little-endian.
fn read_uuid(header: &[u8], at: usize) -> Option<String> {
    let (a, b, c) = (le32(header, at)?, le16(header, at + 4)?, le16(header, at + 6)?);
    let hex = |range| -> Option<String> {
        let bytes: &[u8] = header.get(range)?;
        Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    };
    let (d, e) = (hex(at + 8..at + 10)?, hex(at + 10..at + 16)?);
    Some(format!("{a:08x}-{b:04x}-{c:04x}-{d}-{e}"))
}

fn check_geometry(sector_size: u32, block_size: u32, block_extra: u32) -> Result<(), Error> {
    if u64::from(sector_size) != SECTOR_BYTES {
        return Err(Format::Vdi
            .header_error(format!("sectors of {sector_size} bytes, must be {SECTOR_BYTES}")));
    }
    if u64::from(block_size) != BLOCK_BYTES {
        return Err(Format::Vdi.unsupported_error(format!(
            "block size {block_size} is not supported, only {BLOCK_BYTES}: convert the image once with `VBoxManage clonemedium`"
        )));
    }
    // No program writes such images. QEMU ignores the field, so it would read other bytes than
    // VirtualBox.
    if block_extra != 0 {
        return Err(Format::Vdi.unsupported_error(format!(
            "{block_extra} bytes before each block are not supported: convert the image once with `VBoxManage clonemedium`"
        )));
    }
    Ok(())
}

fn virtual_size(size: u64, blocks: u64) -> Result<u64, Error> {
    if size > MAX_BLOCKS * BLOCK_BYTES || blocks > MAX_BLOCKS {
        return Err(Format::Vdi.header_error(format!(
            "a disk of {size} bytes in {blocks} blocks, the limit is {MAX_BLOCKS} blocks"
        )));
    }
    // `VBoxManage convertfromraw` creates disks whose size is not a multiple of a sector.
    let size = size.next_multiple_of(SECTOR_BYTES);
    let mapped = blocks * BLOCK_BYTES;
    if size > mapped {
        return Err(Format::Vdi
            .header_error(format!("a disk of {size} bytes, the block map has room for {mapped}")));
    }
    Ok(size)
}

fn aligned_offset(what: &str, offset: u32) -> Result<Host, Error> {
    let offset = Host(offset.into());
    if !offset.is_multiple_of(SECTOR_BYTES) {
        return Err(Format::Vdi.header_error(format!(
            "{what} is at {offset:#x}, not at a multiple of {SECTOR_BYTES}"
        )));
    }
    Ok(offset)
}
