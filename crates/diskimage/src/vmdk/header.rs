//! The header of a sparse extent, in the first sector of the image ("Virtual Disk Format 5.0",
//! section "Hosted Sparse Extent Header"). A stream whose directory comes last repeats the header
//! in its footer.

use std::ops::Range;

use crate::bytes_at::{le16, le32, le64};
use crate::offsets::{Host, MAX_OFFSET};
use crate::{Error, Format};

/// Bytes of a sector: the unit of every offset and size in the header and the tables.
pub(super) const SECTOR: u64 = 512;
/// Length of the header in bytes.
pub(super) const HEADER_BYTES: usize = 512;
/// The signature `KDMV`.
const MAGIC: u32 = 0x564d_444b;
/// Largest number of entries in a grain table: all programs write this number, and QEMU allows no
/// more.
const MAX_TABLE_ENTRIES: u32 = 512;
/// Largest grain in sectors, the same limit as in QEMU: 1 GiB.
const MAX_GRAIN_SECTORS: u64 = 0x20_0000;
/// Largest compressed grain in bytes, because each inflating thread holds one. All programs write
/// grains of 64 KiB.
const MAX_COMPRESSED_GRAIN: u64 = 2 << 20;
/// Largest number of grain directory entries: 64 TiB in the usual geometry, which is more than
/// VMware allows.
const MAX_DIRECTORY_ENTRIES: u64 = 2 << 20;
/// Largest number of grain directory entries in QEMU, which calls the directory the L1 table.
const MAX_L1_ENTRIES: u64 = 32 << 20;
/// Value of the directory's offset if the directory comes last ("gdOffset", `GD_AT_END`).
const AT_END: u64 = u64::MAX;
/// Flag: the image contains a redundant grain directory.
const REDUNDANT: u32 = 1 << 1;
/// Flag: grain table entry 1 means a grain of zeros.
const ZEROED_GRAINS: u32 = 1 << 2;
/// Flag: grains and tables are preceded by markers.
const MARKERS: u32 = 1 << 17;

/// Where the grain directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrainDirectory {
    /// At this offset in the image.
    At(Host),
    /// At an offset that is stated in the footer.
    AtEnd,
}

/// The validated header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VmdkHeader {
    version: u32,
    /// Size of the virtual disk in bytes.
    pub(super) capacity: u64,
    /// Size of a grain in bytes.
    pub(super) grain: u64,
    /// Number of entries in a grain table.
    pub(super) table_entries: u64,
    pub(super) directory: GrainDirectory,
    /// The first offset at which a grain may be stored.
    pub(super) overhead: Host,
    /// The range of the text descriptor; empty if the image has no descriptor.
    pub(super) descriptor: Range<Host>,
    /// True if grain table entry 1 means a grain of zeros.
    pub(super) has_zeroed_grains: bool,
    /// Grains are zlib streams.
    pub(super) is_compressed: bool,
    /// Grains and tables are preceded by markers.
    pub(super) has_markers: bool,
}

