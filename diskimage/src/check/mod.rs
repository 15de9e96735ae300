//! Is an image consistent? All of its tables, compared with each other and with its refcounts, with the verdict of `qemu-img check`.
//!
//! What makes a table wrong does not end the check, unlike the reading of a map: what it says is found out as far as that goes.

mod findings;
mod mapped;
mod places;

pub use findings::Findings;
pub(crate) use mapped::Mapped;
pub(crate) use places::Places;

use crate::stream::{MAP_BYTES, TableRange};
use crate::wants::{Batch, Table, Want};
use crate::{Error, Facts, Format, Image};

/// What a format looks at.
pub(crate) trait Check {
    /// The tables to look at next, once all of those before and those that they led to have come; none at the end. Other
    /// wants than tables are of no meaning.
    fn next(&mut self, findings: &mut Findings) -> Result<Batch, Error>;

    /// A table has come: looks at it. What of it lies behind the end of the image is zero, as QEMU reads it.
    fn learn(&mut self, table: Table, bytes: &[u8], findings: &mut Findings) -> Result<Batch, Error>;

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
    tables: Vec<Want>,
    /// Bytes of tables that were asked for.
    table_bytes: u64,
    findings: Findings,
}

impl Checker {
    /// A check of `image`, which is `image_length` bytes long.
    pub fn new(image: Image, image_length: u64) -> Result<Self, Error> {
        Ok(Self {
            format: Facts::of(&*image.layout).format,
            check: image.layout.into_check(image_length)?,
            image_length,
            tables: Vec::new(),
            table_bytes: 0,
            findings: Findings::default(),
        })
    }

    /// What was found in all tables.
    pub fn finish(mut self) -> Findings {
        self.check.finish(&mut self.findings);
        self.findings
    }

    fn admit(&mut self, batch: Batch) -> Result<(), Error> {
        for want in batch.into_wants() {
            let length = u64::from(want.length);
            self.table_bytes = self.table_bytes.saturating_add(length);
            // Tables that lie apart are not larger than the image; others could be so many that they take hours.
            if self.table_bytes > self.image_length.saturating_mul(2).saturating_add(MAP_BYTES) {
                return Err(Error::TooEntangled {
                    format: self.format,
                    what: "its tables take more bytes than the image has",
                    offset: want.host,
                });
            }
            self.tables.push(want);
        }
        check_memory(&self.tables)
    }
}

impl Tables for Checker {
    fn next_tables(&mut self) -> Result<Vec<TableRange>, Error> {
        if self.tables.is_empty() {
            let batch = self.check.next(&mut self.findings)?;
            self.admit(batch)?;
        }
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_unstable();
        let within = |want: &Want| TableRange::within(want, self.image_length);
        Ok(tables.iter().filter_map(within).collect())
    }

    fn add(&mut self, table: &TableRange, bytes: &[u8]) -> Result<(), Error> {
        let batch = if bytes.len() == table.length {
            self.check.learn(table.table, bytes, &mut self.findings)?
        } else {
            let mut padded = bytes.to_vec();
            padded.resize(table.length, 0);
            self.check.learn(table.table, &padded, &mut self.findings)?
        };
        self.admit(batch)
    }
}

/// Fails if so many entries take more memory than is spent on a map.
pub(crate) fn check_memory<T>(entries: &[T]) -> Result<(), Error> {
    if size_of_val(entries) as u64 > MAP_BYTES {
        return Err(Error::MapTooLarge { limit: MAP_BYTES });
    }
    Ok(())
}
