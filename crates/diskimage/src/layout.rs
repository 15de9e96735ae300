//! The two interfaces that a format implements: [`ImageLayout`], the map of an image, and
//! [`ImageCheck`], its consistency check. [`ImageStream`](crate::ImageStream),
//! [`MapBuilder`](crate::MapBuilder) and [`ImageChecker`](crate::ImageChecker) do the rest in the
//! same way for all formats. The example `write_layout` adds a format from outside of this crate.

use std::ops::Range;

use bytes::Bytes;

use crate::findings::Findings;
use crate::offsets::{Guest, Host};
pub use crate::wanted_ranges::{LoadedTable, RangeBatch, RangeRole, WantedRange};
use crate::{Error, HeadFacts};

/// The order in which the image can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessOrder {
    /// At any offset: every table is read before the data.
    Ranged {
        /// The end of the image.
        image_end: Host,
    },
    /// Once, from the first byte to the last.
    OnePass,
}

/// The map of an image: where the guest's bytes are stored in it.
pub trait ImageLayout: Send {
    /// Returns the consistency check for the image, which is `image_length` bytes long.
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn ImageCheck>;

    /// Returns the facts read from the head.
    fn head_facts(&self) -> &HeadFacts;

    /// Returns the ranges that the header alone determines: the first tables, and for some formats
    /// also data. Called once, before the methods below.
    fn initial_ranges(&mut self, access: AccessOrder) -> Result<RangeBatch, Error>;

    /// Parses a table that has arrived, and adds to `batch` the data and the further tables that
    /// it refers to. Called once for every table, in image order as far as possible.
    fn parse_table(&mut self, table: LoadedTable<'_>, batch: &mut RangeBatch) -> Result<(), Error>;

    /// Bytes of memory that the layout holds for the tables parsed so far.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Returns the compressed data within `stored`, the bytes stored for the compressed cluster at
    /// `guest`. The image may end inside them.
    fn compressed_payload(&self, _guest: Guest, stored: Bytes) -> Result<Bytes, Error> {
        Ok(stored)
    }

    /// Checks that the image, which ends at `end`, contains everything that the tables so far
    /// refer to. Called after each table if tables are read first, and otherwise after the image
    /// has passed.
    fn check_end(&self, _end: Host) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the name of a kind of table, with its article.
    fn table_name(&self, _kind: u8) -> &'static str {
        "a table"
    }

    /// Returns the name of a wanted range, for messages.
    fn name_of(&self, want: &WantedRange) -> &'static str {
        match want.role {
            RangeRole::Table(kind) => self.table_name(kind),
            _ => "a data cluster",
        }
    }

    /// Returns false for tables that only help to save memory.
    fn is_required(&self, _kind: u8) -> bool {
        true
    }

    /// Returns true if the disk cannot be read without the range.
    fn needs_range(&self, want: &WantedRange) -> bool {
        match want.role {
            RangeRole::Ignored => false,
            RangeRole::Table(kind) => self.is_required(kind),
            _ => true,
        }
    }

    /// Returns true if the format counts the references to each parking unit. For other formats, a
    /// unit is released when each of its bytes has been referred to once.
    fn counts_references(&self) -> bool {
        false
    }

    /// Returns the number of references to the parking unit at `host`, including references from
    /// snapshots. `None` if the count is not known yet.
    fn refcount_at(&self, _host: Host) -> Option<u64> {
        None
    }

    /// Called when the image has passed `position`. Refcounts before it are not requested again.
    fn advance_to(&mut self, _position: Host) {}

    /// Returns the guest ranges that a delta turns into zeros. The list is complete when the
    /// stream has finished.
    fn zero_ranges(&self) -> &[Range<Guest>] {
        &[]
    }
}

/// The consistency check of an image, which compares its tables with each other.
pub trait ImageCheck {
    /// Adds the first tables to examine to `tables`. Memory for the state of the check is charged
    /// to `tables`.
    fn queue_first_tables(&mut self, tables: &mut RangeBatch) -> Result<(), Error>;

    /// Adds the tables to examine next. Called when all earlier tables and the tables that they
    /// led to have arrived. Adds nothing when the check is complete.
    fn queue_next_tables(&mut self, _tables: &mut RangeBatch) {}

    /// Examines a table that has arrived, and adds the tables that it leads to. The part of the
    /// table beyond the end of the image is zero, as QEMU reads it.
    fn check_table(&mut self, table: LoadedTable<'_>, tables: &mut RangeBatch)
    -> Result<(), Error>;

    /// Bytes of memory that the check holds for the tables examined so far.
    fn memory_bytes(&self) -> u64;

    /// Final check, after all tables have arrived. Returns what all checks have found.
    fn finish_check(self: Box<Self>) -> Findings;
}
