//! Turns the data that is read into the stream that is sent. One thread reads, several threads
//! encode, and the encoded pieces are returned in order.
//!
//! ```text
//!            ┌─► encoder ─┐
//!  reader ───┤            ├─► slots, in order ──► outgoing
//!            └─► encoder ─┘
//! ```
//!
//! The reader puts a slot into a queue for every piece. The sender takes the slots in order and
//! waits until an encoder has filled each one. The queue bounds the memory: it holds `SLOTS`
//! pieces of a quarter of a MiB.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc as threads};
use std::task::{Context, Poll, ready};
use std::thread::Builder;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use stream::bridge::block_on;
use stream::error::ThreadStartError;
use stream::observe::{ByteCount, LimitingPart, NoObserver, Observer, Stage};
use tokio::sync::{mpsc, oneshot};

use super::flow::{FlowState, SendRateMeter};
use super::outlet::{OutletClosedError, PieceOutlet};
use super::piece::EncodedPiece;
pub use super::piece::PieceKind;
use super::{Encoding, VolumePiece};

/// Limit on the pieces between the reader and the network. Together they take 8 MiB.
const SLOTS: usize = 32;

/// If this many encoded pieces wait, the network is slower than reading and encoding.
const CONGESTED: usize = SLOTS * 3 / 4;

/// Statistics and outcome of a stream. `E` is the error type of the reader.
pub struct SendStats<E> {
    observer: Arc<dyn Observer>,
    volume_bytes: AtomicU64,
    stream_bytes: AtomicU64,
    /// Bytes of the volume that were zero and were sent as a length instead of as data.
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
    /// Creates statistics that report to `observer`: the bytes, the time spent reading the volume
    /// (the source), the time the network took (the target), and the time limited by each of them
    /// and by the encoders (the decoder).
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

    /// Returns the bytes of the device, tar or image that were sent.
    pub fn volume_bytes(&self) -> u64 {
        self.volume_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the encoded stream that were sent.
    pub fn stream_bytes(&self) -> u64 {
        self.stream_bytes.load(Ordering::Relaxed)
    }

    /// Adds `more` to `total` and reports the new total to the observer.
    fn add_bytes(&self, count: ByteCount, total: &AtomicU64, more: u64) {
        let before = total.fetch_add(more, Ordering::Relaxed);
        self.observer.record_bytes(count, before.saturating_add(more));
    }

    /// Returns true if everything was read and handed over to be sent.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Returns true if the data could not be read to its end.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Takes the error of the reader. `None` if reading did not fail, or if a thread panicked.
    pub fn take_failure(&self) -> Option<E> {
        self.failure.lock().take()
    }
}

/// A piece of the stream, reported when it is about to be returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassedPiece {
    /// Offset of the first byte of the piece in the encoded stream.
    pub stream_offset: u64,
    /// Offset of the first byte of the piece in the data that is read.
    pub offset: u64,
    /// Number of bytes in the data that is read.
    pub length: u64,
    /// The way the piece is encoded. Encoding the same piece in the same way gives the same bytes
    /// again.
    pub kind: PieceKind,
}

/// A callback that is called for each piece before its first byte is returned.
pub type Log = Box<dyn FnMut(PassedPiece) + Send>;

/// The error of a stream that ends before it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the data to send could not be read completely")]
pub struct IncompleteStreamError;

/// An entry of the queue: a piece that is being encoded, or the end of the stream.
enum PieceSlot<E> {
    Piece(oneshot::Receiver<EncodedPiece>),
    End,
    Failed(E),
}

/// A piece to be encoded, and the channel for the result.
struct EncoderTask {
    piece: VolumePiece,
    done: oneshot::Sender<EncodedPiece>,
}

/// The encoded stream of the data that is read.
pub struct EncodedStream<E> {
    slots: mpsc::Receiver<PieceSlot<E>>,
    current: Option<oneshot::Receiver<EncodedPiece>>,
    parts: VecDeque<Bytes>,
    flow: Arc<FlowState>,
    pace: SendRateMeter,
    /// The part that the stream waits for, and the time of the poll since which it does.
    waiting: Option<(LimitingPart, Instant)>,
    tally: Arc<SendStats<E>>,
    log: Option<Log>,
    /// Stream offset and data offset of the next piece.
    next: (u64, u64),
}

