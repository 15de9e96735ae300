//! The metadata region (\[MS-VHDX\] 2.6).

use std::ops::Range;

use super::head::{ALIGNMENT, Guid, bytes_of, guid_from_digits, refuse_unknown};
use super::parent;
use crate::bytes_at::{le16, le32, le64};
use crate::offsets::Host;
use crate::{Error, Format, HeadFacts};

/// Length in bytes of the metadata table at the beginning of the region (2.6.1).
const TABLE_BYTES: u64 = 64 << 10;
/// Offset of the entries in the table, and the length of each.
const ENTRIES_AT: usize = 32;
const ENTRY_BYTES: usize = 32;
/// "This MUST be less than or equal to 2,047."
const MAX_ENTRIES: u16 = 2047;

/// GUIDs of the items (2.6.2, "Known Metadata Items").
const FILE_PARAMETERS: Guid = guid_from_digits(0xCAA16737_FA36_4D43_B3B6_33F0AA44E76B);
const VIRTUAL_DISK_SIZE: Guid = guid_from_digits(0x2FA54224_CD1B_4876_B211_5DBED83BF4B8);
const VIRTUAL_DISK_ID: Guid = guid_from_digits(0xBECA12AB_B2E6_4523_93EF_C309E000C746);
const LOGICAL_SECTOR_SIZE: Guid = guid_from_digits(0x8141BF1D_A96F_4709_BA47_F233A8FAAB5F);
const PHYSICAL_SECTOR_SIZE: Guid = guid_from_digits(0xCDA348C7_445D_4471_9CC9_E9885251C556);
const PARENT_LOCATOR: Guid = guid_from_digits(0xA8D35F2D_B30B_454D_ABF7_D3D84834AB0C);

/// The items that every image must contain: GUID, name and minimum length in bytes.
const REQUIRED: [(Guid, &str, u64); 5] = [
    (FILE_PARAMETERS, "file parameters", 8),
    (VIRTUAL_DISK_SIZE, "virtual disk size", 8),
    (VIRTUAL_DISK_ID, "virtual disk ID", 16),
    (LOGICAL_SECTOR_SIZE, "logical sector size", 4),
    (PHYSICAL_SECTOR_SIZE, "physical sector size", 4),
];

/// Allowed block sizes in bytes (2.6.2.1).
const BLOCK_SIZES: std::ops::RangeInclusive<u64> = 1 << 20..=256 << 20;
/// "The virtual disk size MUST be … less than or equal to 64 TB" (2.6.2.2).
const MAX_SIZE: u64 = 64 << 40;

/// The properties of the disk according to the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VhdxMetadata {
    /// Size of the disk in bytes, in whole sectors.
    pub(super) virtual_size: u64,
    /// Size of a payload block in bytes: a power of two from 1 to 256 MiB.
    pub(super) block_size: u64,
    /// Logical sector size in bytes, 512 or 4096.
    pub(super) sector_size: u64,
    /// All blocks are allocated and stay allocated.
    pub(super) is_fixed: bool,
}

impl VhdxMetadata {
    pub(super) fn parse(head: &[u8], region: &Range<Host>) -> Result<Self, Error> {
        let items = MetadataItems::parse(head, region)?;
        let mut fields = [0; REQUIRED.len()];
        for (field, (guid, name, length)) in fields.iter_mut().zip(REQUIRED) {
            let item = items.find_item(&guid);
            let bytes = item
                .ok_or_else(|| Format::Vhdx.header_error(format!("its metadata has no {name}")))?;
            if bytes.end - bytes.start < length {
                return Err(
                    Format::Vhdx.header_error(format!("its {name} is shorter than {length} bytes"))
                );
            }
            *field = read_number(bytes_of(head, bytes.start..bytes.start + length)?);
        }
        let [parameters, size, _, sector_size, _] = fields;
        // The flags "LeaveBlocksAllocated" and "HasParent" follow the block size.
        let (block_size, flags) = (parameters & u64::from(u32::MAX), parameters >> 32);
        if flags & 2 != 0 || items.find_item(&PARENT_LOCATOR).is_some() {
            return Err(Error::Parent {
                format: Format::Vhdx,
                name: match items.find_item(&PARENT_LOCATOR) {
                    Some(locator) => parent::parent_path(bytes_of(head, locator)?),
                    None => String::new(),
                },
            });
        }
        Self {
            virtual_size: size - size % sector_size.max(1),
            block_size,
            sector_size,
            is_fixed: flags & 1 != 0,
        }
        .into_checked()
    }

