//! The places of grains by the grain directory and the grain tables ("Virtual Disk Format 5.0", section "Hosted Sparse
//! Extent Metadata"). The redundant directory is not looked at: QEMU only keeps it up to date.

use super::header::{SECTOR, VmdkHeader};
use super::kinds::{DIRECTORY, GRAIN_TABLE};
use super::marker::longest_grain;
use crate::bytes_at;
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{LoadedTable, RangeBatch, RangeRole, bytes_of};

/// An entry that reads as zeros, where the header allows that.
const ZEROED: u32 = 1;

/// A list grows to twice its length at once, so each value is charged twice.
const LIST_FACTOR: u64 = 2;

/// The places that the directory and the tables have told so far.
#[derive(Debug, Default)]
pub(super) struct GrainTables {
    /// Grain tables that have not come yet.
    missing: usize,
    /// Compressed grains, while tables are missing.
    compressed: Vec<CompressedGrain>,
    /// The sectors of other things that a compressed grain may lie before: tables, and the end of the image if it is known.
    places: Vec<u32>,
}

/// A compressed grain: its place in the image and its number on the disk. Both fit 32 bits, see the limits of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CompressedGrain {
    sector: u32,
    number: u32,
}

impl GrainTables {
    /// Asks for the grain directory, which is at `host`.
    pub(super) fn ask_directory(&mut self, header: &VmdkHeader, host: Host, first: &mut RangeBatch) {
        self.add_place(host);
        first.push_table(host, header.directory_bytes(), DIRECTORY, 0);
    }

    /// Takes note of a place that no compressed grain before it goes beyond.
    pub(super) fn add_place(&mut self, host: Host) {
        self.places.extend(u32::try_from(host.0.div_ceil(SECTOR)));
    }

    /// Asks for the grain tables.
    pub(super) fn learn_directory(&mut self, header: &VmdkHeader, directory: &[u8], tables: &mut RangeBatch) {
        for (index, sector) in read_entries(directory).enumerate() {
            if sector != 0 {
                let guest = index as u64 * header.table_span();
                let host = at_sector(sector);
                tables.push_table(host, header.table_bytes(), GRAIN_TABLE, guest);
                if tables.charge_bytes(LIST_FACTOR * bytes_of::<u32>(1)) {
                    self.add_place(host);
                }
                self.missing += 1;
            }
        }
    }

    /// Asks for the grains that a table names.
    pub(super) fn learn_table(
        &mut self,
        header: &VmdkHeader,
        table: LoadedTable<'_>,
        grains: &mut RangeBatch,
    ) {
        self.missing = self.missing.saturating_sub(1);
        for (index, sector) in grain_entries(header, table.bytes).enumerate() {
            let guest = Guest(table.note) + index as u64 * header.grain;
            let left = guest.remaining_bytes(header.capacity);
            if sector == 0 || left == 0 {
                continue;
            }
            if header.is_compressed {
                let number = u32::try_from(guest.0 / header.grain).unwrap_or(u32::MAX);
                if grains.charge_bytes(LIST_FACTOR * bytes_of::<CompressedGrain>(1)) {
                    self.compressed.push(CompressedGrain { sector, number });
                }
            } else {
                grains.push_data(at_sector(sector), header.grain.min(left), RangeRole::Data, guest);
            }
        }
        if self.missing == 0 {
            self.place_compressed(header, grains);
        }
    }

    /// Bytes of memory that the lists take.
    pub(super) fn memory_bytes(&self) -> u64 {
        bytes_of::<CompressedGrain>(self.compressed.capacity()) + bytes_of::<u32>(self.places.capacity())
    }

    /// No table says the length of a compressed grain. It ends where the next grain or table begins at the latest, so this
    /// waits until all of them are known.
    fn place_compressed(&mut self, header: &VmdkHeader, grains: &mut RangeBatch) {
        self.compressed.sort_unstable();
        self.places.sort_unstable();
        let mut next_grain = u32::MAX;
        for (index, grain) in self.compressed.iter().enumerate().rev() {
            let places = self.places.partition_point(|place| *place <= grain.sector);
            let next = self.places.get(places).map_or(next_grain, |place| next_grain.min(*place));
            // The very last sector that a table can refer to has no next one.
            let room = u64::from(next - grain.sector).max(1) * SECTOR;
            let guest = Guest(u64::from(grain.number) * header.grain);
            let host = at_sector(grain.sector);
            grains.push_data(host, room.min(longest_grain(header)), RangeRole::Compressed, guest);
            if index > 0 && self.compressed.get(index - 1).is_some_and(|before| before.sector != grain.sector)
            {
                next_grain = grain.sector;
            }
        }
        self.compressed = Vec::new();
    }
}

/// The place of a sector of the image.
fn at_sector(sector: u32) -> Host {
    Host(u64::from(sector) * SECTOR)
}

/// The entries of a directory or a grain table.
pub(super) fn read_entries(bytes: &[u8]) -> impl Iterator<Item = u32> {
    (0..bytes.len() / 4).filter_map(|index| bytes_at::le32(bytes, index * 4))
}

/// The entries of a grain table, those of grains of zeros as if there were none.
pub(super) fn grain_entries(header: &VmdkHeader, bytes: &[u8]) -> impl Iterator<Item = u32> {
    let zeroed = header.has_zeroed_grains;
    read_entries(bytes).map(move |sector| if zeroed && sector == ZEROED { 0 } else { sector })
}
