//! What a format has to say about its images. [`Stream`](crate::Stream) does the rest, the same for all formats.

use std::ops::Range;

use bytes::Bytes;

use crate::check::Check;
use crate::wants::{Batch, Table};
use crate::{Clusters, Error, Format};

/// How the image comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// At any offset: every table is read before the data.
    Ranged {
        /// Bytes of the whole image.
        image_length: u64,
    },
    /// Once, from its first byte to its last.
    OnePass,
}

/// What a format says about where the guest's bytes are in its image.
pub(crate) trait Layout: Send {
    /// What is to be looked at to find out whether the image, which is `image_length` bytes long, is consistent.
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn Check>;

    /// Which format.
    fn format(&self) -> Format;

    /// Bytes of the virtual disk.
    fn virtual_size(&self) -> u64;

    /// How compressed clusters are stored, if the image may have such.
    fn clusters(&self) -> Option<Clusters> {
        None
    }

    /// Bytes that are allocated together.
    fn cluster_size(&self) -> Option<u64>;

    /// What is particular about the image, for people: short noun phrases.
    fn features(&self) -> Vec<String>;

    /// Snapshots inside the image, whose data is ignored.
    fn snapshots(&self) -> u32 {
        0
    }

    /// True if an earlier writer marked the image as corrupt, and it is read nevertheless.
    fn is_marked_corrupt(&self) -> bool {
        false
    }

    /// One pass: in what units bytes of the image wait whose place is not known yet: a power of two from 512 bytes to
    /// 2 MiB. `None`: nothing ever waits, for everything is known of each byte when it comes.
    fn parking_unit(&self) -> Option<u64>;

    /// What the header alone tells: the first tables, perhaps data. Called once, before everything below.
    fn begin(&mut self, access: Access) -> Result<Batch, Error>;

    /// A table has come: adds what it maps, and further tables, to `batch`. Called once for every table, in the order of the
    /// image as far as that can be.
    fn learn(&mut self, table: Table, bytes: &[u8], batch: &mut Batch) -> Result<(), Error>;

    /// Bytes of memory that it holds of the tables it has learned.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// The codec's bytes in what was stored for the compressed cluster at `guest`; the image may end inside them.
    fn payload(&self, _guest: u64, stored: Bytes) -> Result<Bytes, Error> {
        Ok(stored)
    }

    /// The image has ended, and everything that was asked for has come: the last look. `end` is how far the image was
    /// passed: in one pass, how long it is.
    fn finish(&mut self, _end: u64) -> Result<(), Error> {
        Ok(())
    }

    /// What a kind of table is called, with its article.
    fn table_name(&self, _kind: u8) -> &'static str {
        "a table"
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

    /// How often the parking unit at `host` is referred to, snapshots included, if the image has told so far.
    fn refcount(&self, _host: u64) -> Option<u64> {
        None
    }

    /// The image has passed up to `position`; refcounts of what lies before are not asked for again.
    fn pass(&mut self, _position: u64) {}

    /// What a delta makes zero; all of it when the stream has finished.
    fn zeros(&self) -> &[Range<u64>] {
        &[]
    }
}
