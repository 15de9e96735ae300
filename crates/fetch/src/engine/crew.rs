//! Reads over as many connections as make the transfer faster.
//!
//! ```text
//!  first connection:  read_ranges ───────────────► bridge ─► RemoteBody
//!  others:            read_ranges ─► bridge ─┐
//!                     read_ranges ─► bridge ─┴─ in order ─► bridge ─► RemoteBody
//! ```
//!
//! All bytes that are requested lie in a queue of segments. While there is one connection, the
//! queue has one segment, which extends to the end. When others are added, they read segments
//! after a point that the first connection has still to reach: if they bring nothing, it continues
//! as if they had never been there. From that point on, every connection reads segments.
//!
//! A segment at the front that no other connection reads is read here, with retries. So the
//! failure of another connection never ends the transfer. Bytes that have arrived are not read
//! again.

use std::collections::VecDeque;
use std::iter;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stream::bridge::BridgeSender;
use stream::error::{SourceError, SourceErrorKind};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::growth::{ConnectionGrowth, ReceivedTotals};
use super::regions::ObjectPieces;
use super::segment::{ConnectionGauge, QueuedSegment};
use super::{ConnectionOutlet, MAX_SEGMENT_BYTES, RemoteObject, TO_THE_END};
use crate::error::stopped_error;

/// Time between two looks at what has arrived.
const TICK: Duration = Duration::from_millis(100);

/// Least number of bytes that the first connection still reads when others are added after them.
const MIN_DISTANCE_BYTES: u64 = 2 << 20;

/// The connections of a body.
pub(super) struct SegmentCrew<R: RemoteObject> {
    remote: Arc<R>,
    growth: Arc<Mutex<ConnectionGrowth>>,
    sender: BridgeSender,
    /// The bytes that no segment covers yet.
    pieces: ObjectPieces,
    /// Segments that were not handed over yet, in order.
    queue: VecDeque<QueuedSegment>,
    /// Counts the bytes of the front segment while it is read here.
    here: Option<Arc<ConnectionGauge>>,
    /// Number of bytes that have arrived on all connections.
    total: Arc<AtomicU64>,
    /// Notified when a request for a segment has ended.
    ended: Arc<Notify>,
    ticks: Interval,
}

