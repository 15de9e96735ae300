//! From a source to the stream that is sent: one thread reads, several encode, and what they make comes out in order.
//!
//! ```text
//!            ┌─► encoder ─┐
//!  reader ───┤            ├─► slots, in order ──► outgoing
//!            └─► encoder ─┘
//! ```
//!
//! The reader puts a slot into a queue for every piece; the sender takes the slots in order and waits for what an encoder
//! puts into each. The queue is what bounds the memory: [`SLOTS`] pieces of a quarter of a MiB.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc as threads};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use daemon::metrics::Seconds;
use datapath::encode::{Block, Encoding, Piece, Seal};
use hyper::body::{Body, Frame};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::flow::{Flow, Pace};
use crate::source::{Gone, Outlet, Source, SourceError};

/// Pieces between the reader and the network: 8 MiB.
const SLOTS: usize = 32;

/// Encoded pieces that wait when the network is slower than everything else.
const CONGESTED: usize = SLOTS * 3 / 4;

/// Bytes sent so far, and the end.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Time for which the volume was read.
    reading: Seconds,
    /// Time for which the network took bytes.
    sending: Seconds,
    volume_bytes: AtomicU64,
    stream_bytes: AtomicU64,
    complete: AtomicBool,
    broken: AtomicBool,
    failure: Mutex<Option<SourceError>>,
}

impl Tally {
    /// One that adds to the time that the volume took to be read, and the network to take bytes.
    pub(crate) fn timed(reading: Seconds, sending: Seconds) -> Self {
        Self {
            reading,
            sending,
            ..Self::default()
        }
    }

    /// Bytes of the device or tar.
    pub(crate) fn volume_bytes(&self) -> u64 {
        self.volume_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the encoded stream.
    pub(crate) fn stream_bytes(&self) -> u64 {
        self.stream_bytes.load(Ordering::Relaxed)
    }

    /// True if all of the volume was read and handed over to be sent.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// True if the volume could not be read to its end.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// The reason why the volume could not be read; nothing after a panic.
    pub(crate) fn take_failure(&self) -> Option<SourceError> {
        self.failure.lock().take()
    }
}

/// The stream stops here, and is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the volume could not be read to its end")]
pub(crate) struct Broken;

/// A piece on its way.
enum Slot {
    Piece(oneshot::Receiver<Encoded>),
    End,
    Failed(SourceError),
}

struct Encoded {
    blocks: Vec<Block>,
    /// Bytes of the volume that they stand for.
    length: u64,
}

/// A piece for an encoder.
struct Work {
    piece: Piece,
    done: oneshot::Sender<Encoded>,
}

/// The encoded stream of a volume.
pub(crate) struct Outgoing {
    slots: mpsc::Receiver<Slot>,
    current: Option<oneshot::Receiver<Encoded>>,
    parts: VecDeque<Bytes>,
    seal: Seal,
    flow: Arc<Flow>,
    pace: Pace,
    is_ended: bool,
    /// Time at which the network got its last part.
    handed_over: Option<Instant>,
    tally: Arc<Tally>,
}

impl Outgoing {
    /// Begins to read `source`, and to encode it on `encoders` threads.
    pub(crate) fn start(
        source: Source,
        encoding: Encoding,
        encoders: NonZeroUsize,
        tally: Arc<Tally>,
    ) -> Self {
        let (slots, queue) = mpsc::channel(SLOTS);
        // Without a bound of its own: a piece gets here only when it has one of the slots.
        let (work, waiting_work) = threads::channel();
        let waiting_work = Arc::new(Mutex::new(waiting_work));
        let flow = Arc::new(Flow::new(CONGESTED));
        for _ in 0..encoders.get() {
            let (work, flow) = (Arc::clone(&waiting_work), Arc::clone(&flow));
            std::thread::spawn(move || encode(encoding, &work, &flow));
        }
        let reading = tally.reading.clone();
        std::thread::spawn(move || read(&source, encoding, &slots, &work, &reading));
        Self {
            slots: queue,
            current: None,
            parts: VecDeque::from([encoding.start()]),
            seal: encoding.seal(),
            flow,
            pace: Pace::start(),
            is_ended: false,
            handed_over: None,
            tally,
        }
    }

    /// The next bytes of the stream, never none; `None` at its end.
    pub(crate) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if let Some(since) = self.handed_over.take() {
            self.tally.sending.add(since.elapsed());
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
                        self.parts.push_back(self.seal.end());
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
        self.seal.pass(&encoded.blocks, encoded.length);
        self.tally
            .volume_bytes
            .fetch_add(encoded.length, Ordering::Relaxed);
        for block in encoded.blocks {
            self.parts.extend([block.head, block.body]);
        }
    }

    fn broken(&self, error: Option<SourceError>) -> Poll<Option<Result<Bytes, Broken>>> {
        *self.tally.failure.lock() = error;
        self.tally.broken.store(true, Ordering::Release);
        Poll::Ready(Some(Err(Broken)))
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.poll_part(context)
            .map(|part| part.map(|part| part.map(Frame::data)))
    }
}

/// The thread that reads. It ends when everything is read, or no longer wanted.
fn read(
    source: &Source,
    encoding: Encoding,
    slots: &mpsc::Sender<Slot>,
    work: &threads::Sender<Work>,
    reading: &Seconds,
) {
    let mut since = Instant::now();
    let mut sink = |piece| {
        reading.add(since.elapsed());
        let (done, encoded) = oneshot::channel();
        slots.blocking_send(Slot::Piece(encoded)).map_err(|_| Gone)?;
        work.send(Work { piece, done }).map_err(|_| Gone)?;
        // The wait for a slot is not the volume's.
        since = Instant::now();
        Ok(())
    };
    let mut outlet = Outlet::new(&mut sink, encoding.zeros_at_once());
    let last = match source.read(&mut outlet) {
        Ok(()) => Slot::End,
        Err(SourceError::Gone(_)) => return,
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
        let blocks = encoder.encode(piece, flow.is_slow());
        flow.arrive();
        // The sender may be gone.
        done.send(Encoded { blocks, length }).ok();
    }
}
