//! Adds a format: an [`ImageLayout`] for expanding images of Parallels, which this crate only
//! recognises. The crate does the rest, in one pass or with ranges.
//!
//! ```sh
//! qemu-img convert -O parallels DISK.raw IMAGE.hds
//! cargo run --package diskimage --example write_layout -- IMAGE.hds DISK.raw
//! ```
//!
//! An image begins with a header and a table, which has an entry for each cluster of the disk: the
//! position of its data in the file, or 0 (QEMU, docs/interop/parallels.rst).

mod memory_disk;

use diskimage::bytes_at::{le32, le64};
use diskimage::layout::{AccessOrder, ImageCheck, ImageLayout, LoadedTable, RangeBatch, RangeRole};
use diskimage::{Error, Findings, Format, Guest, HeadFacts, Host, Image};

const MAGIC: &[u8] = b"WithouFreSpacExt";
const HEADER_BYTES: u64 = 64;
const ENTRY_BYTES: u64 = size_of::<u32>() as u64;
const SECTOR_BYTES: u64 = 512;

/// The only kind of table that the format has.
const BLOCK_TABLE: u8 = 0;

struct ParallelsLayout {
    facts: HeadFacts,
    cluster_bytes: u64,
    table_bytes: u64,
}

impl ParallelsLayout {
    /// Reads the header. The numbers in it are untrusted: each is checked before it is used.
    fn open(head: &[u8]) -> Result<Self, Error> {
        let malformed =
            |what: &str| Error::Header { format: Format::Parallels, what: what.to_owned() };
        let (Some(cluster_sectors), Some(entries), Some(sectors)) =
            (le32(head, 28), le32(head, 32), le64(head, 36))
        else {
            return Err(malformed("the header is truncated"));
        };
        if !head.starts_with(MAGIC) {
            return Err(malformed("the magic number is missing"));
        }
        let cluster_bytes = u64::from(cluster_sectors) * SECTOR_BYTES;
        if !cluster_bytes.is_power_of_two() || cluster_bytes > 64 << 20 {
            return Err(malformed("the cluster size is not a power of two up to 64 MiB"));
        }
        let table_bytes = u64::from(entries) * ENTRY_BYTES;
        let mapped_bytes = u64::from(entries) * cluster_bytes;
        let virtual_size = sectors.checked_mul(SECTOR_BYTES).filter(|size| *size <= mapped_bytes);
        let virtual_size =
            virtual_size.ok_or_else(|| malformed("the table is too short for the disk"))?;
        let facts = HeadFacts::new(Format::Parallels, virtual_size);
        Ok(Self { facts, cluster_bytes, table_bytes })
    }

    /// Returns the index of each cluster that is stored, and the offset of its data in the image.
    fn stored_clusters(&self, table: LoadedTable<'_>) -> impl Iterator<Item = (u64, Host)> {
        // The note of a part is the index of its first entry.
        let entries = (table.note..).zip(table.bytes.chunks_exact(size_of::<u32>()));
        let stored = entries.map(|(index, entry)| (index, le32(entry, 0).unwrap_or(0)));
        stored
            .filter(|(_, position)| *position != 0)
            .map(|(index, position)| (index, Host(u64::from(position) * self.cluster_bytes)))
    }
}

impl ImageLayout for ParallelsLayout {
    fn head_facts(&self) -> &HeadFacts {
        &self.facts
    }

    fn initial_ranges(&mut self, _access: AccessOrder) -> Result<RangeBatch, Error> {
        let mut first = RangeBatch::default();
        first.push_table_parts(Host(HEADER_BYTES), self.table_bytes, BLOCK_TABLE, ENTRY_BYTES);
        Ok(first)
    }

    fn parse_table(&mut self, table: LoadedTable<'_>, batch: &mut RangeBatch) -> Result<(), Error> {
        for (index, host) in self.stored_clusters(table) {
            let guest = index * self.cluster_bytes;
            let length = self.cluster_bytes.min(self.facts.virtual_size.saturating_sub(guest));
            if length > 0 {
                batch.push_data(host, length, RangeRole::Data, Guest(guest));
            }
        }
        Ok(())
    }

    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn ImageCheck> {
        Box::new(ParallelsCheck { layout: *self, image_length, findings: Findings::default() })
    }
}

/// Finds clusters whose data lies beyond the end of the image.
struct ParallelsCheck {
    layout: ParallelsLayout,
    image_length: u64,
    findings: Findings,
}

impl ImageCheck for ParallelsCheck {
    fn queue_first_tables(&mut self, tables: &mut RangeBatch) -> Result<(), Error> {
        *tables = self.layout.initial_ranges(AccessOrder::OnePass)?;
        Ok(())
    }

    fn check_table(&mut self, table: LoadedTable<'_>, _: &mut RangeBatch) -> Result<(), Error> {
        for (index, host) in self.layout.stored_clusters(table) {
            if host >= Host(self.image_length) {
                self.findings
                    .add_error(|| format!("cluster {index} lies beyond the end of the image"));
            }
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn finish_check(self: Box<Self>) -> Findings {
        self.findings
    }
}

fn main() -> memory_disk::Result<()> {
    let [_, image, disk] = &std::env::args().collect::<Vec<_>>()[..] else {
        return Err("usage: write_layout IMAGE.hds DISK.raw".into());
    };
    let file = std::fs::read(image)?;
    let image = Image::from_layout(Box::new(ParallelsLayout::open(&file)?));
    std::fs::write(disk, memory_disk::convert(image, file)?)?;
    Ok(())
}
