//! The bytes of the disk, each chunk a sign of life.

use std::sync::Arc;

use bytes::Bytes;
use datapath::error::SourceError;
use datapath::source::Body;

use super::ticket::Progress;

/// Reads one disk once.
pub(super) struct DiskBody {
    data: Box<dyn Body>,
    progress: Arc<Progress>,
}

impl DiskBody {
    pub(super) fn new(data: Box<dyn Body>, progress: Arc<Progress>) -> Self {
        Self { data, progress }
    }
}

impl Body for DiskBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.progress.advanced();
        self.data.next_chunk()
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        self.data.skip_to(offset)
    }
}
