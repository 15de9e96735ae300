//! The traits of every source. The sources themselves (HTTP, file, …) are a crate of their own.
//!
//! Both traits are blocking: the data path runs on its own threads. A source that is asynchronous inside
//! bridges with a byte-counted queue (see [`crate::bridge`]).

use std::ops::Range;

use bytes::Bytes;

use crate::changes::ChangedRanges;
use crate::error::SourceError;
use crate::storage::StorageLocation;

/// An opened object whose bytes can be read once in order and, when [`Source::is_ranged`], at random.
pub trait Source: Send + Sync {
    /// The name of the source in logs: scheme, host and path, never credentials or a query.
    fn name(&self) -> String;

    /// Bytes in the whole object, if the source knows.
    fn total_bytes(&self) -> Option<u64>;

    /// The media type that a server gives the bytes. It decides nothing: many servers call an image `text/plain`.
    fn content_type(&self) -> Option<&str> {
        None
    }

    /// True when [`Source::read_range`] and [`SourceBody::skip_to`] work.
    fn is_ranged(&self) -> bool;

    /// True when the body verifies a digest of the whole object at its end: then nothing is skipped, and it is read to
    /// its end whether or not the image needs that.
    fn has_own_digest(&self) -> bool {
        false
    }

    /// True when the bytes are those of a guest's disk, which are taken as they are: they may begin like any image or archive.
    fn is_disk(&self) -> bool {
        false
    }

    /// The ranges of a disk that the bytes are, one after the other, when only those came that changed since an earlier state.
    fn changed_ranges(&self) -> Option<&ChangedRanges> {
        None
    }

    /// The place of the bytes, if that is on this machine: nothing may be written there meanwhile.
    fn storage_location(&self) -> Option<StorageLocation> {
        None
    }

    /// The body from byte 0. Called once; a source that already has the first bytes hands them out here.
    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError>;

    /// Exactly the bytes of `range`, which lies within the length. Retries inside; only for ranged sources.
    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError>;
}

/// The bytes of an object in order.
pub trait SourceBody: Send {
    /// The next bytes (never an empty chunk), or `None` at the end. The end is only reported when it is
    /// true: a body that is shorter or longer than announced is an error.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError>;

    /// Continue at `offset`, which is not before the current position. Only for ranged sources: whether
    /// the bytes between are read and dropped or never fetched is the source's choice.
    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError>;
}
