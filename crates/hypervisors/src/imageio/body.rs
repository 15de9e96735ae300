//! The body of an oVirt disk, which records every read as activity.

use std::sync::Arc;

use bytes::Bytes;
use stream::error::SourceError;
use stream::source::SourceBody;

use super::ticket::ReadActivity;

/// The body of a disk, which is read once.
pub(super) struct ImageIoBody {
    pub(super) data: Box<dyn SourceBody>,
    pub(super) progress: Arc<ReadActivity>,
}

impl SourceBody for ImageIoBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.progress.mark_read();
        self.data.next_chunk()
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        self.data.skip_to(offset)
    }
}
