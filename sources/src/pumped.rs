//! The blocking face of a source that is asynchronous inside: a task reads the network, a bounded bridge carries the
//! bytes over to the thread of the transfer.

use std::time::Duration;

use bytes::Bytes;
use datapath::bridge;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::source::Body;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Bytes between the network and the data path.
const BRIDGE_BYTES: usize = 4 << 20;

/// Gaps below this are read and dropped: so much is on its way already (bridge and socket buffers), and a new
/// connection costs several round trips.
const SMALL_GAP_BYTES: u64 = 4 << 20;

/// How long a task that nobody wants any more bytes from may take to leave its server politely.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// A task that fills a bridge; ends soon after its owner.
pub(super) struct Pump {
    chunks: bridge::Receiver,
    task: JoinHandle<Result<(), SourceError>>,
    _left: DropGuard,
}

impl Pump {
    /// Runs what `pump` makes of the sending end on `handle`, until `stop`.
    pub(super) fn start<F>(
        handle: &Handle,
        stop: &CancellationToken,
        pump: impl FnOnce(bridge::Sender) -> F,
    ) -> Self
    where
        F: Future<Output = Result<(), SourceError>> + Send + 'static,
    {
        let (sender, chunks) = bridge::channel(BRIDGE_BYTES, stop.clone());
        let (pumping, stop) = (pump(sender), stop.clone());
        let left = CancellationToken::new();
        let owner_left = left.clone();
        let task = handle.spawn(async move {
            let too_late = async {
                owner_left.cancelled().await;
                tokio::time::sleep(LEAVE_LIMIT).await;
            };
            tokio::select! {
                outcome = pumping => outcome,
                () = stop.cancelled() => Err(stopped()),
                () = too_late => Ok(()),
            }
        });
        Self {
            chunks,
            task,
            _left: left.drop_guard(),
        }
    }
}

/// The error of every wait that the stop token ended.
pub(super) fn stopped() -> SourceError {
    SourceError::new(SourceErrorKind::Stopped, "stopped while reading the source")
}

/// An object of known length that can be read from any offset to its end.
pub(super) struct PumpedBody<S> {
    /// Starts a pump at an offset.
    start: S,
    handle: Handle,
    length: u64,
    position: u64,
    pump: Option<Pump>,
    left_over: Option<Bytes>,
}

impl<S: FnMut(u64) -> Pump + Send> PumpedBody<S> {
    /// The body from byte 0.
    pub(super) fn new(handle: Handle, length: u64, start: S) -> Self {
        Self {
            start,
            handle,
            length,
            position: 0,
            pump: None,
            left_over: None,
        }
    }

    fn receive(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.position == self.length {
            return Ok(None);
        }
        let pump = self.pump.get_or_insert_with(|| (self.start)(self.position));
        if let Some(chunk) = pump.chunks.recv() {
            return Ok(Some(chunk));
        }
        let outcome = self.handle.block_on(&mut pump.task);
        self.pump = None;
        outcome.map_err(|error| {
            let message = format!("the task that reads the source failed: {error}");
            SourceError::new(SourceErrorKind::Io, message)
        })??;
        let message = format!(
            "the body ended at byte {}, before byte {}",
            self.position, self.length
        );
        Err(SourceError::new(SourceErrorKind::Length, message))
    }
}

impl<S: FnMut(u64) -> Pump + Send> Body for PumpedBody<S> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let chunk = match self.left_over.take() {
            Some(chunk) => Some(chunk),
            None => self.receive()?,
        };
        self.position += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Ok(chunk)
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        if offset < self.position || offset > self.length {
            let message = format!("cannot skip from byte {} to byte {offset}", self.position);
            return Err(SourceError::new(SourceErrorKind::Invalid, message));
        }
        if offset - self.position >= SMALL_GAP_BYTES {
            self.pump = None;
            self.left_over = None;
            self.position = offset;
        }
        while self.position < offset {
            let Some(mut chunk) = self.next_chunk()? else {
                return Ok(());
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
