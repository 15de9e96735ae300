//! Checks whether an image is consistent. All of its tables are compared with each other and with
//! its refcounts. The verdict agrees with `qemu-img check`.
//!
//! Unlike the reading of a map, the check does not end at an invalid table. It examines as much of
//! the table as possible.

pub(crate) mod mapped;
pub(crate) mod places;

use crate::findings::Findings;
use crate::layout::ImageCheck;
use crate::memory::{ImageMemory, MemoryAccount};
use crate::offsets::Host;
use crate::tables::{TableConsumer, TableRange};
use crate::wanted_ranges::{RangeBatch, bytes_of};
use crate::{Error, Format, Image};

/// Bytes of tables that a check may request, in addition to twice the length of the image.
const TABLE_BYTES: u64 = 256 << 20;

/// The check of one image.
pub struct ImageChecker {
    format: Format,
    check: Box<dyn ImageCheck>,
    has_begun: bool,
    image_length: u64,
    tables: Vec<TableRange>,
    /// Bytes of memory of the tables that were handed out last.
    handed_out: u64,
    /// Bytes of tables that were requested so far.
    table_bytes: u64,
    account: MemoryAccount,
}

impl ImageChecker {
    /// Creates a check of `image`, which is `image_length` bytes long. Its memory is charged to
    /// `memory`.
    pub fn new(image: Image, image_length: u64, memory: impl ImageMemory + 'static) -> Self {
        Self {
            format: image.layout.head_facts().format,
            check: image.layout.into_check(image_length),
            has_begun: false,
            image_length,
            tables: Vec::new(),
            handed_out: 0,
            table_bytes: 0,
            account: MemoryAccount::new(memory),
        }
    }

    /// Completes the check and returns the findings in all tables.
    pub fn finish_check(self) -> Findings {
        self.check.finish_check()
    }

    /// Bytes of memory that the check uses.
    fn memory_bytes(&self) -> u64 {
        bytes_of::<TableRange>(self.tables.capacity()) + self.handed_out + self.check.memory_bytes()
    }

    /// Creates a batch for the memory of a table and for the tables that it refers to, while
    /// `beside` bytes are held for other purposes.
    fn new_batch(&self, beside: u64) -> RangeBatch {
        RangeBatch::with_room(
            self.account.available_beside(self.memory_bytes().saturating_add(beside)),
        )
    }

    fn add_batch(&mut self, mut batch: RangeBatch) -> Result<(), Error> {
        let wants = batch.take_wants();
        for want in wants {
            let length = u64::from(want.length);
            self.table_bytes = self.table_bytes.saturating_add(length);
            // Tables that do not overlap are together no larger than the image. Reading
            // overlapping tables could take hours.
            if self.table_bytes > self.image_length.saturating_mul(2).saturating_add(TABLE_BYTES) {
                let what = "its tables take more bytes than the image has";
                return Err(self.format.entangled_error(what, want.host));
            }
            if batch.make_room(&mut self.tables) {
                self.tables.push(TableRange::from_want(want, Host(self.image_length)));
            }
        }
        if batch.is_exceeded() {
            return Err(self.account.limit_error());
        }
        self.account.hold_bytes(self.memory_bytes())
    }
}

impl TableConsumer for ImageChecker {
    fn next_tables(&mut self) -> Result<Vec<TableRange>, Error> {
        self.handed_out = 0;
        if self.tables.is_empty() {
            let mut batch = self.new_batch(0);
            if std::mem::replace(&mut self.has_begun, true) {
                self.check.queue_next_tables(&mut batch);
            } else {
                self.check.queue_first_tables(&mut batch)?;
            }
            self.add_batch(batch)?;
        }
        let mut tables = std::mem::take(&mut self.tables);
        // Return the tables in image order, so that the caller can fetch neighbours with one
        // request.
        tables.sort_unstable();
        self.handed_out = bytes_of::<TableRange>(tables.capacity());
        Ok(tables)
    }

    fn add_table(&mut self, range: &TableRange, bytes: &[u8]) -> Result<(), Error> {
        // QEMU reads zeros beyond the end of the image. Only such tables are copied; all others
        // are used as they arrived.
        let length = usize::try_from(range.want.length).unwrap_or(usize::MAX);
        let mut padded = Vec::new();
        let mut batch = if bytes.len() < length {
            let more = bytes_of::<u8>(length);
            self.account.hold_bytes(self.memory_bytes().saturating_add(more))?;
            padded.reserve_exact(length);
            padded.extend_from_slice(bytes);
            padded.resize(length, 0);
            self.new_batch(more)
        } else {
            self.new_batch(0)
        };
        let bytes = if padded.is_empty() { bytes } else { &padded };
        if let Some(table) = range.want.loaded_table(bytes) {
            self.check.check_table(table, &mut batch)?;
        }
        self.add_batch(batch)
    }
}

#[cfg(test)]
mod tests {
    use testkit::images::qcow2::{Guest, Qcow2};

    use super::*;
    use crate::stream::testing;

    #[test]
    fn a_check_takes_no_more_memory_than_is_available() {
        let image = Qcow2::new(9, (1..=200).map(Guest::Data).collect()).build().image;
        let check = |memory| {
            testing::check(image.len() as u64, memory, |start, length| {
                image[usize::try_from(start).unwrap()..][..usize::try_from(length).unwrap()]
                    .to_vec()
            })
        };
        for memory in [0, 100, 2000, 10_000] {
            let available = memory;
            assert_eq!(check(memory), Err(Error::MapTooLarge { available }));
        }
        let findings = check(1 << 20).unwrap();
        assert_eq!((findings.error_count, findings.leaked_clusters), (0, 0));
        assert!(findings.data_bytes > 0);
    }
}
