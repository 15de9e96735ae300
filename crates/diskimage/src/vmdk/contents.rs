//! The grains that the markers of a stream describe. They are compared with the stream's tables:
//! QEMU uses only the tables, and both have to describe the same disk.

use std::collections::BTreeMap;

use super::header::{SECTOR, VmdkHeader};
use super::tables::{grain_entries, read_entries};
use crate::offsets::Host;
use crate::wanted_ranges::{LoadedTable, RangeBatch, bytes_of};
use crate::{Error, Format};

/// Memory that a map entry uses in addition to the entries of its table: key, value, its share of
/// half-empty nodes, and the overhead of the allocator.
const ENTRY_BYTES: u64 = 96;

/// The entries of a grain table or directory, in sectors.
type Entries = Box<[u32]>;

/// The grains and tables of a stream. It takes four bytes per grain until the table of the grain
/// has arrived. If each table follows its grains, as in the streams of VMware and VirtualBox, it
/// holds one table at a time.
#[derive(Debug, Default)]
pub(super) struct VmdkContents {
    /// Tables that the image should have according to the markers, by index in the directory.
    marked: BTreeMap<u64, Entries>,
    /// Offsets of the tables that arrived and match the markers, by index in the directory.
    confirmed: BTreeMap<u64, Host>,
    /// Other tables that arrived, by offset in the image. Their indexes become known when the
    /// directory arrives.
    unplaced: BTreeMap<Host, Entries>,
    /// Offset and entries of the directory.
    directory: Option<(Host, Entries)>,
    /// Index of the table that the last grain belongs to.
    latest: u64,
    /// Bytes of the entries in `marked` and `unplaced`.
    bytes: u64,
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
        if !self.marked.contains_key(&table) {
            if !self.reserve_table(header, batch) {
                return Ok(());
            }
            let count = usize::try_from(header.table_entries).unwrap_or(0);
            self.marked.insert(table, vec![0; count].into());
        }
        let entry = self
            .marked
            .get_mut(&table)
            .zip(usize::try_from(index).ok())
            .and_then(|(entries, index)| entries.get_mut(index));
        match entry {
            Some(entry) if *entry == 0 => {
                *entry = sector;
                Ok(())
            }
            _ => Err(Format::Vmdk.corrupt_error("two markers refer to the same grain", host)),
        }
    }

    /// Adds a grain table. It is usually the table of the latest grains.
    pub(super) fn add_table(
        &mut self,
        header: &VmdkHeader,
        table: LoadedTable<'_>,
        batch: &mut RangeBatch,
    ) {
        let is_latest = self
            .marked
            .get(&self.latest)
            .is_some_and(|marked| marked.iter().copied().eq(grain_entries(header, table.bytes)));
        if is_latest {
            self.marked.remove(&self.latest);
            self.confirmed.insert(self.latest, table.host);
            self.bytes = self.bytes.saturating_sub(header.table_bytes());
        } else if self.reserve_table(header, batch) {
            let entries = grain_entries(header, table.bytes).collect();
            self.unplaced.insert(table.host, entries);
        }
    }

    /// Adds the grain directory.
    pub(super) fn add_directory(
        &mut self,
        table: LoadedTable<'_>,
        batch: &mut RangeBatch,
    ) -> Result<(), Error> {
        if self.directory.is_some() {
            return Err(Format::Vmdk.corrupt_error("a second grain directory", table.host));
        }
        // The entries are charged twice, because a list doubles in size when it grows.
        if batch.charge_bytes(2 * table.bytes.len() as u64) {
            self.directory = Some((table.host, read_entries(table.bytes).collect()));
        }
        Ok(())
    }

    /// Charges the memory of another table. Returns false if the limit is exceeded.
    fn reserve_table(&mut self, header: &VmdkHeader, batch: &mut RangeBatch) -> bool {
        let granted = batch.charge_bytes(header.table_bytes() + ENTRY_BYTES);
        if granted {
            self.bytes += header.table_bytes();
        }
        granted
    }

    /// Bytes of memory that the contents use.
    pub(super) fn memory_bytes(&self) -> u64 {
        let directory = self.directory.as_ref().map_or(0, |(_, entries)| entries.len());
        let tables = self.marked.len() + self.confirmed.len() + self.unplaced.len();
        self.bytes + bytes_of::<u32>(directory) + tables as u64 * ENTRY_BYTES
    }

    /// Compares all tables with the markers, after everything has arrived. The footer states that
    /// the directory is at `directory`.
    pub(super) fn check_directory(
        &mut self,
        header: &VmdkHeader,
        directory: Host,
    ) -> Result<(), Error> {
        let (host, tables) = match self.directory.take() {
            Some((host, tables)) if host == directory => (host, tables),
            _ => {
                return Err(Format::Vmdk.corrupt_error(
                    "the footer refers to a grain directory that is not in the stream",
                    directory,
                ));
            }
        };
        for (index, sector) in (0u64..).zip(tables.iter()) {
            let table = Host(u64::from(*sector) * SECTOR);
            if !self.matches_table(index, table) {
                let start = index * header.table_span();
                let what = format!(
                    "the grain table of disk offset {start:#x} contradicts the markers of its grains"
                );
                return Err(
                    Format::Vmdk.corrupt_error(what, if table == Host(0) { host } else { table })
                );
            }
        }
        Ok(())
    }

    /// Returns true if table `index` contains exactly the marked grains. The table is at `host`,
    /// which is 0 if the directory lists no table there.
    fn matches_table(&mut self, index: u64, host: Host) -> bool {
        let is_empty = |entries: &Entries| entries.iter().all(|entry| *entry == 0);
        if let Some(confirmed) = self.confirmed.remove(&index) {
            return confirmed == host;
        }
        match (self.marked.remove(&index), self.unplaced.remove(&host)) {
            (marked, Some(table)) => marked.map_or(is_empty(&table), |marked| marked == table),
            (None, None) => host == Host(0),
            (Some(_), None) => false,
        }
    }
}
