//! Reads over as many connections as make the transfer faster.
//!
//! ```text
//!  one:      read_ranges ─► bridge ─► RemoteBody        (an open range; limited if there are more)
//!  others:   read_ranges ─► bridge ─┐
//!            read_ranges ─► bridge ─┴─ in order ─► bridge ─► RemoteBody
//! ```
//!
//! The first connection reads an open range. When others are added, they read segments after a
//! point that the first one has still to reach: if they bring nothing, it continues as if they had
//! never been there. From that point on, every connection reads segments, each of which is claimed
//! when a connection is free. Bytes that an additional connection fails to bring are read again, so
//! its failure never ends the transfer.

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
use super::growth::{ConnectionGrowth, DISTANT_LATENCY, RateWindow, WINDOW};
use super::regions::{ObjectPiece, ObjectPieces};
use super::segment::{QueuedPiece, QueuedSegment, SegmentAttempt};
use super::{ConnectionOutlet, MAX_SEGMENT_BYTES, RemoteObject, TO_THE_END};
use crate::error::stopped_error;

/// Limits of the bytes that the first connection still reads when others are added after them.
const MIN_DISTANCE_BYTES: u64 = 2 << 20;
const MAX_DISTANCE_BYTES: u64 = 64 << 20;

/// The point after which others read is a multiple of this, so that chunks stay aligned.
const ALIGNMENT: u64 = 1 << 20;

/// Least time that the rest of a segment takes before its second half is requested on its own.
const MIN_TIME_LEFT: Duration = Duration::from_millis(500);

/// The time and the counts at the end of a window.
struct WindowStart {
    at: Instant,
    received: u64,
    blocked: Duration,
}

/// The connections of a body.
pub(super) struct SegmentCrew<R: RemoteObject> {
    remote: Arc<R>,
    growth: Arc<Mutex<ConnectionGrowth>>,
    sender: BridgeSender,
    /// The bytes that no request covers yet.
    pieces: ObjectPieces,
    end: u64,
    /// Pieces that follow the bytes that the first connection reads, in order.
    queue: VecDeque<QueuedPiece>,
    /// The first connection and the end of its range, while it reads an open range.
    alone: Option<(Arc<ConnectionGauge>, u64)>,
    counts: Arc<ReceivedCounts>,
    /// Notified when a request for a segment has ended.
    ended: Arc<Notify>,
    ticks: Interval,
    window: WindowStart,
    is_starved: bool,
    /// No request is sent before: one was refused a moment ago.
    refused_until: Instant,
    told: (usize, String),
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
        growth.lock().begin_again();
        Self {
            pieces: ObjectPieces::new(remote.data_regions(), wanted.clone(), MAX_SEGMENT_BYTES),
            end: wanted.end,
            queue: VecDeque::new(),
            alone: None,
            counts: Arc::default(),
            ended: Arc::default(),
            ticks,
            window: WindowStart { at: Instant::now(), received: 0, blocked: sender.full_time() },
            is_starved: false,
            refused_until: Instant::now(),
            told: (0, String::new()),
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
        while position < self.end {
            if self.growth.lock().count() == 1 {
                position = self.read_alone(position, first.take()).await?;
            }
            position = self.read_together(position).await?;
        }
        Ok(())
    }

    /// Reads over one connection, until others have taken over or the end is reached. Returns the
    /// position.
    async fn read_alone(
        &mut self,
        position: u64,
        first: Option<R::Connection>,
    ) -> Result<u64, SourceError> {
        self.pieces = self.pieces_from(position);
        match self.pieces.next_within(u64::MAX) {
            None => Ok(self.end),
            Some(ObjectPiece::Zeros(length)) => {
                self.prompt_outlet(None).send_zeros(length).await?;
                Ok(position + length)
            }
            Some(ObjectPiece::Data(range)) => self.read_open_range(range, first).await,
        }
    }

