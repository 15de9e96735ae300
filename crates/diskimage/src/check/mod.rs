//! The check whether an image is consistent: all of its tables, compared with each other and with its refcounts, with the verdict of `qemu-img check`.
//!
//! What makes a table wrong does not end the check, unlike the reading of a map: what it says is found out as far as that goes.

pub(crate) mod mapped;
pub(crate) mod places;

use crate::findings::Findings;
use crate::layout::Check;
use crate::memory::{Account, Memory};
use crate::offsets::Host;
use crate::tables::{TableRange, Tables};
use crate::wants::{Batch, bytes_of};
use crate::{Error, Format, Image};

/// Bytes of tables that may be asked for beside twice those of the image.
const TABLE_BYTES: u64 = 256 << 20;

/// The check of one image.
pub struct Checker {
    format: Format,
    check: Box<dyn Check>,
    has_begun: bool,
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
    /// A check of `image`, which is `image_length` bytes long. Its memory comes from `memory`.
    pub fn new(image: Image, image_length: u64, memory: impl Memory + 'static) -> Self {
        Self {
            format: image.layout.facts().format,
            check: image.layout.into_check(image_length),
            has_begun: false,
            image_length,
            tables: Vec::new(),
            handed_out: 0,
            table_bytes: 0,
            findings: Findings::default(),
            account: Account::new(memory),
        }
    }

    /// The findings in all tables.
    pub fn finish(mut self) -> Findings {
        self.check.finish(&mut self.findings);
        self.findings
    }

    /// Bytes of memory that all of it takes.
    fn bytes(&self) -> u64 {
        bytes_of::<TableRange>(self.tables.capacity()) + self.handed_out + self.check.memory_bytes()
    }

    /// A batch for the memory of a table and for the tables that it asks for, while `beside` bytes are held for other things.
    fn batch(&self, beside: u64) -> Batch {
        Batch::within(self.account.beside(self.bytes().saturating_add(beside)))
    }

    fn admit(&mut self, mut batch: Batch) -> Result<(), Error> {
        let wants = batch.take();
        for want in wants {
            let length = u64::from(want.length);
            self.table_bytes = self.table_bytes.saturating_add(length);
            // Tables that lie apart are not larger than the image; to read those that overlap could take hours.
            if self.table_bytes > self.image_length.saturating_mul(2).saturating_add(TABLE_BYTES) {
                return Err(Error::TooEntangled {
                    format: self.format,
                    what: "its tables take more bytes than the image has",
                    offset: want.host,
                });
            }
            if batch.make_room(&mut self.tables) {
                self.tables
                    .push(TableRange::within(want, Host(self.image_length)));
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
            if std::mem::replace(&mut self.has_begun, true) {
                self.check.next(&mut self.findings, &mut batch);
            } else {
                self.check.begin(&mut self.findings, &mut batch)?;
            }
            self.admit(batch)?;
        }
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_unstable();
        self.handed_out = bytes_of::<TableRange>(tables.capacity());
        Ok(tables)
    }

    fn add(&mut self, range: &TableRange, bytes: &[u8]) -> Result<(), Error> {
        // QEMU reads zeros behind the end of the image. The copy is made for such tables alone: others are as they came.
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
        if let Some(table) = range.want.table(bytes) {
            self.check.learn(table, &mut self.findings, &mut batch)?;
        }
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
                let at = |offset: Host| usize::try_from(offset.0).unwrap();
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
