//! The grains that the markers of a stream describe. They are compared with the stream's tables:
//! QEMU uses only the tables, and both have to describe the same disk.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{BuildHasher, RandomState};

use super::header::{SECTOR, VmdkHeader};
use super::tables::{grain_entries, read_entries};
use crate::offsets::Host;
use crate::wanted_ranges::{LoadedTable, RangeBatch, bytes_of};
use crate::{Error, Format};

/// Memory that a map entry uses in addition to the entries of its table: key, value, its share of
/// half-empty nodes, and the overhead of the allocator.
const ENTRY_BYTES: u64 = 96;

/// Largest number of grain directories: the one that the footer refers to, and a redundant one.
const MAX_DIRECTORIES: usize = 2;

/// The entries of a grain table or directory, in sectors.
type Entries = Box<[u32]>;

/// The grains and tables of a stream. It takes four bytes per grain until the table of the grain
/// has arrived. If each table follows its grains, as in the streams of VMware and VirtualBox, it
/// holds one table at a time.
#[derive(Debug, Default)]
pub(super) struct VmdkContents {
    /// Tables that the image should have according to the markers, by index in the directory.
    marked: BTreeMap<u64, Entries>,
    /// Hashes of such tables that arrived, by index in the directory.
    confirmed: BTreeMap<u64, u64>,
    /// Hashes of all tables that arrived, by offset in the image.
    arrived: BTreeMap<Host, u64>,
    /// Offsets and entries of the directories.
    directories: Vec<(Host, Entries)>,
    /// Index of the table that the last grain belongs to.
    latest: u64,
    /// The hashes have a random key, so that nobody can make two tables with the same hash.
    hashing: RandomState,
}

impl VmdkContents {
    /// Adds grain `number` of the disk, whose marker is at `host`.
    pub(super) fn add_grain(
        &mut self,
        header: &VmdkHeader,
        number: u64,
        host: Host,
        batch: &mut RangeBatch,
    ) -> Result<(), Error> {
        let (table, index) = (number / header.table_entries, number % header.table_entries);
        self.latest = table;
        let Ok(sector) = u32::try_from(host.0 / SECTOR) else {
            return Err(Format::Vmdk.corrupt_error(
                "a grain lies beyond the 2 TiB that a grain table can refer to",
                host,
            ));
        };
        // The entries of the table were dropped, so the grain cannot be compared with it. A reader
        // that continues after the table would not find the grain either.
        if self.confirmed.contains_key(&table) {
            return Err(Format::Vmdk
                .corrupt_error("a grain follows the grain table that should refer to it", host));
        }
        let entries = match self.marked.entry(table) {
            Entry::Occupied(entries) => entries.into_mut(),
            Entry::Vacant(place) => {
                if !batch.charge_bytes(header.table_bytes() + ENTRY_BYTES) {
                    return Ok(());
                }
                place.insert(empty_table(header))
            }
        };
        match usize::try_from(index).ok().and_then(|index| entries.get_mut(index)) {
            Some(entry) if *entry == 0 => {
                *entry = sector;
                Ok(())
            }
            _ => Err(Format::Vmdk.corrupt_error("two markers refer to the same grain", host)),
        }
    }

    /// Adds the grain table at `host`. It is usually the table of the latest grains.
    pub(super) fn add_table(
        &mut self,
        header: &VmdkHeader,
        host: Host,
        table: &[u8],
        batch: &mut RangeBatch,
    ) {
        if !batch.charge_bytes(2 * ENTRY_BYTES) {
            return;
        }
        let entries: Entries = grain_entries(header, table).collect();
        let hash = self.hashing.hash_one(&entries);
        self.arrived.insert(host, hash);
        if self.marked.get(&self.latest) == Some(&entries) {
            self.marked.remove(&self.latest);
            self.confirmed.insert(self.latest, hash);
        }
    }

    /// Adds a grain directory.
    pub(super) fn add_directory(
        &mut self,
        table: LoadedTable<'_>,
        batch: &mut RangeBatch,
    ) -> Result<(), Error> {
        if self.directories.len() == MAX_DIRECTORIES {
            return Err(Format::Vmdk.corrupt_error("a third grain directory", table.host));
        }
        // The entries are charged twice, because a list doubles in size when it grows.
        if batch.charge_bytes(2 * table.bytes.len() as u64) {
            self.directories.push((table.host, read_entries(table.bytes).collect()));
        }
        Ok(())
    }

    /// Bytes of memory that the contents use.
    pub(super) fn memory_bytes(&self) -> u64 {
        let marked = self.marked.values().map(|entries| entries.len());
        let directories = self.directories.iter().map(|(_, entries)| entries.len());
        let maps = self.marked.len() + self.confirmed.len() + self.arrived.len();
        bytes_of::<u32>(marked.chain(directories).sum()) + maps as u64 * ENTRY_BYTES
    }

    /// Compares all tables with the markers, after everything has arrived. The footer states that
    /// the directory is at `directory`.
    pub(super) fn check_directory(
        &mut self,
        header: &VmdkHeader,
        directory: Host,
    ) -> Result<(), Error> {
        let Some((host, tables)) = self.directories.iter().find(|(host, _)| *host == directory)
        else {
            return Err(Format::Vmdk.corrupt_error(
                "the footer refers to a grain directory that is not in the stream",
                directory,
            ));
        };
        let empty = empty_table(header);
        let empty_hash = self.hashing.hash_one(&empty);
        for (index, sector) in (0u64..).zip(tables.iter()) {
            let table = Host(u64::from(*sector) * SECTOR);
            let marked = || self.marked.get(&index).map(|entries| self.hashing.hash_one(entries));
            let expected = self.confirmed.get(&index).copied().or_else(marked);
            // Without a table, the grains read as zeros.
            let found =
                if table == Host(0) { Some(empty_hash) } else { self.arrived.get(&table).copied() };
            if found != Some(expected.unwrap_or(empty_hash)) {
                let start = index * header.table_span();
                let what = format!(
                    "the grain table of disk offset {start:#x} contradicts the markers of its grains"
                );
                return Err(
                    Format::Vmdk.corrupt_error(what, if table == Host(0) { *host } else { table })
                );
            }
        }
        Ok(())
    }
}

/// The table of grains that are all missing.
fn empty_table(header: &VmdkHeader) -> Entries {
    vec![0; usize::try_from(header.table_entries).unwrap_or(0)].into()
}
