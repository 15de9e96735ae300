//! From what is read to the stream that is sent: one thread reads, several encode, and what they make comes out in order.
//!
//! ```text
//!            ┌─► encoder ─┐
//!  reader ───┤            ├─► slots, in order ──► outgoing
//!            └─► encoder ─┘
//! ```
//!
//! The reader puts a slot into a queue for every piece; the sender takes the slots in order and waits for what an encoder
//! puts into each. The queue is what bounds the memory: `SLOTS` pieces of a quarter of a MiB.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc as threads};
use std::task::{Context, Poll, ready};
use std::thread::Builder;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::flow::{FlowState, SendRateMeter};
use super::outlet::{OutletClosedError, PieceOutlet};
use super::{EncodedBlock, Encoding, VolumePiece};
use crate::error::ThreadStartError;
use crate::observe::{ByteCount, NoObserver, Observer, Stage};

/// Pieces between the reader and the network: 8 MiB.
const SLOTS: usize = 32;

/// Encoded pieces that wait when the network is slower than everything else.
const CONGESTED: usize = SLOTS * 3 / 4;

/// Bytes sent so far, and the end; with the error `E` of what is read.
pub struct SendStats<E> {
    observer: Arc<dyn Observer>,
    volume_bytes: AtomicU64,
    stream_bytes: AtomicU64,
    /// Bytes of the volume that were sent as the number of zeros.
    zero_bytes: AtomicU64,
    complete: AtomicBool,
    broken: AtomicBool,
    failure: Mutex<Option<E>>,
}

impl<E> Default for SendStats<E> {
    fn default() -> Self {
        Self::with_observer(NoObserver::new_shared())
    }
}

