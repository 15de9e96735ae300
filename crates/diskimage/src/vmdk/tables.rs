//! Finds grains by the grain directory and the grain tables ("Virtual Disk Format 5.0", section
//! "Hosted Sparse Extent Metadata"). The redundant directory is not read: QEMU only keeps it up to
//! date.

use super::header::{SECTOR, VmdkHeader};
use super::kinds::{DIRECTORY, GRAIN_TABLE};
use super::marker::longest_grain;
use crate::bytes_at;
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{LoadedTable, RangeBatch, RangeRole, bytes_of};

/// Entry of a grain that reads as zeros, if the header allows such entries.
const ZEROED: u32 = 1;

/// A list doubles in size when it grows, so each value is charged twice.
const LIST_FACTOR: u64 = 2;

/// The positions of grains according to the directory and the tables that have arrived.
#[derive(Debug, Default)]
pub(super) struct GrainTables {
    /// Number of grain tables that have not arrived yet.
    missing: usize,
    /// Compressed grains, collected while tables are missing.
    compressed: Vec<CompressedGrain>,
    /// Sectors beyond which an earlier compressed grain cannot extend: the beginnings of tables,
    /// and the end of the image if it is known.
    places: Vec<u32>,
}

/// A compressed grain: its sector in the image and its number on the disk. Both fit in 32 bits
/// because of the limits in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CompressedGrain {
    sector: u32,
    number: u32,
}

impl GrainTables {
    /// Requests the grain directory, which is at `host`.
    pub(super) fn ask_directory(
        &mut self,
        header: &VmdkHeader,
        host: Host,
        first: &mut RangeBatch,
    ) {
        self.add_place(host);
        first.push_table(host, header.directory_bytes(), DIRECTORY, 0);
    }

    /// Records an offset beyond which no earlier compressed grain can extend.
    pub(super) fn add_place(&mut self, host: Host) {
        self.places.extend(u32::try_from(host.0.div_ceil(SECTOR)));
    }

    /// Requests the grain tables that the directory refers to.
    pub(super) fn learn_directory(
        &mut self,
        header: &VmdkHeader,
        directory: &[u8],
        tables: &mut RangeBatch,
    ) {
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

    /// Requests the grains that a table refers to. Compressed grains are requested when the last
    /// table has arrived.
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

    /// Bytes of memory that the lists use.
    pub(super) fn memory_bytes(&self) -> u64 {
        bytes_of::<CompressedGrain>(self.compressed.capacity())
            + bytes_of::<u32>(self.places.capacity())
    }

    /// Requests the compressed grains. Tables do not state the length of a compressed grain, but
    /// it ends at the latest where the next grain or table begins. All tables must therefore be
    /// known.
    fn place_compressed(&mut self, header: &VmdkHeader, grains: &mut RangeBatch) {
        self.compressed.sort_unstable();
        self.places.sort_unstable();
        let mut next_grain = u32::MAX;
        for (index, grain) in self.compressed.iter().enumerate().rev() {
            let places = self.places.partition_point(|place| *place <= grain.sector);
            let next = self.places.get(places).map_or(next_grain, |place| next_grain.min(*place));
            // The last sector that a table can address has no successor, so `next` is the grain's
            // own sector: allow one sector.
            let room = u64::from(next - grain.sector).max(1) * SECTOR;
            let guest = Guest(u64::from(grain.number) * header.grain);
            let host = at_sector(grain.sector);
            grains.push_data(host, room.min(longest_grain(header)), RangeRole::Compressed, guest);
            // Two entries may refer to the same grain, which must not be taken for its own
            // successor.
            let before = index.checked_sub(1).and_then(|before| self.compressed.get(before));
            if before.is_some_and(|before| before.sector != grain.sector) {
                next_grain = grain.sector;
            }
        }
        self.compressed = Vec::new();
    }
}

/// Returns the offset of a sector of the image.
fn at_sector(sector: u32) -> Host {
    Host(u64::from(sector) * SECTOR)
}

/// Returns the entries of a directory or a grain table.
pub(super) fn read_entries(bytes: &[u8]) -> impl Iterator<Item = u32> {
    (0..bytes.len() / 4).filter_map(|index| bytes_at::le32(bytes, index * 4))
}

/// Returns the entries of a grain table. Grains of zeros are returned as 0, like missing grains.
pub(super) fn grain_entries(header: &VmdkHeader, bytes: &[u8]) -> impl Iterator<Item = u32> {
    let zeroed = header.has_zeroed_grains;
    read_entries(bytes).map(move |sector| if zeroed && sector == ZEROED { 0 } else { sector })
}
