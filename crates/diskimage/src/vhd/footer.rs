//! The hard disk footer ("Virtual Hard Disk Image Format Specification" 1.0, "Hard Disk Footer
//! Format"). It is the last sector of every image. An image that grows also begins with a copy of
//! it.

use crate::bytes_at::{be16, be32, be64};
use crate::offsets::Host;
use crate::{Error, Format};

/// Length of the footer in bytes. It takes up one sector.
pub const FOOTER_BYTES: usize = 512;

/// The first bytes of every footer.
pub const COOKIE: &[u8; 8] = b"conectix";

/// Offsets of the fields ("Hard Disk Footer Format").
const DATA_OFFSET_AT: usize = 16;
const CREATOR_AT: usize = 28;
const CURRENT_SIZE_AT: usize = 48;
const GEOMETRY_AT: usize = 56;
const DISK_TYPE_AT: usize = 60;
const CHECKSUM_AT: usize = 64;

/// Data offset of a fixed disk, all ones: no other structure follows ("Data Offset").
const NO_DATA_OFFSET: Host = Host(u64::MAX);

/// Sectors of the largest geometry (65535 cylinders, 16 heads, 255 sectors). A disk with this
/// geometry is larger than any geometry can describe.
const MAX_GEOMETRY_SECTORS: u64 = 65_535 * 16 * 255;

/// Largest disk in sectors, the same limit as in QEMU: 2040 GiB.
const MAX_SECTORS: u64 = 0xff00_0000;

/// Creators whose disks are as large as their geometry, as in QEMU 10: Virtual PC, and QEMU
/// without `force_size`. For all other creators, the "Current Size" field applies.
const GEOMETRY_CREATORS: [[u8; 4]; 2] = [*b"vpc ", *b"qemu"];

/// The "Disk Type" field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskType {
    /// The disk itself, followed by the footer.
    Fixed,
    /// Blocks are allocated as they are written.
    Dynamic,
    /// Like dynamic, but blocks that are not allocated are in another image.
    Differencing,
}

/// A footer with a valid checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VhdFooter {
    pub(super) disk_type: DiskType,
    /// Offset of the dynamic disk header.
    pub(super) data_offset: Host,
    /// Size of the disk in bytes, according to the "Current Size" field.
    pub(super) current_size: u64,
    /// Size of the disk in bytes as QEMU sees it: given by the geometry or by the current size, in
    /// whole sectors.
    pub(super) virtual_size: u64,
}

impl VhdFooter {
    /// Reads the footer at the beginning of `sector`.
    pub(super) fn parse(sector: &[u8]) -> Result<Self, Error> {
        let Some(sector) = sector.get(..FOOTER_BYTES) else {
            return Err(Format::Vhd.short_header_error(FOOTER_BYTES as u64, sector));
        };
        if !sector.starts_with(COOKIE) {
            return Err(Format::Vhd.header_error("no footer where one is expected"));
        }
        check_sum("footer", sector, CHECKSUM_AT)?;
        let disk_type = match be32(sector, DISK_TYPE_AT).unwrap_or(0) {
            2 => DiskType::Fixed,
            3 => DiskType::Dynamic,
            4 => DiskType::Differencing,
            other => {
                return Err(
                    Format::Vhd.header_error(format!("disk type {other}, must be 2, 3 or 4"))
                );
            }
        };
        // As in QEMU, the limit applies to the size that results from the geometry.
        let current_size = be64(sector, CURRENT_SIZE_AT).unwrap_or(0);
        let sectors = disk_sectors(sector, current_size);
        if sectors > MAX_SECTORS {
            return Err(Format::Vhd.header_error(format!(
                "the disk has {sectors} sectors, the limit is {MAX_SECTORS} (2040 GiB)"
            )));
        }
        Ok(Self {
            disk_type,
            data_offset: Host(be64(sector, DATA_OFFSET_AT).unwrap_or(0)),
            current_size,
            virtual_size: sectors * 512,
        })
    }

    /// Returns true for the footer of a fixed disk, which refers to nothing else.
    pub(super) fn is_fixed(&self) -> bool {
        self.disk_type == DiskType::Fixed && self.data_offset == NO_DATA_OFFSET
    }
}

/// Returns the number of sectors of the disk. "Disk Geometry" is the size that Virtual PC shows to
/// its guests. It is rounded, and therefore smaller than the current size. Other programs show the
/// current size.
fn disk_sectors(footer: &[u8], current_size: u64) -> u64 {
    let cylinders = be16(footer, GEOMETRY_AT).map_or(0, u64::from);
    let byte = |at: usize| footer.get(at).copied().map_or(0, u64::from);
    let geometry = cylinders * byte(GEOMETRY_AT + 2) * byte(GEOMETRY_AT + 3);
    let creator = footer.get(CREATOR_AT..CREATOR_AT + 4).unwrap_or_default();
    let by_geometry = GEOMETRY_CREATORS.iter().any(|known| known == creator);
    if by_geometry && geometry != MAX_GEOMETRY_SECTORS { geometry } else { current_size / 512 }
}

/// Verifies a "Checksum": the ones' complement of the sum of all bytes except the checksum itself,
/// which is at offset `at`.
pub(super) fn check_sum(name: &str, structure: &[u8], at: usize) -> Result<(), Error> {
    let stated = be32(structure, at).unwrap_or(0);
    let bytes = structure.iter().enumerate();
    let calculated = !bytes
        .filter(|(index, _)| !(at..at + 4).contains(index))
        .fold(0, |sum: u32, (_, byte)| sum.wrapping_add(u32::from(*byte)));
    if stated != calculated {
        return Err(Format::Vhd.header_error(format!(
            "the {name}'s checksum is {stated:#010x}, its content has {calculated:#010x}"
        )));
    }
    Ok(())
}
