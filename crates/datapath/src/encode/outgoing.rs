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
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::flow::{Flow, Pace};
use super::outlet::{Gone, Outlet};
use super::{Block, Encoding, Piece};
use crate::error::NoThread;

/// Pieces between the reader and the network: 8 MiB.
const SLOTS: usize = 32;

/// Encoded pieces that wait when the network is slower than everything else.
const CONGESTED: usize = SLOTS * 3 / 4;

/// Told of time that has passed.
type Clock = Box<dyn Fn(Duration) + Send + Sync>;

/// Bytes sent so far, and the end; with the error `E` of what is read.
pub struct Tally<E> {
    /// Time for which the volume was read.
    reading: Clock,
    /// Time for which the network took bytes.
    sending: Clock,
    volume_bytes: AtomicU64,
    stream_bytes: AtomicU64,
    complete: AtomicBool,
    broken: AtomicBool,
    failure: Mutex<Option<E>>,
}

impl<E> Default for Tally<E> {
    fn default() -> Self {
        Self::timed(|_| (), |_| ())
    }
}

impl<E> Tally<E> {
    /// One that tells for how long the volume was read, and for how long the network took bytes.
    pub fn timed(
        reading: impl Fn(Duration) + Send + Sync + 'static,
        sending: impl Fn(Duration) + Send + Sync + 'static,
    ) -> Self {
        Self {
            reading: Box::new(reading),
            sending: Box::new(sending),
            volume_bytes: AtomicU64::new(0),
            stream_bytes: AtomicU64::new(0),
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
pub enum Kind {
    /// Zeros, which are counted.
    Zeros,
    /// Data as it is.
    Stored,
    /// Data that is compressed where that saves something.
    Squeezed,
}

/// A piece that comes next in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Offset of its first byte in the encoded stream.
    pub stream_offset: u64,
    /// Offset of its first byte in what is read.
    pub offset: u64,
    /// Bytes that were read.
    pub length: u64,
    /// How it is encoded: the same piece in the same way is the same bytes again.
    pub kind: Kind,
}

/// Hears of each piece before its first byte comes.
pub type Log = Box<dyn FnMut(Passed) + Send>;

/// The stream stops here, and is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what is sent could not be read to its end")]
pub struct Broken;

/// A piece on its way.
enum Slot<E> {
    Piece(oneshot::Receiver<Encoded>),
    End,
    Failed(E),
}

struct Encoded {
    blocks: Vec<Block>,
    /// Bytes that they stand for.
    length: u64,
    kind: Kind,
}

/// A piece for an encoder.
struct Work {
    piece: Piece,
    done: oneshot::Sender<Encoded>,
}

/// The encoded stream of what is read.
pub struct Outgoing<E> {
    slots: mpsc::Receiver<Slot<E>>,
    current: Option<oneshot::Receiver<Encoded>>,
    parts: VecDeque<Bytes>,
    flow: Arc<Flow>,
    pace: Pace,
    is_ended: bool,
    /// Time at which the network got its last part.
    handed_over: Option<Instant>,
    tally: Arc<Tally<E>>,
    log: Option<Log>,
    /// The next piece, as far as it is known.
    next: (u64, u64),
}

impl<E: Send + 'static> Outgoing<E> {
    /// Begins to `read`, and to encode it on `encoders` threads, or on fewer if the system gives
    /// no more.
    pub fn start(
        read: impl FnOnce(&mut Outlet<'_>) -> Result<(), E> + Send + 'static,
        encoding: Encoding,
        encoders: NonZeroUsize,
        tally: Arc<Tally<E>>,
    ) -> Result<Self, NoThread> {
        let (slots, queue) = mpsc::channel(SLOTS);
        // Without a bound of its own: a piece gets here only when it has one of the slots.
        let (work, waiting_work) = threads::channel();
        let waiting_work = Arc::new(Mutex::new(waiting_work));
        let flow = Arc::new(Flow::new(CONGESTED));
        let timed = Arc::clone(&tally);
        // The first one: what comes behind it is of use only if there is something to encode.
        Builder::new().spawn(move || read_all(read, encoding, &slots, &work, &timed))?;
        for number in 0..encoders.get() {
            let (work, flow) = (Arc::clone(&waiting_work), Arc::clone(&flow));
            match Builder::new().spawn(move || encode(encoding, &work, &flow)) {
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
            parts: VecDeque::from([encoding.start()]),
            flow,
            pace: Pace::start(),
            is_ended: false,
            handed_over: None,
            tally,
            log: None,
            next: (0, 0),
        })
    }

    /// Tells `log` of each piece. The first one is at `stream_offset` of the stream, and at `offset` of what is read.
    pub fn logged(self, stream_offset: u64, offset: u64, log: Log) -> Self {
        Self {
            log: Some(log),
            next: (stream_offset, offset),
            ..self
        }
    }

    /// The next bytes of the stream, never none; `None` at its end.
    pub fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if let Some(since) = self.handed_over.take() {
            (self.tally.sending)(since.elapsed());
        }
        loop {
            if let Some(part) = self.parts.pop_front() {
                if part.is_empty() {
                    continue;
                }
                let bytes = part.len() as u64;
                self.tally.stream_bytes.fetch_add(bytes, Ordering::Relaxed);
                self.pace.add(bytes, &self.flow);
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
                    Some(Slot::Piece(piece)) => {
                        self.current = Some(piece);
                        continue;
                    }
                    Some(Slot::End) => {
                        self.is_ended = true;
                        continue;
                    }
                    Some(Slot::Failed(error)) => return self.broken(Some(error)),
                    // The reader panicked.
                    None => return self.broken(None),
                },
            };
            self.current = None;
            match encoded {
                Ok(encoded) => self.take(encoded),
                // An encoder panicked.
                Err(_) => return self.broken(None),
            }
        }
    }