impl<E: Send + 'static> EncodedStream<E> {
    /// Starts a thread that runs `read`, and `encoders` threads that encode its data. There are
    /// fewer encoders if the system cannot start as many threads.
    pub fn start(
        read: impl FnOnce(&mut PieceOutlet<'_>) -> Result<(), E> + Send + 'static,
        encoding: Encoding,
        encoders: NonZeroUsize,
        tally: Arc<SendStats<E>>,
    ) -> Result<Self, ThreadStartError> {
        let (slots, queue) = mpsc::channel(SLOTS);
        // This channel needs no limit of its own, because every piece in it already occupies one
        // of the slots.
        let (work, waiting_work) = threads::channel();
        let waiting_work = Arc::new(Mutex::new(waiting_work));
        let flow = Arc::new(FlowState::new(CONGESTED));
        let timed = Arc::clone(&tally);
        // The reader is started first, because encoders are useful only if there is something to
        // encode.
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
            waiting: None,
            tally,
            log: None,
            next: (0, 0),
        })
    }

    /// Reports each piece to `log`. The first piece is at `stream_offset` of the stream and at
    /// `offset` of the data that is read.
    pub fn with_log(self, stream_offset: u64, offset: u64, log: Log) -> Self {
        Self { log: Some(log), next: (stream_offset, offset), ..self }
    }

    /// Returns the next bytes of the stream, never an empty part, or `None` at its end.
    pub fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, IncompleteStreamError>>> {
        self.poll_timed(context, Self::poll_encoded)
    }

    /// Waits for the next piece, on a thread that may block, and returns it as a whole, or `None`
    /// at the end. For encodings whose pieces are not simply joined; must not be mixed with
    /// [`EncodedStream::poll_part`].
    pub fn wait_for_piece(&mut self) -> Option<Result<EncodedPiece, IncompleteStreamError>> {
        block_on(poll_fn(|context| self.poll_timed(context, Self::poll_next_piece)))
    }

    /// Polls with `poll`, and records what the stream waited for since the last call.
    fn poll_timed<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Self, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if let Some((part, since)) = self.waiting.take() {
            let waited = since.elapsed();
            self.tally.observer.record_limit(part, waited);
            if part == LimitingPart::Target {
                self.tally.observer.record_time(Stage::Target, waited);
            }
        }
        let polled = poll(self, context);
        let awaited = match (&polled, &self.current) {
            // The consumer sends the part before it polls again.
            (Poll::Ready(_), _) => LimitingPart::Target,
            (Poll::Pending, Some(_)) => LimitingPart::Decoder,
            (Poll::Pending, None) => LimitingPart::Source,
        };
        self.waiting = Some((awaited, Instant::now()));
        polled
    }

    fn poll_encoded(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, IncompleteStreamError>>> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                if part.is_empty() {
                    continue;
                }
                let bytes = part.len() as u64;
                self.tally.add_bytes(ByteCount::Target, &self.tally.stream_bytes, bytes);
                self.pace.add_bytes(bytes, &self.flow);
                return Poll::Ready(Some(Ok(part)));
            }
            match ready!(self.poll_next_piece(context)) {
                Some(Ok(piece)) => self.parts.extend(piece.parts),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }

    fn poll_next_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<EncodedPiece, IncompleteStreamError>>> {
        loop {
            if self.tally.is_complete() {
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
                        self.tally.complete.store(true, Ordering::Release);
                        continue;
                    }
                    Some(PieceSlot::Failed(error)) => return self.fail_stream(Some(error)),
                    // The reader panicked.
                    None => return self.fail_stream(None),
                },
            };
            self.current = None;
            match encoded {
                Ok(piece) => {
                    self.count_piece(&piece);
                    return Poll::Ready(Some(Ok(piece)));
                }
                // An encoder panicked.
                Err(_) => return self.fail_stream(None),
            }
        }
    }

    /// Logs and counts an encoded piece that is about to be returned.
    fn count_piece(&mut self, encoded: &EncodedPiece) {
        self.flow.remove_waiting();
        let (stream_offset, offset) = self.next;
        if let Some(log) = &mut self.log {
            log(PassedPiece { stream_offset, offset, length: encoded.length, kind: encoded.kind });
        }
        let bytes = encoded.parts.iter().map(Bytes::len).sum::<usize>() as u64;
        self.next = (stream_offset + bytes, offset + encoded.length);
        let tally = &self.tally;
        tally.add_bytes(ByteCount::Source, &tally.volume_bytes, encoded.length);
        if encoded.kind == PieceKind::Zeros {
            tally.add_bytes(ByteCount::Skipped, &tally.zero_bytes, encoded.length);
        }
    }

    fn fail_stream<T>(&self, error: Option<E>) -> Poll<Option<Result<T, IncompleteStreamError>>> {
        *self.tally.failure.lock() = error;
        // Set the flag after the failure is stored, so that whoever sees the flag finds the
        // failure.
        self.tally.broken.store(true, Ordering::Release);
        Poll::Ready(Some(Err(IncompleteStreamError)))
    }
}

/// The main function of the reading thread. It ends when all data is read, or when the stream was
/// dropped.
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
        // Queue the slot first: slots keep the order of the stream and limit the pieces in memory.
        slots.blocking_send(PieceSlot::Piece(encoded)).map_err(|_| OutletClosedError)?;
        work.send(EncoderTask { piece, done }).map_err(|_| OutletClosedError)?;
        // The time spent waiting for a slot is not counted as reading time.
        since = Instant::now();
        Ok(())
    };
    let mut outlet = PieceOutlet::for_encoding(&mut sink, encoding);
    let last = match read(&mut outlet) {
        Ok(()) => PieceSlot::End,
        Err(error) => PieceSlot::Failed(error),
    };
    // If the receiver is gone, it does not need the last slot.
    slots.blocking_send(last).ok();
}

/// The main function of an encoding thread. It ends when the reader ends.
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
            VolumePiece::Data(_) if encoder.always_compresses() || flow.is_slow() => {
                PieceKind::Squeezed
            }
            VolumePiece::Data(_) => PieceKind::Stored,
        };
        let parts = encoder.encode_piece(piece, kind == PieceKind::Squeezed);
        flow.add_waiting();
        // An error only means that the sender is gone.
        done.send(EncodedPiece { parts, length, kind }).ok();
    }
}
