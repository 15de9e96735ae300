//! The disk in order: data as the image server sends it, holes from here.

use std::sync::Arc;

use bytes::Bytes;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::Body;
use datapath::target::ZEROS;

use super::extents::Extent;
use super::ticket::Progress;

/// Reads one disk once.
pub(super) struct DiskBody {
    data: Box<dyn Body>,
    /// `None` to pass on everything that comes.
    extents: Option<Arc<[Extent]>>,
    /// Which of them the position is in.
    current: usize,
    position: u64,
    /// Where `data` stands.
    data_position: u64,
    waiting: Option<Bytes>,
    progress: Arc<Progress>,
}

impl DiskBody {
    pub(super) fn new(data: Box<dyn Body>, extents: Option<Arc<[Extent]>>, progress: Arc<Progress>) -> Self {
        Self {
            data,
            extents,
            current: 0,
            position: 0,
            data_position: 0,
            waiting: None,
            progress,
        }
    }

    /// The extent that the position is in; `None` at the end, or where there are none.
    fn extent(&mut self) -> Option<Extent> {
        let extents = self.extents.as_ref()?;
        while extents
            .get(self.current)
            .is_some_and(|extent| extent.end() <= self.position)
        {
            self.current += 1;
        }
        extents.get(self.current).copied()
    }

    fn hole(&mut self, end: u64) -> Bytes {
        let length = usize::try_from(end - self.position).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        self.position += length as u64;
        Bytes::from_static(&ZEROS[..length])
    }

    /// Data up to `end`.
    fn received(&mut self, end: u64) -> Result<Option<Bytes>, SourceError> {
        if self.waiting.is_none() {
            if self.data_position < self.position {
                self.data.skip_to(self.position)?;
                self.data_position = self.position;
            }
            self.waiting = self.data.next_chunk()?;
            self.data_position += self.waiting.as_ref().map_or(0, |chunk| chunk.len() as u64);
        }
        let Some(mut chunk) = self.waiting.take() else {
            return Ok(None);
        };
        let room = usize::try_from(end - self.position).unwrap_or(usize::MAX);
        if chunk.len() > room {
            // The server reads on where a hole begins; the bytes of the hole are zeros and not needed.
            let rest = chunk.split_off(room);
            let hole_end = self.extent_after(end);
            let zeros = usize::try_from(hole_end - end).unwrap_or(usize::MAX);
            if rest.len() > zeros {
                self.waiting = Some(rest.slice(zeros..));
            }
        }
        self.position += chunk.len() as u64;
        Ok(Some(chunk))
    }

    /// Where the extent that begins at `start` ends.
    fn extent_after(&self, start: u64) -> u64 {
        let extents = self.extents.as_deref().unwrap_or_default();
        extents.get(self.current + 1).map_or(start, Extent::end)
    }
}

impl Body for DiskBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.progress.advanced();
        let chunk = match (self.extent(), self.extents.is_some()) {
            (Some(extent), _) if extent.zero => Some(self.hole(extent.end())),
            (Some(extent), _) => self.received(extent.end())?,
            // The lengths of data and extents agree.
            (None, true) => None,
            (None, false) => self.received(u64::MAX)?,
        };
        Ok(chunk)
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        if offset < self.position {
            let message = format!("cannot skip from byte {} to byte {offset}", self.position);
            return Err(SourceError::new(SourceErrorKind::Invalid, message));
        }
        while self.position < offset {
            let Some(chunk) = self.waiting.take() else {
                self.position = offset;
                break;
            };
            let wanted = usize::try_from(offset - self.position).unwrap_or(usize::MAX);
            if chunk.len() > wanted {
                self.waiting = Some(chunk.slice(wanted..));
                self.position = offset;
            } else {
                self.position += chunk.len() as u64;
            }
        }
        Ok(())
    }
}