impl VmdkHeader {
    /// Reads and validates the header at the beginning of `bytes`.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let short = || Format::Vmdk.short_header_error(HEADER_BYTES as u64, bytes);
        let header = bytes.get(..HEADER_BYTES).ok_or_else(short)?;
        let u16_at = |at| le16(header, at).ok_or_else(short);
        let u32_at = |at| le32(header, at).ok_or_else(short);
        let u64_at = |at| le64(header, at).ok_or_else(short);
        let magic = u32_at(0)?;
        if magic != MAGIC {
            return Err(Format::Vmdk
                .header_error(format!("it begins with {magic:#010x} instead of {MAGIC:#010x}")));
        }
        let flags = u32_at(8)?;
        let directory = u64_at(56)?;
        // The redundant directory is not used, but QEMU validates its offset. If the directory
        // comes last, the footer states both offsets.
        if flags & REDUNDANT != 0 && directory != AT_END {
            in_bytes("the offset of the redundant grain directory", u64_at(48)?)?;
        }
        // Bit 16 of the flags has the same meaning, but QEMU uses this field, the algorithm.
        let is_compressed = match u16_at(77)? {
            0 => false,
            1 => true,
            other => {
                return Err(
                    Format::Vmdk.header_error(format!("unknown compression algorithm {other}"))
                );
            }
        };
        Self {
            version: check_version(u32_at(4)?)?,
            capacity: in_bytes("the capacity", u64_at(12)?)?,
            grain: parse_grain_size(u64_at(20)?)?,
            table_entries: table_entries(u32_at(44)?)?,
            directory: match directory {
                AT_END => GrainDirectory::AtEnd,
                sector => {
                    GrainDirectory::At(Host(in_bytes("the offset of the grain directory", sector)?))
                }
            },
            overhead: Host(in_bytes("the overhead", u64_at(64)?)?),
            descriptor: descriptor_range(u64_at(28)?, u64_at(36)?)?,
            has_zeroed_grains: flags & ZEROED_GRAINS != 0,
            is_compressed,
            has_markers: flags & MARKERS != 0,
        }
        .into_checked()
    }

    fn into_checked(self) -> Result<Self, Error> {
        if self.capacity == 0 {
            return Err(Format::Vmdk.header_error("the capacity is 0"));
        }
        let entries = self.directory_entries();
        if entries > MAX_L1_ENTRIES {
            return Err(Format::Vmdk.large_l1_error(entries, MAX_L1_ENTRIES));
        }
        if entries > MAX_DIRECTORY_ENTRIES {
            return Err(unsupported_error(&format!(
                "a capacity of {} bytes in grains of {} needs a grain directory of {entries} entries, the limit is {MAX_DIRECTORY_ENTRIES}",
                self.capacity, self.grain
            )));
        }
        // Check this after the table sizes. QEMU accepts grains of any size, so it refuses an
        // image with both faults because of its L1 table, and CDI's tests match that message.
        if !self.grain.is_power_of_two() {
            return Err(unsupported_error(&format!(
                "a grain has {} bytes, which is not a power of two",
                self.grain
            )));
        }
        if self.is_compressed && self.grain > MAX_COMPRESSED_GRAIN {
            return Err(unsupported_error(&format!(
                "its compressed grains have {} bytes, the limit is {MAX_COMPRESSED_GRAIN}",
                self.grain
            )));
        }
        Ok(self)
    }

    /// Returns the bytes of the disk that one grain table maps.
    pub(super) fn table_span(&self) -> u64 {
        self.table_entries * self.grain
    }

    /// Returns the number of grain directory entries, one for each grain table.
    pub(super) fn directory_entries(&self) -> u64 {
        self.capacity.div_ceil(self.table_span())
    }

    /// Returns the length of the grain directory in bytes.
    pub(super) fn directory_bytes(&self) -> u64 {
        self.directory_entries() * 4
    }

    /// Returns the length of a grain table in bytes.
    pub(super) fn table_bytes(&self) -> u64 {
        self.table_entries * 4
    }

    /// Returns true if `footer` describes the same disk as this header. Only the offsets of the
    /// tables may differ.
    pub(super) fn agrees_with(&self, footer: &Self) -> bool {
        let told = Self {
            directory: self.directory,
            overhead: self.overhead,
            descriptor: self.descriptor.clone(),
            ..footer.clone()
        };
        *self == told
    }
}

fn check_version(version: u32) -> Result<u32, Error> {
    match version {
        1..=3 => Ok(version),
        _ => Err(Format::Vmdk
            .unsupported_error(format!("version {version} is not supported, expected 1, 2 or 3"))),
    }
}

fn parse_grain_size(sectors: u64) -> Result<u64, Error> {
    match sectors {
        1..=MAX_GRAIN_SECTORS => Ok(sectors * SECTOR),
        _ => Err(Format::Vmdk.header_error(format!(
            "a grain has {sectors} sectors, expected 1 to {MAX_GRAIN_SECTORS}"
        ))),
    }
}

fn table_entries(entries: u32) -> Result<u64, Error> {
    match entries {
        1..=MAX_TABLE_ENTRIES => Ok(entries.into()),
        _ => Err(Format::Vmdk.header_error(format!(
            "a grain table has {entries} entries, expected 1 to {MAX_TABLE_ENTRIES}"
        ))),
    }
}

fn descriptor_range(offset: u64, size: u64) -> Result<Range<Host>, Error> {
    let start = Host(in_bytes("the offset of the descriptor", offset)?);
    let length = in_bytes("the size of the descriptor", size)?;
    match start.checked_add(length) {
        Some(end) => Ok(start..end),
        None => Err(Format::Vmdk.header_error(format!(
            "a descriptor of {size} sectors at sector {offset} is too large"
        ))),
    }
}

/// Converts sectors to bytes. As in QEMU, the result must be a valid offset in a file.
fn in_bytes(what: &str, sectors: u64) -> Result<u64, Error> {
    sectors.checked_mul(SECTOR).filter(|bytes| *bytes < MAX_OFFSET).ok_or_else(|| {
        Format::Vmdk.header_error(format!(
            "{what} is {sectors} sectors, which are more than {MAX_OFFSET} bytes"
        ))
    })
}

/// Creates the error for a header that is valid for other programs but not supported here.
fn unsupported_error(what: &str) -> Error {
    Format::Vmdk
        .unsupported_error(format!("{what}: convert it first with `qemu-img convert -O qcow2`"))
}
