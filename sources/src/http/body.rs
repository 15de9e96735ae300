//! The blocking face of a download: a task reads the network, a bounded bridge carries the bytes over.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use datapath::buffer::Pool;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::Body;
use reqwest::Response;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::download::Object;
use super::pump::Pump;
use super::regions::Regions;

/// Gaps below this are read and dropped: so much is on its way already (bridge and socket buffers), and a
/// new connection costs several round trips.
const SMALL_GAP_BYTES: u64 = 4 << 20;

/// What a body needs from its source.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) object: Arc<Object>,
    pub(super) handle: Handle,
    pub(super) stop: CancellationToken,
    pub(super) bridge_budget_bytes: usize,
    pub(super) connections: NonZeroUsize,
    pub(super) pool: Pool,
    pub(super) regions: Option<Regions>,
}

/// The object from some offset to its end.
pub(super) struct HttpBody {
    surroundings: Surroundings,
    first: Option<Response>,
    position: u64,
    pump: Option<Pump>,
    left_over: Option<Bytes>,
    complete: bool,
    is_ranged: bool,
}

impl HttpBody {
    /// The body from byte 0; `first` is the response that was opened for it.
    pub(super) fn new(surroundings: Surroundings, first: Option<Response>, is_ranged: bool) -> Self {
        Self {
            surroundings,
            first,
            position: 0,
            pump: None,
            left_over: None,
            complete: false,
            is_ranged,
        }
    }

    fn receive(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.complete {
            return Ok(None);
        }
        let first = self.first.take();
        let pump = self
            .pump
            .get_or_insert_with(|| Pump::start(&self.surroundings, self.position, first, self.is_ranged));
        if let Some(chunk) = pump.chunks.recv() {
            return Ok(Some(chunk));
        }
        let outcome = self.surroundings.handle.block_on(&mut pump.task);
        self.pump = None;
        outcome.map_err(|error| {
            let message = format!("the task that reads the source failed: {error}");
            SourceError::new(SourceErrorKind::Io, message)
        })??;
        self.complete = true;
        Ok(None)
    }
}

impl Body for HttpBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let chunk = match self.left_over.take() {
            Some(chunk) => Some(chunk),
            None => self.receive()?,
        };
        self.position += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Ok(chunk)
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let length = self.surroundings.object.identity.length();
        if offset < self.position || length.is_some_and(|length| offset > length) {
            let message = format!("cannot skip from byte {} to byte {offset}", self.position);
            return Err(SourceError::new(SourceErrorKind::Invalid, message));
        }
        if self.is_ranged && offset - self.position >= SMALL_GAP_BYTES {
            self.pump = None;
            self.first = None;
            self.left_over = None;
            self.position = offset;
            return Ok(());
        }
        while self.position < offset {
            let Some(mut chunk) = self.next_chunk()? else {
                let message = format!("the body ended at byte {}, before byte {offset}", self.position);
                return Err(SourceError::new(SourceErrorKind::Length, message));
            };
            if self.position > offset {
                let surplus = usize::try_from(self.position - offset)
                    .unwrap_or(usize::MAX)
                    .min(chunk.len());
                self.left_over = Some(chunk.split_off(chunk.len() - surplus));
                self.position = offset;
            }
        }
        Ok(())
    }
}

/// The error of every wait that the stop token ended.
pub(super) fn stopped() -> SourceError {
    SourceError::new(SourceErrorKind::Stopped, "stopped while reading the source")
}
