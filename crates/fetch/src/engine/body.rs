//! Blocking reads of an object that asynchronous tasks download.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use stream::error::{SourceError, SourceErrorKind};
use stream::source::SourceBody;

use super::growth::ConnectionGrowth;
use super::pump::BridgePump;
use super::{RemoteObject, read_all};
use crate::error::invalid_error;

/// Smaller gaps are read and dropped instead of skipped. About as many bytes are in transit
/// already (in the bridge and in socket buffers), and a new connection costs several round trips.
const SMALL_GAP_BYTES: u64 = 4 << 20;

/// The body of a remote object. Tasks read it from the network; its owner reads it from a bridge.
pub struct RemoteBody<R: RemoteObject> {
    remote: Arc<R>,
    first: Option<R::Connection>,
    is_ranged: bool,
    /// Present if the number of connections adapts.
    growth: Option<Arc<Mutex<ConnectionGrowth>>>,
    position: u64,
    pump: Option<BridgePump>,
    left_over: Option<Bytes>,
    is_complete: bool,
}

impl<R: RemoteObject> RemoteBody<R> {
    /// Creates the body from byte 0; `first` is a connection that is already open for it.
    pub fn new(remote: Arc<R>, first: Option<R::Connection>, is_ranged: bool) -> Self {
        Self {
            remote,
            first,
            is_ranged,
            growth: None,
            position: 0,
            pump: None,
            left_over: None,
            is_complete: false,
        }
    }

    /// Lets the number of connections grow while that makes the transfer faster. The server need
    /// not have proved that it supports ranges.
    pub(crate) fn with_growth(mut self, may_grow: bool) -> Self {
        if may_grow {
            let growth = ConnectionGrowth::new(&self.remote.network().observer);
            self.growth = Some(Arc::new(Mutex::new(growth)));
        }
        self
    }

    fn receive_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let length = self.remote.object_len();
        if self.is_complete || length == Some(self.position) {
            return Ok(None);
        }
        let Self { remote, position, .. } = self;
        let (first, is_ranged) = (self.first.take(), self.is_ranged);
        let growth = &mut self.growth;
        let pump = self.pump.get_or_insert_with(|| {
            let network = remote.network();
            let again = growth.as_ref().map(|growth| growth.lock().begin_again());
            *growth = again.map(|growth| Arc::new(Mutex::new(growth)));
            let growth = growth.clone();
            BridgePump::start(network, network.bridge_bytes, |sender| {
                read_all(Arc::clone(remote), *position, first, is_ranged, growth, sender)
            })
        });
        if let Some(chunk) = pump.chunks.recv() {
            return Ok(Some(chunk));
        }
        // The bridge closes in the same way after the last byte and after a failure. Only the
        // result of the task distinguishes the two.
        let outcome = remote.network().handle.block_on(pump.join_task());
        self.pump = None;
        outcome?;
        match length {
            Some(length) => Err(self.ended_before(length)),
            None => {
                self.is_complete = true;
                Ok(None)
            }
        }
    }

    fn ended_before(&self, offset: u64) -> SourceError {
        let message = format!("the body ended at byte {}, before byte {offset}", self.position);
        SourceError::new(SourceErrorKind::Length, message)
    }
}

impl<R: RemoteObject> SourceBody for RemoteBody<R> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let chunk = match self.left_over.take() {
            Some(chunk) => Some(chunk),
            None => self.receive_chunk()?,
        };
        self.position += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Ok(chunk)
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let length = self.remote.object_len();
        if offset < self.position || length.is_some_and(|length| offset > length) {
            let message = format!("cannot skip from byte {} to byte {offset}", self.position);
            return Err(invalid_error(message));
        }
        if offset - self.position >= SMALL_GAP_BYTES {
            // Only a source with ranges is asked to skip, but that may have been found out after
            // this body was opened.
            self.is_ranged = true;
            self.pump = None;
            self.first = None;
            self.left_over = None;
            self.position = offset;
        }
        while self.position < offset {
            let Some(mut chunk) = self.next_chunk()? else {
                return Err(self.ended_before(offset));
            };
            if self.position > offset {
                let surplus =
                    usize::try_from(self.position - offset).unwrap_or(usize::MAX).min(chunk.len());
                self.left_over = Some(chunk.split_off(chunk.len() - surplus));
                self.position = offset;
            }
        }
        Ok(())
    }
}