    async fn read_open_range(
        &mut self,
        range: Range<u64>,
        first: Option<R::Connection>,
    ) -> Result<u64, SourceError> {
        let gauge = Arc::new(ConnectionGauge::new(&self.counts, range.start..u64::MAX, false));
        self.alone = Some((Arc::clone(&gauge), range.end));
        let remote = Arc::clone(&self.remote);
        // A range to the end is left open, as a whole body is: it is not the request of a part.
        let end = if remote.data_regions().is_none() { TO_THE_END } else { range.end };
        let outlet = self.prompt_outlet(Some(Arc::clone(&gauge)));
        {
            let mut reading = pin!(remote.read_ranges(iter::once(range.start..end), first, outlet));
            loop {
                tokio::select! {
                    biased;
                    outcome = reading.as_mut() => break outcome?,
                    () = next_event(&self.ended, &mut self.ticks) => self.attend(),
                }
            }
        }
        self.alone = None;
        let reached = gauge.received().end.min(range.end);
        if reached == range.start {
            return Err(early_end_error());
        }
        Ok(reached)
    }

    /// Hands over the segments in order, while there are any. Returns the position.
    async fn read_together(&mut self, mut position: u64) -> Result<u64, SourceError> {
        if self.queue.is_empty() {
            self.pieces = self.pieces_from(position);
        }
        let outlet = self.prompt_outlet(None);
        let mut closed = pin!(outlet.wait_for_close());
        loop {
            self.attend();
            let is_single = self.growth.lock().count() == 1;
            let segment = match self.queue.front_mut() {
                None => return Ok(position),
                Some(QueuedPiece::Zeros(length)) => {
                    let length = *length;
                    outlet.send_zeros(length).await?;
                    position += length;
                    self.queue.pop_front();
                    continue;
                }
                Some(QueuedPiece::Data(segment)) if segment.range.is_empty() => {
                    self.queue.pop_front();
                    continue;
                }
                Some(QueuedPiece::Data(segment)) => segment,
            };
            let Some(attempt) = &mut segment.attempt else {
                if is_single {
                    // The segments behind it are read again: this is rare, and keeping them would
                    // need another order.
                    self.queue.clear();
                    return Ok(position);
                }
                next_event(&self.ended, &mut self.ticks).await;
                continue;
            };
            if is_single && attempt.gauge.received().is_empty() {
                // A silent server must not hold up the first connection's successor.
                self.queue.clear();
                return Ok(position);
            }
            let next = tokio::select! {
                biased;
                next = attempt.pump.chunks.recv_packed() => next,
                () = closed.as_mut() => return Err(stopped_error()),
                () = next_event(&self.ended, &mut self.ticks) => continue,
            };
            match next {
                Some(packed) => {
                    let length = packed.bytes.len() as u64;
                    segment.range.start += length;
                    position += length;
                    outlet.send_chunk(packed.bytes, packed.held).await?;
                }
                None if attempt.failure().is_some() => {}
                None => {
                    attempt.pump.join_task().await?;
                    return Err(early_end_error());
                }
            }
        }
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
        if now.saturating_duration_since(self.window.at) >= WINDOW * 9 / 10 {
            self.finish_window(now);
        }
        self.spare_first_connection(now);
        self.assign_segments(now);
        self.report_change();
    }

