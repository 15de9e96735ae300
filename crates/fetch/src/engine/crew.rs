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
use std::time::Duration;

use parking_lot::Mutex;
use stream::bridge::BridgeSender;
use stream::error::{SourceError, SourceErrorKind};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::gauge::{ConnectionGauge, ReceivedCounts};
use super::growth::{ConnectionGrowth, DISTANT_LATENCY, ReceivedTotals, WINDOW};
use super::regions::ObjectPieces;
use super::segment::{QueuedSegment, SegmentAttempt};
use super::{ConnectionOutlet, MAX_SEGMENT_BYTES, RemoteObject, TO_THE_END};
use crate::error::stopped_error;

/// Limits of the bytes that the first connection still reads when others are added after them.
const MIN_DISTANCE_BYTES: u64 = 2 << 20;
const MAX_DISTANCE_BYTES: u64 = 64 << 20;

/// The point after which others read is a multiple of this, so that chunks stay aligned.
const ALIGNMENT: u64 = 1 << 20;

/// Least time that the rest of a segment takes before its second half is requested on its own.
const MIN_TIME_LEFT: Duration = Duration::from_millis(500);

/// The connections of a body.
pub(super) struct SegmentCrew<R: RemoteObject> {
    remote: Arc<R>,
    growth: Arc<Mutex<ConnectionGrowth>>,
    sender: BridgeSender,
    /// The bytes that no segment covers yet.
    pieces: ObjectPieces,
    end: u64,
    /// Segments that were not handed over yet, in order.
    queue: VecDeque<QueuedSegment>,
    /// Counts the bytes of the front segment while it is read here.
    here: Option<Arc<ConnectionGauge>>,
    counts: Arc<ReceivedCounts>,
    /// Notified when a request for a segment has ended.
    ended: Arc<Notify>,
    ticks: Interval,
    window_began: Instant,
    is_starved: bool,
    /// No request is sent before: one was refused a moment ago.
    refused_until: Instant,
}