impl<E> SendStats<E> {
    /// One that tells `observer` of bytes, and for how long the volume was read (the source) and the network took bytes
    /// (the target).
    pub fn with_observer(observer: Arc<dyn Observer>) -> Self {
        Self {
            observer,
            volume_bytes: AtomicU64::new(0),
            stream_bytes: AtomicU64::new(0),
            zero_bytes: AtomicU64::new(0),
            complete: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Bytes of the device, tar or image.
    pub fn volume_bytes(&self) -> u64 {
        self.volume_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the encoded stream.
    pub fn stream_bytes(&self) -> u64 {
        self.stream_bytes.load(Ordering::Relaxed)
    }

    /// Counts `more` in `total` and tells the observer.
    fn add_bytes(&self, count: ByteCount, total: &AtomicU64, more: u64) {
        let before = total.fetch_add(more, Ordering::Relaxed);
        self.observer.record_bytes(count, before.saturating_add(more));
    }

    /// True if all was read and handed over to be sent.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// True if it could not be read to its end.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// The reason why it could not be read; nothing after a panic.
    pub fn take_failure(&self) -> Option<E> {
        self.failure.lock().take()
    }
}

/// How a piece is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceKind {
    /// Zeros, which are counted.
    Zeros,
    /// Data as it is.
    Stored,
    /// Data that is compressed where that saves something.
    Squeezed,
}

/// A piece that comes next in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassedPiece {
    /// Offset of its first byte in the encoded stream.
    pub stream_offset: u64,
    /// Offset of its first byte in what is read.
    pub offset: u64,
    /// Bytes that were read.
    pub length: u64,
    /// How it is encoded: the same piece in the same way is the same bytes again.
    pub kind: PieceKind,
}

/// Hears of each piece before its first byte comes.
pub type Log = Box<dyn FnMut(PassedPiece) + Send>;

/// The stream stops here, and is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what is sent could not be read to its end")]
pub struct IncompleteStreamError;

/// A piece on its way.
enum PieceSlot<E> {
    Piece(oneshot::Receiver<EncodedPiece>),
    End,
    Failed(E),
}

struct EncodedPiece {
    blocks: Vec<EncodedBlock>,
    /// Bytes that they stand for.
    length: u64,
    kind: PieceKind,
}

/// A piece for an encoder.
struct EncoderTask {
    piece: VolumePiece,
    done: oneshot::Sender<EncodedPiece>,
}

/// The encoded stream of what is read.
pub struct EncodedStream<E> {
    slots: mpsc::Receiver<PieceSlot<E>>,
    current: Option<oneshot::Receiver<EncodedPiece>>,
    parts: VecDeque<Bytes>,
    flow: Arc<FlowState>,
    pace: SendRateMeter,
    is_ended: bool,
    /// Time at which the network got its last part.
    handed_over: Option<Instant>,
    tally: Arc<SendStats<E>>,
    log: Option<Log>,
    /// The next piece, as far as it is known.
    next: (u64, u64),
}

impl<E: Send + 'static> EncodedStream<E> {
    /// Begins to `read`, and to encode it on `encoders` threads, or on fewer if the system gives
    /// no more.
    pub fn start(
        read: impl FnOnce(&mut PieceOutlet<'_>) -> Result<(), E> + Send + 'static,
        encoding: Encoding,
        encoders: NonZeroUsize,
        tally: Arc<SendStats<E>>,
    ) -> Result<Self, ThreadStartError> {
        let (slots, queue) = mpsc::channel(SLOTS);
        // Without a bound of its own: a piece gets here only when it has one of the slots.
        let (work, waiting_work) = threads::channel();
        let waiting_work = Arc::new(Mutex::new(waiting_work));
        let flow = Arc::new(FlowState::new(CONGESTED));
        let timed = Arc::clone(&tally);
        // The first one: what comes behind it is of use only if there is something to encode.
        Builder::new().spawn(move || read_all(read, encoding, &slots, &work, &timed))?;
        for number in 0..encoders.get() {
            let (work, flow) = (Arc::clone(&waiting_work), Arc::clone(&flow));
            match Builder::new().spawn(move || run_encoder(encoding, &work, &flow)) {
                Ok(_) => {}
                Err(error) if number > 0 => {
                    tracing::debug!(%error, "could not start another thread to encode");
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self {
            slots: queue,
            current: None,
            parts: VecDeque::from([encoding.stream_header()]),
            flow,
            pace: SendRateMeter::start(),
            is_ended: false,
            handed_over: None,
            tally,
            log: None,
            next: (0, 0),
        })
    }

    /// Tells `log` of each piece. The first one is at `stream_offset` of the stream, and at `offset` of what is read.
    pub fn with_log(self, stream_offset: u64, offset: u64, log: Log) -> Self {
        Self { log: Some(log), next: (stream_offset, offset), ..self }
    }

    /// The next bytes of the stream, never none; `None` at its end.
    pub fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, IncompleteStreamError>>> {
        if let Some(since) = self.handed_over.take() {
            self.tally.observer.record_time(Stage::Target, since.elapsed());
        }
        loop {
            if let Some(part) = self.parts.pop_front() {
                if part.is_empty() {
                    continue;
                }
                let bytes = part.len() as u64;
                self.tally.add_bytes(ByteCount::Target, &self.tally.stream_bytes, bytes);
                self.pace.add_bytes(bytes, &self.flow);
                self.handed_over = Some(Instant::now());
                return Poll::Ready(Some(Ok(part)));
            }
            if self.is_ended {
                self.tally.complete.store(true, Ordering::Release);
                return Poll::Ready(None);
            }
            let encoded = match &mut self.current {
                Some(piece) => ready!(Pin::new(piece).poll(context)),
                None => match ready!(self.slots.poll_recv(context)) {
                    Some(PieceSlot::Piece(piece)) => {
                        self.current = Some(piece);
                        continue;
                    }
                    Some(PieceSlot::End) => {
                        self.is_ended = true;
                        continue;
                    }
                    Some(PieceSlot::Failed(error)) => return self.fail_stream(Some(error)),
                    // The reader panicked.
                    None => return self.fail_stream(None),
                },
            };
            self.current = None;
            match encoded {
                Ok(encoded) => self.take_piece(encoded),
                // An encoder panicked.
                Err(_) => return self.fail_stream(None),
            }
        }
    }

    fn take_piece(&mut self, encoded: EncodedPiece) {
        self.flow.remove_waiting();
        let (stream_offset, offset) = self.next;
        if let Some(log) = &mut self.log {
            log(PassedPiece { stream_offset, offset, length: encoded.length, kind: encoded.kind });
        }
        let bytes = encoded.blocks.iter().map(EncodedBlock::encoded_bytes).sum::<u64>();
        self.next = (stream_offset + bytes, offset + encoded.length);
        let tally = &self.tally;
        tally.add_bytes(ByteCount::Source, &tally.volume_bytes, encoded.length);
        if encoded.kind == PieceKind::Zeros {
            tally.add_bytes(ByteCount::Skipped, &tally.zero_bytes, encoded.length);
        }
        for block in encoded.blocks {
            self.parts.extend([block.head, block.body]);
        }
    }

    fn fail_stream(&self, error: Option<E>) -> Poll<Option<Result<Bytes, IncompleteStreamError>>> {
        *self.tally.failure.lock() = error;
        self.tally.broken.store(true, Ordering::Release);
        Poll::Ready(Some(Err(IncompleteStreamError)))
    }
}

/// The thread that reads. It ends when everything is read, or no longer wanted.
fn read_all<E>(
    read: impl FnOnce(&mut PieceOutlet<'_>) -> Result<(), E>,
    encoding: Encoding,
    slots: &mpsc::Sender<PieceSlot<E>>,
    work: &threads::Sender<EncoderTask>,
    tally: &SendStats<E>,
) {
    let mut since = Instant::now();
    let mut sink = |piece| {
        tally.observer.record_time(Stage::Source, since.elapsed());
        let (done, encoded) = oneshot::channel();
        slots.blocking_send(PieceSlot::Piece(encoded)).map_err(|_| OutletClosedError)?;
        work.send(EncoderTask { piece, done }).map_err(|_| OutletClosedError)?;
        // The wait for a slot is not the volume's.
        since = Instant::now();
        Ok(())
    };
    let mut outlet = PieceOutlet::new(&mut sink, encoding.zeros_at_once());
    let last = match read(&mut outlet) {
        Ok(()) => PieceSlot::End,
        Err(error) => PieceSlot::Failed(error),
    };
    // A receiver that is gone wants nothing.
    slots.blocking_send(last).ok();
}

/// A thread that encodes, as long as the reader lives.
fn run_encoder(encoding: Encoding, work: &Mutex<threads::Receiver<EncoderTask>>, flow: &FlowState) {
    let mut encoder = encoding.new_encoder();
    loop {
        let next = work.lock().recv();
        let Ok(EncoderTask { piece, done }) = next else {
            return;
        };
        let length = piece.volume_bytes();
        let kind = match &piece {
            VolumePiece::Zeros(_) => PieceKind::Zeros,
            VolumePiece::Data(_) if flow.is_slow() => PieceKind::Squeezed,
            VolumePiece::Data(_) => PieceKind::Stored,
        };
        let blocks = encoder.encode_piece(piece, kind == PieceKind::Squeezed);
        flow.add_waiting();
        // The sender may be gone.
        done.send(EncodedPiece { blocks, length, kind }).ok();
    }
}