    /// Queues the rest of every segment whose request has failed.
    fn settle_failures(&mut self, now: Instant) {
        let mut index = 0;
        while index < self.queue.len() {
            let place = self.queue.get_mut(index);
            index += 1;
            let Some(QueuedPiece::Data(segment)) = place else { continue };
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
                let rest = QueuedSegment { range: rest, attempt: None };
                self.queue.insert(index, QueuedPiece::Data(rest));
            }
        }
    }

    fn finish_window(&mut self, now: Instant) {
        let (received, blocked) = (self.counts.bytes(), self.sender.full_time());
        let ended = WindowStart { at: now, received, blocked };
        let began = std::mem::replace(&mut self.window, ended);
        let place =
            self.alone.as_ref().map_or(self.pieces.left().start, |(gauge, _)| gauge.received().end);
        let mut growth = self.growth.lock();
        growth.record_window(&RateWindow {
            now,
            elapsed: now - began.at,
            received: received - began.received,
            blocked: blocked.saturating_sub(began.blocked),
            is_starved: std::mem::take(&mut self.is_starved),
            started: self.counts.started(),
            latency: self.counts.latency(),
            left: self.end.saturating_sub(place),
        });
    }

    /// Ends a trial before the first connection would stop for others that have brought nothing.
    fn spare_first_connection(&self, now: Instant) {
        let mut growth = self.growth.lock();
        if let Some((gauge, _)) = &self.alone
            && let Some(QueuedPiece::Data(next)) = self.queue.front()
            && next.attempt.as_ref().is_none_or(|attempt| attempt.gauge.received().is_empty())
            && gauge.received().end + growth.known_rate() / 5 >= gauge.limit()
        {
            growth.abandon_trial(now);
        }
    }

    /// Number of connections that are reading.
    fn working_connections(&self) -> usize {
        let reading = self.queue.iter().filter(|piece| piece.is_being_read());
        reading.count() + usize::from(self.alone.is_some())
    }

    fn assign_segments(&mut self, now: Instant) {
        let (count, distance) = {
            let growth = self.growth.lock();
            (growth.count(), growth.start_bytes())
        };
        if count == 1 {
            if let Some((gauge, _)) = &self.alone {
                gauge.move_limit(u64::MAX);
                self.queue.clear();
            }
            return;
        }
        if let Some((gauge, end)) = &self.alone
            && gauge.limit() == u64::MAX
        {
            let distance = distance.clamp(MIN_DISTANCE_BYTES, MAX_DISTANCE_BYTES);
            let limit = gauge.received().end.saturating_add(distance).next_multiple_of(ALIGNMENT);
            let limit = gauge.move_limit(limit.min(*end));
            self.pieces = self.pieces_from(limit);
        }
        if now < self.refused_until {
            return;
        }
        let mut free = count.saturating_sub(self.working_connections());
        // With two segments for each connection, one that has finished need not wait for the first
        // in order. A distant server takes a round trip for each, which is worse.
        let segments = if self.counts.latency() < DISTANT_LATENCY { count * 2 } else { count };
        let most = R::AHEAD_BYTES / u64::try_from(segments).unwrap_or(u64::MAX);
        let most = most.clamp(1, MAX_SEGMENT_BYTES);
        let mut ahead = 0;
        for piece in &mut self.queue {
            let QueuedPiece::Data(segment) = piece else { continue };
            ahead += segment.range.end - segment.range.start;
            if segment.attempt.is_none() && free > 0 {
                free -= 1;
                segment.attempt = Some(SegmentAttempt::start(
                    &self.remote,
                    &segment.range,
                    &self.counts,
                    &self.ended,
                ));
            }
        }
        while free > 0 {
            if ahead + most > R::AHEAD_BYTES {
                self.is_starved = true;
                return self.share_slow_segments(free);
            }
            self.queue.push_back(match self.pieces.next_within(most) {
                None => break,
                Some(ObjectPiece::Zeros(length)) => QueuedPiece::Zeros(length),
                Some(ObjectPiece::Data(range)) => {
                    free -= 1;
                    ahead += range.end - range.start;
                    let attempt =
                        SegmentAttempt::start(&self.remote, &range, &self.counts, &self.ended);
                    QueuedPiece::Data(QueuedSegment { range, attempt: Some(attempt) })
                }
            });
        }
    }

    /// Lets up to `free` connections read the second halves of segments that arrive slowly: there
    /// is no memory for segments behind them.
    fn share_slow_segments(&mut self, mut free: usize) {
        let min_left = MIN_TIME_LEFT.max(self.counts.latency() * 4);
        let mut index = 0;
        while let Some(piece) = self.queue.get_mut(index).filter(|_| free > 0) {
            index += 1;
            let QueuedPiece::Data(segment) = piece else { continue };
            let Some(range) = segment.split_off(min_left) else { continue };
            let attempt = SegmentAttempt::start(&self.remote, &range, &self.counts, &self.ended);
            let half = QueuedSegment { range, attempt: Some(attempt) };
            self.queue.insert(index, QueuedPiece::Data(half));
            (index, free) = (index + 1, free - 1);
        }
    }

    fn report_change(&mut self) {
        let growth = self.growth.lock();
        let (count, reason) = (growth.count(), growth.reason());
        if (count, reason) == (self.told.0, self.told.1.as_str()) {
            return;
        }
        if self.told.0 > 0 || count > 1 {
            tracing::info!("reading over {count} connections: {reason}");
        }
        self.remote.network().observer.record_connections(count, reason);
        self.told = (count, reason.to_owned());
    }
}

async fn next_event(ended: &Notify, ticks: &mut Interval) {
    tokio::select! {
        () = ended.notified() => {}
        _ = ticks.tick() => {}
    }
}

fn early_end_error() -> SourceError {
    let message = "a connection to the source ended too early";
    SourceError::new(SourceErrorKind::Io, message)
}
