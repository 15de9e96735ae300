//! A source whose bytes are read through another body.

use std::ops::Range;

use bytes::Bytes;
use stream::changes::ChangedRanges;
use stream::error::SourceError;
use stream::options::StatedDisk;
use stream::source::{Source, SourceBody};
use stream::storage::StorageLocation;

/// The source `inner`, with a body that `open` makes.
pub struct WrappedSource<F> {
    /// The source that answers everything except for the body.
    pub inner: Box<dyn Source>,
    /// True if the body verifies a digest or a signature of the whole object.
    pub is_verified: bool,
    /// The raw disk that the bytes are, if something other than `inner` states that.
    pub stated_disk: Option<StatedDisk>,
    /// Opens the body.
    pub open: F,
}

impl<F> Source for WrappedSource<F>
where
    F: Fn(&dyn Source) -> Result<Box<dyn SourceBody>, SourceError> + Send + Sync,
{
    fn name(&self) -> String {
        self.inner.name()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.inner.total_bytes()
    }

    fn content_type(&self) -> Option<&str> {
        self.inner.content_type()
    }

    fn is_ranged(&self) -> bool {
        self.inner.is_ranged()
    }

    fn has_own_digest(&self) -> bool {
        self.is_verified || self.inner.has_own_digest()
    }

    fn stated_disk(&self) -> Option<StatedDisk> {
        self.stated_disk.or_else(|| self.inner.stated_disk())
    }

    fn changed_ranges(&self) -> Option<&ChangedRanges> {
        self.inner.changed_ranges()
    }

    fn storage_location(&self) -> Option<StorageLocation> {
        self.inner.storage_location()
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        (self.open)(&*self.inner)
    }

    /// The bytes are not verified here: [`Source::has_own_digest`] makes the data path compare
    /// them with the body.
    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        self.inner.read_range(range)
    }
}
