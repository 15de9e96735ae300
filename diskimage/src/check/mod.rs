//! Is an image consistent? All of its tables, compared with each other and with its refcounts, with the verdict of `qemu-img check`.
//!
//! What makes a table wrong does not end the check, unlike the reading of a map: what it says is found out as far as that goes.

mod findings;
mod mapped;
mod places;

pub use findings::Findings;
pub(crate) use mapped::Mapped;
pub(crate) use places::Places;

use crate::memory::{Account, Memory};
use crate::stream::TableRange;
use crate::wants::{Batch, Table, bytes_of};
use crate::{Error, Facts, Format, Image};

/// Bytes of tables that may be asked for beside twice those of the image.
const TABLE_BYTES: u64 = 256 << 20;

/// What a format looks at.
pub(crate) trait Check {
    /// Adds the tables to look at next to `tables`, once all of those before and those that they led to have come; none at the
    /// end. What is remembered is charged to `tables`.
    fn next(&mut self, findings: &mut Findings, tables: &mut Batch) -> Result<(), Error>;

    /// A table has come: looks at it, and adds those that it leads to. What of it lies behind the end of the image is zero, as
    /// QEMU reads it.
    fn learn(
        &mut self,
        table: Table,
        bytes: &[u8],
        findings: &mut Findings,
        tables: &mut Batch,
    ) -> Result<(), Error>;

    /// Bytes of memory that it holds of the tables it has learned.
    fn memory_bytes(&self) -> u64;

    /// All tables have come: the last look.
    fn finish(&mut self, findings: &mut Findings);
}

/// Something that needs tables of an image, generation by generation.
pub trait Tables {
    /// The tables to fetch and [`add`](Self::add) next, in the order of the image; none when there are no more.
    fn next_tables(&mut self) -> Result<Vec<TableRange>, Error>;

    /// Takes what one table says; `bytes` are those of its range.
    fn add(&mut self, table: &TableRange, bytes: &[u8]) -> Result<(), Error>;
}

/// The check of one image.
pub struct Checker {
    format: Format,
    check: Box<dyn Check>,
    image_length: u64,
    tables: Vec<TableRange>,
    /// Bytes of memory that the tables take that were handed out last.
    handed_out: u64,
    /// Bytes of tables that were asked for.
    table_bytes: u64,
    findings: Findings,
    account: Account,
}

impl Checker {
    /// A check of `image`, which is `image_length` bytes long. What it remembers is held in `memory`.
    pub fn new(image: Image, image_length: u64, memory: impl Memory + 'static) -> Self {
        Self {
            format: Facts::of(&*image.layout).format,
            check: image.layout.into_check(image_length),
            image_length,
            tables: Vec::new(),
            handed_out: 0,
            table_bytes: 0,
            findings: Findings::default(),
            account: Account::new(memory),
        }
    }

    /// What was found in all tables.
    pub fn finish(mut self) -> Findings {
        self.check.finish(&mut self.findings);
        self.findings
    }

    /// Bytes of memory that all of it takes.
    fn bytes(&self) -> u64 {
        bytes_of::<TableRange>(self.tables.capacity()) + self.handed_out + self.check.memory_bytes()
    }

    /// What may be remembered of a table, and asked for because of it, while `beside` bytes are held for other things.
    fn batch(&self, beside: u64) -> Batch {
        Batch::within(self.account.beside(self.bytes().saturating_add(beside)))
    }

    fn admit(&mut self, mut batch: Batch) -> Result<(), Error> {
        let wants = batch.take();
        for want in wants {
            let length = u64::from(want.length);
            self.table_bytes = self.table_bytes.saturating_add(length);
            // Tables that lie apart are not larger than the image; others could be so many that they take hours.
            if self.table_bytes > self.image_length.saturating_mul(2).saturating_add(TABLE_BYTES) {
                return Err(Error::TooEntangled {
                    format: self.format,
                    what: "its tables take more bytes than the image has",
                    offset: want.host,
                });
            }
            if batch.make_room(&mut self.tables) {
                self.tables.push(TableRange::within(want, self.image_length));
            }
        }
        if batch.is_exceeded() {
            return Err(self.account.exceeded());
        }
        self.account.hold(self.bytes())
    }
}

impl Tables for Checker {
    fn next_tables(&mut self) -> Result<Vec<TableRange>, Error> {
        self.handed_out = 0;
        if self.tables.is_empty() {
            let mut batch = self.batch(0);
            self.check.next(&mut self.findings, &mut batch)?;
            self.admit(batch)?;
        }
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_unstable();
        self.handed_out = bytes_of::<TableRange>(tables.capacity());
        Ok(tables)
    }

    fn add(&mut self, range: &TableRange, bytes: &[u8]) -> Result<(), Error> {
        let Some(table) = range.want.table() else {
            return Ok(());
        };
        let length = usize::try_from(range.want.length).unwrap_or(usize::MAX);
        let mut padded = Vec::new();
        let mut batch = if bytes.len() < length {
            let more = bytes_of::<u8>(length);
            self.account.hold(self.bytes().saturating_add(more))?;
            padded.reserve_exact(length);
            padded.extend_from_slice(bytes);
            padded.resize(length, 0);
            self.batch(more)
        } else {
            self.batch(0)
        };
        let bytes = if padded.is_empty() { bytes } else { &padded };
        self.check.learn(table, bytes, &mut self.findings, &mut batch)?;
        self.admit(batch)
    }
}

#[cfg(test)]
mod tests {
    use testkit::images::qcow2::{Guest, Qcow2};

    use super::*;
    use crate::AtMost;

    fn check(image: &[u8], memory: u64) -> Result<Findings, Error> {
        let head = Image::open(Format::Qcow2, image)?;
        let mut checker = Checker::new(head, image.len() as u64, AtMost(memory));
        loop {
            let tables = checker.next_tables()?;
            if tables.is_empty() {
                return Ok(checker.finish());
            }
            for table in tables {
                let at = |offset: u64| usize::try_from(offset).unwrap();
                let range = table.range();
                checker.add(&table, &image[at(range.start)..at(range.end)])?;
            }
        }
    }

    #[test]
    fn a_check_takes_no_more_memory_than_it_is_granted() {
        let image = Qcow2::new(9, (1..=200).map(Guest::Data).collect()).build().image;
        for memory in [0, 100, 2000, 10_000] {
            let available = memory;
            assert_eq!(check(&image, memory), Err(Error::MapTooLarge { available }));
        }
        let findings = check(&image, 1 << 20).unwrap();
        assert_eq!((findings.error_count, findings.leaked_clusters), (0, 0));
        assert!(findings.data_bytes > 0);
    }
}
