//! Region tables (\[MS-VHDX\] 2.2.3).

use std::ops::Range;

use super::head::{ALIGNMENT, Guid, bytes_of, guid_from_digits, is_intact, refuse_unknown};
use super::header::VhdxHeader;
use crate::bytes_at::{le32, le64};
use crate::offsets::Host;
use crate::{Error, Format};

/// Offset of the first region table. QEMU does not read the second copy that follows: if the two
/// differed, QEMU would see another disk.
const TABLE_AT: Host = Host(192 << 10);
const TABLE_BYTES: u64 = 64 << 10;
/// Offset of the entries in the table, and the length of each.
const ENTRIES_AT: usize = 16;
const ENTRY_BYTES: usize = 32;
/// "This MUST be less than or equal to 2,047."
const MAX_ENTRIES: u32 = 2047;

/// GUIDs of the regions (2.2.3.2, "Known regions").
const BAT: Guid = guid_from_digits(0x2DC27766_F623_4200_9D64_115E9BFD4A08);
const METADATA: Guid = guid_from_digits(0x8B7CA206_4790_4B9A_B8FE_575F050F886E);

/// The regions of an image. They do not overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VhdxRegions {
    pub(super) bat: Range<Host>,
    pub(super) metadata: Range<Host>,
    /// All regions including the log, in image order.
    all: Vec<Range<Host>>,
}

impl VhdxRegions {
    pub(super) fn parse(head: &[u8], header: &VhdxHeader) -> Result<Self, Error> {
        let table = intact_table(head)?;
        let count = le32(table, 8).unwrap_or(0);
        if count > MAX_ENTRIES {
            return Err(Format::Vhdx.header_error(format!(
                "its region table has {count} entries, the limit is {MAX_ENTRIES}"
            )));
        }
        let count = usize::try_from(count).unwrap_or(0);
        let entries = table.get(ENTRIES_AT..).unwrap_or_default();
        let mut all = vec![header.log.clone()];
        let (mut bat, mut metadata) = (None, None);
        for entry in entries.chunks_exact(ENTRY_BYTES).take(count) {
            // Unknown regions count too: a block must not lie in one of them.
            let range = parse_range(entry)?;
            all.push(range.clone());
            let known = match entry.first_chunk().copied().unwrap_or_default() {
                BAT => &mut bat,
                METADATA => &mut metadata,
                guid => {
                    let is_required = le32(entry, 28).is_some_and(|flags| flags & 1 != 0);
                    refuse_unknown("region", guid, is_required)?;
                    continue;
                }
            };
            if known.replace(range).is_some() {
                return Err(Format::Vhdx.header_error("its region table contains a region twice"));
            }
        }
        Ok(Self {
            bat: bat.ok_or_else(|| {
                Format::Vhdx.header_error("it has no region with a block allocation table")
            })?,
            metadata: metadata
                .ok_or_else(|| Format::Vhdx.header_error("it has no metadata region"))?,
            all: sort_disjoint(all)?,
        })
    }

    /// Returns a region that shares bytes with `range`, if any.
    pub(super) fn find_overlapping(&self, range: &Range<Host>) -> Option<&Range<Host>> {
        let before = self.all.partition_point(|region| region.end <= range.start);
        self.all.get(before).filter(|region| region.start < range.end)
    }
}

/// Returns the first table. Fails if its signature or checksum is wrong.
fn intact_table(head: &[u8]) -> Result<&[u8], Error> {
    let table = bytes_of(head, TABLE_AT..TABLE_AT + TABLE_BYTES)?;
    if table.starts_with(b"regi") && is_intact(table) {
        return Ok(table);
    }
    Err(Format::Vhdx.header_error(
        "its first region table is damaged: if the second is intact, Hyper-V can still read the image, and `Convert-VHD` can make a new \
         one",
    ))
}

fn parse_range(entry: &[u8]) -> Result<Range<Host>, Error> {
    let start = Host(le64(entry, 16).unwrap_or(0));
    let length = le32(entry, 24).map_or(0, u64::from);
    match start.checked_add(length) {
        Some(end) if start >= Host(ALIGNMENT) && start.is_multiple_of(ALIGNMENT) => Ok(start..end),
        _ => Err(Format::Vhdx.header_error(format!(
            "a region of {length} bytes at {start:#x}: regions must begin at multiples of 1 MiB"
        ))),
    }
}

/// Sorts the regions into image order. Fails if two of them overlap.
fn sort_disjoint(mut regions: Vec<Range<Host>>) -> Result<Vec<Range<Host>>, Error> {
    regions.retain(|region| !region.is_empty());
    regions.sort_unstable_by_key(|region| region.start);
    match regions.windows(2).find(|pair| pair[0].end > pair[1].start) {
        None => Ok(regions),
        Some(pair) => Err(Format::Vhdx.header_error(format!(
            "its regions at {:#x} and {:#x} overlap",
            pair[0].start, pair[1].start
        ))),
    }
}
