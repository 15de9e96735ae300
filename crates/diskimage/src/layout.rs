//! The two things that a format has to say about its images: a map ([`ImageLayout`]), and a verdict ([`ImageCheck`]).
//! [`Stream`](crate::ImageStream), [`MapBuilder`](crate::MapBuilder) and [`Checker`](crate::ImageChecker) do the rest, the same for all
//! formats.

use std::ops::Range;

use bytes::Bytes;

use crate::findings::Findings;
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{LoadedTable, RangeBatch, RangeRole, WantedRange};
use crate::{Error, HeadFacts};

/// The order in which the image can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessOrder {
    /// At any offset: every table is read before the data.
    Ranged {
        /// The end of the whole image.
        image_end: Host,
    },
    /// Once, from its first byte to its last.
    OnePass,
}

/// The map of an image: the places of the guest's bytes in it.
pub(crate) trait ImageLayout: Send {
    /// The check whether the image, which is `image_length` bytes long, is consistent.
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn ImageCheck>;

    /// The facts that its head tells.
    fn head_facts(&self) -> &HeadFacts;

    /// Asks for what the header alone tells: the first tables, perhaps data. Called once, before everything below.
    fn initial_ranges(&mut self, access: AccessOrder) -> Result<RangeBatch, Error>;

    /// A table has come: adds the data and the further tables that it names to `batch`. Called once for every table, in the order of
    /// the image as far as that can be.
    fn parse_table(&mut self, table: LoadedTable<'_>, batch: &mut RangeBatch) -> Result<(), Error>;

    /// Bytes of memory that it holds of the tables it has learned.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// The codec's bytes in what was stored for the compressed cluster at `guest`; the image may end inside them.
    fn compressed_payload(&self, _guest: Guest, stored: Bytes) -> Result<Bytes, Error> {
        Ok(stored)
    }

    /// The image has ended, and everything that was asked for has come: the last look. `end` is how far the image was
    /// passed: in one pass, how long it is.
    fn check_end(&mut self, _end: Host) -> Result<(), Error> {
        Ok(())
    }

    /// The name of a kind of table, with its article.
    fn table_name(&self, _kind: u8) -> &'static str {
        "a table"
    }

    /// The name of what is wanted, for messages.
    fn name_of(&self, want: &WantedRange) -> &'static str {
        match want.role {
            RangeRole::Table(kind) => self.table_name(kind),
            _ => "a data cluster",
        }
    }

    /// False for tables that only help to save memory.
    fn is_required(&self, _kind: u8) -> bool {
        true
    }

    /// True if the format counts the references to each parking unit. Of the others a unit is done with when each of its bytes
    /// was asked for once.
    fn counts_references(&self) -> bool {
        false
    }

    /// References to the parking unit at `host`, those of snapshots included, if the image has told so far.
    fn refcount_at(&self, _host: Host) -> Option<u64> {
        None
    }

    /// The image has passed up to `position`; refcounts of what lies before are not asked for again.
    fn advance_to(&mut self, _position: Host) {}

    /// The ranges that a delta makes zero; all of them when the stream has finished.
    fn zero_ranges(&self) -> &[Range<Guest>] {
        &[]
    }
}

/// The verdict on an image: its tables, compared with each other.
pub(crate) trait ImageCheck {
    /// Adds the first tables to look at to `tables`. Memory for what is remembered is charged to `tables`.
    fn queue_first_tables(&mut self, findings: &mut Findings, tables: &mut RangeBatch) -> Result<(), Error>;

    /// The same for the tables to look at next, once all of those before and those that they led to have come; none at the end.
    fn queue_next_tables(&mut self, _findings: &mut Findings, _tables: &mut RangeBatch) {}

    /// A table has come: looks at it, and adds those that it leads to. The part of it behind the end of the image is zero, as
    /// QEMU reads it.
    fn check_table(
        &mut self,
        table: LoadedTable<'_>,
        findings: &mut Findings,
        tables: &mut RangeBatch,
    ) -> Result<(), Error>;

    /// Bytes of memory that it holds of the tables it has learned.
    fn memory_bytes(&self) -> u64;

    /// All tables have come: the last look.
    fn finish_check(&mut self, findings: &mut Findings);
}