    fn take(&mut self, encoded: Encoded) {
        self.flow.leave();
        let (stream_offset, offset) = self.next;
        if let Some(log) = &mut self.log {
            log(Passed {
                stream_offset,
                offset,
                length: encoded.length,
                kind: encoded.kind,
            });
        }
        let bytes = encoded.blocks.iter().map(Block::length).sum::<u64>();
        self.next = (stream_offset + bytes, offset + encoded.length);
        self.tally
            .volume_bytes
            .fetch_add(encoded.length, Ordering::Relaxed);
        for block in encoded.blocks {
            self.parts.extend([block.head, block.body]);
        }
    }

    fn broken(&self, error: Option<E>) -> Poll<Option<Result<Bytes, Broken>>> {
        *self.tally.failure.lock() = error;
        self.tally.broken.store(true, Ordering::Release);
        Poll::Ready(Some(Err(Broken)))
    }
}

/// The thread that reads. It ends when everything is read, or no longer wanted.
fn read_all<E>(
    read: impl FnOnce(&mut Outlet<'_>) -> Result<(), E>,
    encoding: Encoding,
    slots: &mpsc::Sender<Slot<E>>,
    work: &threads::Sender<Work>,
    tally: &Tally<E>,
) {
    let mut since = Instant::now();
    let mut sink = |piece| {
        (tally.reading)(since.elapsed());
        let (done, encoded) = oneshot::channel();
        slots.blocking_send(Slot::Piece(encoded)).map_err(|_| Gone)?;
        work.send(Work { piece, done }).map_err(|_| Gone)?;
        // The wait for a slot is not the volume's.
        since = Instant::now();
        Ok(())
    };
    let mut outlet = Outlet::new(&mut sink, encoding.zeros_at_once());
    let last = match read(&mut outlet) {
        Ok(()) => Slot::End,
        Err(error) => Slot::Failed(error),
    };
    // A receiver that is gone wants nothing.
    slots.blocking_send(last).ok();
}

/// A thread that encodes, as long as the reader lives.
fn encode(encoding: Encoding, work: &Mutex<threads::Receiver<Work>>, flow: &Flow) {
    let mut encoder = encoding.encoder();
    loop {
        let next = work.lock().recv();
        let Ok(Work { piece, done }) = next else {
            return;
        };
        let length = piece.length();
        let kind = match &piece {
            Piece::Zeros(_) => Kind::Zeros,
            Piece::Data(_) if flow.is_slow() => Kind::Squeezed,
            Piece::Data(_) => Kind::Stored,
        };
        let blocks = encoder.encode(piece, kind == Kind::Squeezed);
        flow.arrive();
        // The sender may be gone.
        done.send(Encoded { blocks, length, kind }).ok();
    }
}
