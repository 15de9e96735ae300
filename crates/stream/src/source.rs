//! The traits that every source implements. The sources themselves (HTTP, file, …) are in a crate
//! of their own.
//!
//! Both traits are blocking, because the data path runs on its own threads. A source that works
//! asynchronously hands its bytes over through a queue that is limited in bytes (see
//! [`crate::bridge`]).

use std::ops::Range;

use bytes::Bytes;

use crate::changes::ChangedRanges;
use crate::codec::Codec;
use crate::error::{SourceError, SourceErrorKind};
use crate::storage::StorageLocation;

/// The compressed layers around the content of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompressionLayers {
    /// Layers are recognised by their first bytes.
    #[default]
    Sniffed,
    /// No layer: a guest wrote the first bytes, so they are not interpreted.
    None,
    /// Exactly one layer of this codec, as agreed by both ends. Layers inside it are not detected.
    Only(Codec),
}

/// A raw disk, as its source states it. A guest wrote the bytes of the disk, and they may begin
/// like any image or archive, so they are not interpreted beyond what is stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatedDisk {
    /// The compression around the disk.
    pub layers: CompressionLayers,
    /// Size of the disk in bytes, if it is stated. The disk must have it.
    pub bytes: Option<u64>,
}

impl StatedDisk {
    /// An uncompressed disk.
    pub const PLAIN: Self = Self { layers: CompressionLayers::None, bytes: None };

    /// A disk in one zstd stream.
    pub const ZSTD: Self = Self { layers: CompressionLayers::Only(Codec::Zstd), bytes: None };
}

/// An opened object. Its bytes can be read once in order and, if [`Source::is_ranged`], also by
/// range.
pub trait Source: Send + Sync {
    /// The name of the source in logs: scheme, host and path, never credentials or a query.
    fn name(&self) -> String;

    /// Size of the whole object in bytes, if the source knows it.
    fn total_bytes(&self) -> Option<u64>;

    /// The media type that a server declares. It decides nothing, because many servers send images
    /// as `text/plain`.
    fn content_type(&self) -> Option<&str> {
        None
    }

    /// True if [`Source::read_range`] and [`SourceBody::skip_to`] work.
    fn is_ranged(&self) -> bool {
        false
    }

    /// True if the body verifies a digest of the whole object at its end. Then no byte is skipped,
    /// the body is read to its end even if the image does not need that, and bytes that were read
    /// by range are compared with it.
    fn has_own_digest(&self) -> bool {
        false
    }

    /// The raw disk that the bytes are, if the source states that. Then nothing is detected,
    /// because a guest's disk may begin like any image or archive.
    fn stated_disk(&self) -> Option<StatedDisk> {
        None
    }

    /// For a source that delivers only what changed since an earlier state: the ranges of the disk
    /// that its bytes belong to, one after the other.
    fn changed_ranges(&self) -> Option<&ChangedRanges> {
        None
    }

    /// The location of the bytes, if it is on this machine. The target must not be at the same
    /// location.
    fn storage_location(&self) -> Option<StorageLocation> {
        None
    }

    /// Returns the body from byte 0. Called once. A source that has already received the first
    /// bytes returns them here.
    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError>;

    /// Reads exactly the bytes of `range`, which must lie within the object. The source retries by
    /// itself. Only for sources with ranges.
    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let Range { start, end } = range;
        let message = format!("bytes {start} to {end} of this source cannot be read alone");
        Err(SourceError::new(SourceErrorKind::Invalid, message))
    }
}

/// The bytes of an object in order.
pub trait SourceBody: Send {
    /// Returns the next bytes (never an empty chunk), or `None` at the end. The end is reported
    /// only if the length is right: a body that is shorter or longer than announced is an error.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError>;

    /// Continues at `offset`, which must not be before the current position. Only for sources with
    /// ranges. The source may read and drop the bytes between, or not fetch them at all.
    ///
    /// Fails if the bytes can only be read, for example because all of them are verified.
    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let message = format!("cannot skip to byte {offset} of this source");
        Err(SourceError::new(SourceErrorKind::Invalid, message))
    }
}