    /// Returns the facts that follow from the metadata.
    pub(super) fn head_facts(&self) -> HeadFacts {
        let kind = if self.is_fixed { "fixed" } else { "dynamic" };
        let mut features = vec![kind.into()];
        if self.sector_size != 512 {
            features.push(format!("{}-byte sectors", self.sector_size));
        }
        HeadFacts {
            cluster_size: Some(self.block_size),
            // Blocks begin at multiples of this unit.
            parking_unit: Some(ALIGNMENT),
            features,
            ..HeadFacts::new(Format::Vhdx, self.virtual_size)
        }
    }

    fn into_checked(self) -> Result<Self, Error> {
        let block_size = self.block_size;
        if !BLOCK_SIZES.contains(&block_size) || !block_size.is_power_of_two() {
            return Err(Format::Vhdx.header_error(format!(
                "block size {block_size}, must be a power of two from 1 MiB to 256 MiB"
            )));
        }
        if !matches!(self.sector_size, 512 | 4096) {
            return Err(Format::Vhdx.header_error(format!(
                "logical sector size {}, must be 512 or 4096",
                self.sector_size
            )));
        }
        if self.virtual_size > MAX_SIZE {
            return Err(Format::Vhdx.header_error(format!(
                "the disk has {} bytes, the limit is {MAX_SIZE} (64 TiB)",
                self.virtual_size
            )));
        }
        Ok(self)
    }
}

/// Reads a little-endian number of up to 8 bytes. Only the first 8 bytes of a longer one are used.
fn read_number(bytes: &[u8]) -> u64 {
    le64(bytes, 0).or_else(|| le32(bytes, 0).map(u64::from)).unwrap_or(0)
}

/// The known items of the metadata table, and their ranges in the image.
struct MetadataItems(Vec<(Guid, Range<Host>)>);

impl MetadataItems {
    fn parse(head: &[u8], region: &Range<Host>) -> Result<Self, Error> {
        let table = bytes_of(head, region.start..region.start.saturating_add(TABLE_BYTES))?;
        if !table.starts_with(b"metadata") {
            return Err(Format::Vhdx.header_error(format!("no metadata at {:#x}", region.start)));
        }
        let count = le16(table, 10).unwrap_or(0);
        if count > MAX_ENTRIES {
            return Err(Format::Vhdx.header_error(format!(
                "its metadata has {count} items, the limit is {MAX_ENTRIES}"
            )));
        }
        let mut items = Self(Vec::new());
        let entries = table.get(ENTRIES_AT..).unwrap_or_default();
        for entry in entries.chunks_exact(ENTRY_BYTES).take(count.into()) {
            items.add_item(entry, region)?;
        }
        Ok(items)
    }

    fn add_item(&mut self, entry: &[u8], region: &Range<Host>) -> Result<(), Error> {
        let guid = entry.first_chunk().copied().unwrap_or_default();
        let is_known = guid == PARENT_LOCATOR || REQUIRED.iter().any(|(known, ..)| *known == guid);
        if !is_known {
            let is_required = le32(entry, 24).is_some_and(|flags| flags & 4 != 0);
            return refuse_unknown("metadata", guid, is_required);
        }
        let offset = le32(entry, 16).map_or(0, u64::from);
        let end = offset + le32(entry, 20).map_or(0, u64::from);
        // "Offset … MUST be at least 64 KB". Items lie within the region.
        if offset < TABLE_BYTES || end > region.end - region.start {
            return Err(Format::Vhdx.header_error(format!(
                "a metadata item at {offset:#x} to {end:#x}, outside the metadata region"
            )));
        }
        if self.find_item(&guid).is_some() {
            return Err(Format::Vhdx.header_error("its metadata contains an item twice"));
        }
        self.0.push((guid, region.start + offset..region.start + end));
        Ok(())
    }

    fn find_item(&self, wanted: &Guid) -> Option<Range<Host>> {
        let mut items = self.0.iter();
        items.find(|(guid, _)| guid == wanted).map(|(_, range)| range.clone())
    }
}