impl<R: RemoteObject> SegmentCrew<R> {
    /// Creates the crew that reads the bytes `wanted` of `remote` and sends them to `sender`.
    pub(super) fn new(
        remote: Arc<R>,
        wanted: Range<u64>,
        sender: BridgeSender,
        growth: Arc<Mutex<ConnectionGrowth>>,
    ) -> Self {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            pieces: ObjectPieces::new(remote.data_regions(), wanted, MAX_SEGMENT_BYTES),
            queue: VecDeque::new(),
            here: None,
            total: Arc::default(),
            ended: Arc::default(),
            ticks,
            remote,
            growth,
            sender,
        }
    }

    /// Reads everything. `first` is a connection that is already open at the beginning of the
    /// object.
    pub(super) async fn read_all(
        mut self,
        mut first: Option<R::Connection>,
    ) -> Result<(), SourceError> {
        let Range { start: mut position, end } = self.pieces.left();
        let outlet = self.prompt_outlet(None);
        let mut closed = pin!(outlet.wait_for_close());
        loop {
            self.attend();
            let start = self.queue.front().map_or(end, |segment| segment.range.start);
            outlet.send_zeros(start.saturating_sub(position)).await?;
            position = position.max(start);
            let Some(segment) = self.queue.front_mut() else {
                return Ok(());
            };
            if segment.range.is_empty() {
                self.queue.pop_front();
                continue;
            }
            let Some(attempt) = &mut segment.attempt else {
                position = self.read_here(position, first.take()).await?;
                continue;
            };
            let next = tokio::select! {
                biased;
                next = attempt.pump.chunks.recv_held() => next,
                () = closed.as_mut() => return Err(stopped_error()),
                () = next_event(&self.ended, &mut self.ticks) => continue,
            };
            match next {
                Some(chunk) => {
                    let length = chunk.bytes.len() as u64;
                    segment.range.start += length;
                    position += length;
                    outlet.send_chunk(chunk.bytes, chunk.held).await?;
                }
                None if segment.failure().is_some() => {}
                None => return Err(early_end_error()),
            }
        }
    }

    /// Reads the front segment, which begins at `position`. Returns the position after it.
    async fn read_here(
        &mut self,
        position: u64,
        first: Option<R::Connection>,
    ) -> Result<u64, SourceError> {
        let planned = self.queue.front().map_or(position, |segment| segment.range.end);
        // A range to the end is left open, as a whole body is: it is not the request of a part.
        let end = if planned == self.pieces.left().end { TO_THE_END } else { planned };
        let gauge = Arc::new(ConnectionGauge::new(&self.total, position..end, false));
        self.here = Some(Arc::clone(&gauge));
        let remote = Arc::clone(&self.remote);
        let outlet = self.prompt_outlet(Some(Arc::clone(&gauge)));
        {
            let mut reading = pin!(remote.read_ranges(iter::once(position..end), first, outlet));
            loop {
                tokio::select! {
                    biased;
                    outcome = reading.as_mut() => break outcome?,
                    () = next_event(&self.ended, &mut self.ticks) => self.attend(),
                }
            }
        }
        self.here = None;
        let reached = gauge.received().end.min(planned);
        if reached == position {
            return Err(early_end_error());
        }
        if let Some(segment) = self.queue.front_mut() {
            segment.range.start = reached;
        }
        Ok(reached)
    }

    fn prompt_outlet(&self, gauge: Option<Arc<ConnectionGauge>>) -> ConnectionOutlet {
        ConnectionOutlet { sender: self.sender.clone(), is_prompt: true, gauge }
    }

    /// Settles what has failed, measures, and gives every free connection a segment.
    fn attend(&mut self) {
        let now = Instant::now();
        self.settle_failures(now);
        let (count, distance) = self.measure(now);
        // With two segments for each connection, one that has finished need not wait for the first
        // in order.
        let share = R::AHEAD_BYTES / u64::try_from(count * 2).unwrap_or(u64::MAX);
        let most = if count == 1 { u64::MAX } else { share.clamp(1, MAX_SEGMENT_BYTES) };
        if self.queue.is_empty() {
            self.queue.extend(self.pieces.next_data(most).map(QueuedSegment::new));
        }
        if count == 1 {
            self.give_back();
        }
        // Nobody has begun to read what follows the first segment: its end can move.
        if let (Some(gauge), [first]) = (&self.here, self.queue.make_contiguous()) {
            first.range.end = gauge.move_limit(distance).min(self.pieces.left().end);
            self.pieces.continue_at(first.range.end);
        }
        while count > 1 && self.working_count() < count && self.request_next(most).is_some() {}
    }

    /// Queues the rest of every segment whose request has failed.
    fn settle_failures(&mut self, now: Instant) {
        let mut index = 0;
        while let Some(segment) = self.queue.get_mut(index) {
            index += 1;
            let Some((kind, reached)) = segment.failure() else { continue };
            if segment.is_silent() {
                segment.attempt = None;
                let working = self.working_count();
                self.growth.lock().record_failure(kind, working, now);
            } else {
                // Bytes that arrived before are in the bridge. A break does not call for fewer
                // connections.
                let rest = reached..segment.range.end;
                segment.range.end = reached;
                self.queue.insert(index, QueuedSegment::new(rest));
            }
        }
    }

    /// Returns how many connections are to be open now, and how many bytes the first one still
    /// reads while others begin.
    fn measure(&self, now: Instant) -> (usize, u64) {
        let mut growth = self.growth.lock();
        let here = self.here.as_ref().map(|gauge| (gauge.received().end, gauge.limit()));
        let Range { start, end } = self.pieces.left();
        growth.record_totals(&ReceivedTotals {
            now,
            bytes: self.total.load(Ordering::Relaxed),
            blocked: self.sender.full_time(),
            left: end.saturating_sub(here.map_or(start, |(position, _)| position)),
        });
        // The first connection must not stop for others that have brought nothing.
        if let Some((position, limit)) = here
            && self.queue.get(1).is_some_and(QueuedSegment::is_silent)
            && position + growth.bytes_in(TICK * 2) >= limit
        {
            growth.abandon_step(now);
        }
        match growth.count {
            1 => (1, TO_THE_END),
            count => (count, growth.bytes_in(growth.step_time() / 2).max(MIN_DISTANCE_BYTES)),
        }
    }

    /// Number of connections that are reading.
    fn working_count(&self) -> usize {
        let reading = self.queue.iter().filter(|segment| segment.is_being_read());
        reading.count() + usize::from(self.here.is_some())
    }

    /// Gives up all segments but the first of which no byte has arrived.
    fn give_back(&mut self) {
        for segment in self.queue.iter_mut().filter(|segment| segment.is_silent()) {
            segment.attempt = None;
        }
        let last = self.queue.iter().rposition(|segment| !segment.is_silent());
        self.queue.truncate(last.unwrap_or(0) + 1);
        if let Some(last) = self.queue.back() {
            self.pieces.continue_at(last.range.end);
        }
    }

    /// Lets another connection read a segment that nobody reads yet, or one behind all others. If
    /// there is no memory for that, it takes the second half of one that arrives slowly.
    fn request_next(&mut self, most: u64) -> Option<()> {
        let others = self.queue.iter().enumerate().skip(usize::from(self.here.is_some()));
        let ahead: u64 = others.clone().map(|(_, other)| other.range.end - other.range.start).sum();
        let index = match others.clone().find(|(_, other)| other.attempt.is_none()) {
            Some((index, _)) => index,
            None => {
                let fits = ahead + most <= R::AHEAD_BYTES;
                let (index, range) = match fits.then(|| self.pieces.next_data(most)).flatten() {
                    Some(range) => (self.queue.len(), range),
                    None => self.queue.iter_mut().enumerate().find_map(|(index, slow)| {
                        slow.split_off(most / 2).map(|half| (index + 1, half))
                    })?,
                };
                self.queue.insert(index, QueuedSegment::new(range));
                index
            }
        };
        self.queue.get_mut(index)?.start(&self.remote, &self.total, &self.ended);
        Some(())
    }
}

async fn next_event(ended: &Notify, ticks: &mut Interval) {
    tokio::select! {
        () = ended.notified() => {}
        _ = ticks.tick() => {}
    }
}

pub(super) fn early_end_error() -> SourceError {
    let message = "a connection to the source ended too early";
    SourceError::new(SourceErrorKind::Io, message)
}