impl<R: RemoteObject> SegmentCrew<R> {
    /// Creates the crew that reads `remote` from `position` to `end` and sends its bytes to
    /// `sender`.
    pub(super) fn new(
        remote: Arc<R>,
        wanted: Range<u64>,
        sender: BridgeSender,
        growth: Arc<Mutex<ConnectionGrowth>>,
    ) -> Self {
        let mut ticks = tokio::time::interval(WINDOW);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let now = Instant::now();
        Self {
            pieces: ObjectPieces::new(remote.data_regions(), wanted.clone(), MAX_SEGMENT_BYTES),
            end: wanted.end,
            queue: VecDeque::new(),
            here: None,
            counts: Arc::default(),
            ended: Arc::default(),
            ticks,
            window_began: now,
            is_starved: false,
            refused_until: now,
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
        let mut position = self.pieces.left().start;
        let outlet = self.prompt_outlet(None);
        let mut closed = pin!(outlet.wait_for_close());
        // The first measurement includes the slow start. Without it, the burst with which nginx
        // begins looks like the rate of one connection, and a second one seems to bring nothing.
        self.record_window(Instant::now());
        loop {
            self.attend();
            let start = self.queue.front().map_or(self.end, |segment| segment.range.start);
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
                None if attempt.failure().is_some() => {}
                None => {
                    attempt.pump.join_task().await?;
                    return Err(early_end_error());
                }
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
        let end = if planned == self.end { TO_THE_END } else { planned };
        let gauge = Arc::new(ConnectionGauge::new(&self.counts, position..end, false));
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

    fn pieces_from(&self, position: u64) -> ObjectPieces {
        ObjectPieces::new(self.remote.data_regions(), position..self.end, MAX_SEGMENT_BYTES)
    }

    fn prompt_outlet(&self, gauge: Option<Arc<ConnectionGauge>>) -> ConnectionOutlet {
        ConnectionOutlet { sender: self.sender.clone(), is_prompt: true, gauge }
    }

    /// Settles what has failed, measures, and gives every free connection a segment.
    fn attend(&mut self) {
        let now = Instant::now();
        self.settle_failures(now);
        // A tick may come a little early after one that came late.
        if now.saturating_duration_since(self.window_began) >= WINDOW * 9 / 10 {
            self.window_began = now;
            self.record_window(now);
        }
        let (count, distance) = {
            let growth = self.growth.lock();
            (growth.count(), growth.start_bytes())
        };
        let most = if count == 1 { u64::MAX } else { self.segment_bytes(count) };
        if self.queue.is_empty()
            && let Some(range) = self.pieces.next_data(most)
        {
            self.queue.push_back(QueuedSegment { range, attempt: None });
        }
        if count == 1 {
            self.give_back();
        } else if now >= self.refused_until {
            self.divide_first_segment(distance);
            self.assign_segments(count, most);
        }
        self.report_change();
    }

    /// Queues the rest of every segment whose request has failed.
    fn settle_failures(&mut self, now: Instant) {
        let mut index = 0;
        while let Some(segment) = self.queue.get_mut(index) {
            index += 1;
            let Some(attempt) = &mut segment.attempt else { continue };
            let Some(kind) = attempt.failure() else { continue };
            attempt.is_settled = true;
            let received = attempt.gauge.received();
            if received.is_empty() {
                segment.attempt = None;
                self.refused_until = now + WINDOW * 2;
                let working = self.working_connections();
                self.growth.lock().record_failure(kind, working, now);
            } else {
                // Bytes that arrived before are in the bridge. A break does not call for fewer
                // connections.
                let rest = received.end..segment.range.end;
                segment.range.end = received.end;
                self.queue.insert(index, QueuedSegment { range: rest, attempt: None });
            }
        }
    }

    fn record_window(&mut self, now: Instant) {
        let place = self.here.as_ref().map(|gauge| gauge.received().end);
        let place = place.unwrap_or(self.pieces.left().start);
        let mut growth = self.growth.lock();
        growth.record_totals(&ReceivedTotals {
            now,
            bytes: self.counts.bytes(),
            blocked: self.sender.full_time(),
            started: self.counts.started(),
            latency: self.counts.latency(),
            left: self.end.saturating_sub(place),
            is_starved: std::mem::take(&mut self.is_starved),
        });
        // The first connection must not stop for others that have brought nothing.
        if let Some(gauge) = &self.here
            && self.queue.get(1).is_some_and(QueuedSegment::is_silent)
            && gauge.received().end + growth.bytes_in(WINDOW * 2) >= gauge.limit()
        {
            growth.abandon_trial(now);
        }
    }

    /// Number of connections that are reading.
    fn working_connections(&self) -> usize {
        let reading = self.queue.iter().filter(|segment| segment.is_being_read());
        reading.count() + usize::from(self.here.is_some())
    }

    /// Returns to one connection. Segments that have begun to arrive are kept.
    fn give_back(&mut self) {
        for segment in self.queue.iter_mut().filter(|segment| segment.is_silent()) {
            segment.attempt = None;
        }
        while self.queue.len() > 1 && self.queue.back().is_some_and(QueuedSegment::is_silent) {
            self.queue.pop_back();
        }
        if let Some(gauge) = &self.here
            && let [front] = self.queue.make_contiguous()
        {
            front.range.end = gauge.move_limit(TO_THE_END).min(self.end);
        }
        let end = self.queue.back().map_or(self.end, |segment| segment.range.end);
        self.pieces = self.pieces_from(end);
    }

    /// Ends the segment that is read here after another `distance` bytes, so that others can read
    /// what follows.
    fn divide_first_segment(&mut self, distance: u64) {
        if let Some(gauge) = &self.here
            && let [front] = self.queue.make_contiguous()
        {
            let distance = distance.clamp(MIN_DISTANCE_BYTES, MAX_DISTANCE_BYTES);
            let limit = gauge.received().end.saturating_add(distance).next_multiple_of(ALIGNMENT);
            let end = gauge.move_limit(limit.min(self.end));
            front.range.end = end;
            self.pieces = self.pieces_from(end);
        }
    }

    /// Returns the length of the segments that each of `count` connections reads.
    fn segment_bytes(&self, count: usize) -> u64 {
        // With two segments for each connection, one that has finished need not wait for the first
        // in order. A distant server takes a round trip for each, which is worse.
        let segments = if self.counts.latency() < DISTANT_LATENCY { count * 2 } else { count };
        let share = R::AHEAD_BYTES / u64::try_from(segments).unwrap_or(u64::MAX);
        share.clamp(1, MAX_SEGMENT_BYTES)
    }

    fn assign_segments(&mut self, count: usize, most: u64) {
        let mut free = count.saturating_sub(self.working_connections());
        let mut ahead = 0;
        let behind = usize::from(self.here.is_some());
        for segment in self.queue.iter_mut().skip(behind) {
            ahead += segment.range.end - segment.range.start;
            if segment.attempt.is_none() && free > 0 {
                free -= 1;
                let range = &segment.range;
                let attempt = SegmentAttempt::start(&self.remote, range, &self.counts, &self.ended);
                segment.attempt = Some(attempt);
            }
        }
        while free > 0 {
            if ahead + most > R::AHEAD_BYTES {
                self.is_starved = true;
                return self.share_slow_segments(free);
            }
            let Some(range) = self.pieces.next_data(most) else { return };
            free -= 1;
            ahead += range.end - range.start;
            let attempt = SegmentAttempt::start(&self.remote, &range, &self.counts, &self.ended);
            self.queue.push_back(QueuedSegment { range, attempt: Some(attempt) });
        }
    }

    /// Lets up to `free` connections read the second halves of segments that arrive slowly: there
    /// is no memory for segments behind them.
    fn share_slow_segments(&mut self, mut free: usize) {
        let min_left = MIN_TIME_LEFT.max(self.counts.latency() * 4);
        let mut index = 0;
        while let Some(segment) = self.queue.get_mut(index).filter(|_| free > 0) {
            index += 1;
            let Some(range) = segment.split_off(min_left) else { continue };
            let attempt = SegmentAttempt::start(&self.remote, &range, &self.counts, &self.ended);
            self.queue.insert(index, QueuedSegment { range, attempt: Some(attempt) });
            (index, free) = (index + 1, free - 1);
        }
    }

    fn report_change(&self) {
        let mut growth = self.growth.lock();
        if let Some(reason) = growth.take_news() {
            let count = growth.count();
            tracing::info!("reading over {count} connections: {reason}");
            self.remote.network().observer.record_connections(count, &reason);
        }
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
