//! The connections of a listener, and which of them is closed when there are too many.
//!
//! The oldest idle connection is closed first. Handshakes have a quarter of the connections, so that connections without one
//! cannot push out the others. The limits do not depend on addresses: in front of a program there may be an Ingress,
//! and then all clients have the same.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use program::metrics::{Counter, Gauge};
use tokio_util::sync::CancellationToken;

/// One in this number of connections may be in its handshake.
const HANDSHAKE_SHARE: usize = 4;

/// A few connections are let in all the same.
const LEAST_HANDSHAKES: usize = 32;

/// Silent connections and handshakes together may be as many as this in any case. With 64, and 6,000 new connections a second, a client
/// had 10 ms from its connect to its first byte.
const LEAST_WAITING: usize = 256;

/// How full a listener is, for metrics.
#[derive(Debug, Clone, Default)]
pub struct ConnectionFigures {
    /// Connections now.
    pub open: Gauge,
    /// Connections that there may be before the oldest idle one is closed.
    pub limit: Gauge,
    /// Connections that were closed because there were too many.
    pub evicted: Counter,
    /// Connections that were closed at once because all others were in use.
    pub refused: Counter,
}

/// All connections of a listener.
#[derive(Debug, Clone)]
pub(super) struct ConnectionTable(Arc<Mutex<Connections>>);

#[derive(Debug)]
struct Connections {
    most: usize,
    figures: ConnectionFigures,
    next: u64,
    taken: HashMap<u64, Connection>,
    /// Connections whose clients have sent nothing.
    silent: BTreeSet<u64>,
    /// Connections in their handshakes.
    greeting: BTreeSet<u64>,
    /// Connections without an engagement.
    idle: BTreeSet<u64>,
}

#[derive(Debug)]
struct Connection {
    close: CancellationToken,
    phase: Phase,
    engagements: usize,
}

/// The progress of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The client has sent nothing.
    Silent,
    /// In its handshake.
    Greeting,
    /// Its handshake is complete.
    Open,
}

/// One connection among the others; its slot is free again when the last clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlot(Arc<SlotState>);

#[derive(Debug)]
struct SlotState {
    number: u64,
    close: CancellationToken,
    table: ConnectionTable,
    /// Requests that are being answered.
    requests: AtomicUsize,
    /// Engagements that have ended, of whose answers something may still be on its way.
    leaving: AtomicUsize,
    /// Something was written and not flushed.
    is_unsent: AtomicBool,
    /// Waker of the task that drives the connection.
    task: Mutex<Option<Waker>>,
}

/// Protection of a connection from being closed for another one, as long as a clone of this lives, and then until the answers
/// that were given have left.
#[derive(Debug, Clone)]
pub struct ActiveGuard {
    _engaged: Arc<Active>,
}

#[derive(Debug)]
struct Active(ConnectionSlot);

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct RequestInProgress(ConnectionSlot);

impl ConnectionTable {
    pub(super) fn new(most: usize, figures: ConnectionFigures) -> Self {
        figures.limit.set(most as f64);
        Self(Arc::new(Mutex::new(Connections {
            most,
            figures,
            next: 0,
            taken: HashMap::new(),
            silent: BTreeSet::new(),
            greeting: BTreeSet::new(),
            idle: BTreeSet::new(),
        })))
    }

    /// A slot for a new connection. If there are too many, the oldest idle one is closed; `None` if all are active.
    pub(super) fn take_slot(&self) -> Option<ConnectionSlot> {
        let close = CancellationToken::new();
        let mut connections = self.0.lock();
        // Before the new one has a slot: it could be the one that is told to go.
        if connections.make_room().is_none() {
            connections.figures.refused.add(1);
            return None;
        }
        let number = connections.next;
        connections.next += 1;
        let taken = Connection { close: close.clone(), phase: Phase::Silent, engagements: 0 };
        connections.enqueue_by_phase(number, &taken);
        connections.taken.insert(number, taken);
        connections.figures.open.add(1.0);
        drop(connections);
        Some(ConnectionSlot(Arc::new(SlotState {
            number,
            close,
            table: self.clone(),
            requests: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
            is_unsent: AtomicBool::new(false),
            task: Mutex::default(),
        })))
    }
}

impl Connections {
    fn make_room(&mut self) -> Option<()> {
        if self.silent.len() + self.greeting.len() >= self.max_handshakes().max(LEAST_WAITING)
            && let Some(number) = self.silent.first().or(self.greeting.first()).copied()
        {
            self.close_connection(number);
        } else if self.taken.len() >= self.most {
            let number = self.silent.first().or(self.idle.first()).copied()?;
            self.close_connection(number);
        }
        Some(())
    }

    fn max_handshakes(&self) -> usize {
        (self.most / HANDSHAKE_SHARE).max(LEAST_HANDSHAKES)
    }

    /// Makes room for one more handshake.
    fn make_room_to_greet(&mut self) {
        if self.greeting.len() >= self.max_handshakes()
            && let Some(&number) = self.greeting.first()
        {
            self.close_connection(number);
        }
    }

    fn close_connection(&mut self, number: u64) {
        if let Some(closed) = self.remove_connection(number) {
            closed.close.cancel();
            self.figures.evicted.add(1);
        }
    }

    fn enqueue_by_phase(&mut self, number: u64, taken: &Connection) {
        match taken.phase {
            Phase::Silent => self.silent.insert(number),
            Phase::Greeting => self.greeting.insert(number),
            Phase::Open => false,
        };
        if taken.engagements == 0 {
            self.idle.insert(number);
        }
    }

    fn remove_connection(&mut self, number: u64) -> Option<Connection> {
        let taken = self.taken.remove(&number)?;
        match taken.phase {
            Phase::Silent => self.silent.remove(&number),
            Phase::Greeting => self.greeting.remove(&number),
            Phase::Open => false,
        };
        if taken.engagements == 0 {
            self.idle.remove(&number);
        }
        Some(taken)
    }

    /// Changes a connection, unless it was told to go.
    fn update_connection(&mut self, number: u64, change: impl FnOnce(&mut Connection)) {
        if let Some(mut taken) = self.remove_connection(number) {
            change(&mut taken);
            self.enqueue_by_phase(number, &taken);
            self.taken.insert(number, taken);
        }
    }
}

impl ConnectionSlot {
    fn update_connection(&self, change: impl FnOnce(&mut Connection)) {
        self.0.table.0.lock().update_connection(self.0.number, change);
    }

    /// The client has begun its handshake.
    pub(super) fn begin_handshake(&self) {
        self.0.table.0.lock().make_room_to_greet();
        self.update_connection(|taken| taken.phase = Phase::Greeting);
    }

    /// The handshake is complete.
    pub(super) fn finish_handshake(&self) {
        self.update_connection(|taken| taken.phase = Phase::Open);
    }

    /// Keeps this connection from being closed for another one.
    pub(super) fn hold_active(&self) -> ActiveGuard {
        self.update_connection(|taken| taken.engagements += 1);
        ActiveGuard { _engaged: Arc::new(Active(self.clone())) }
    }

    /// A request begins.
    pub(super) fn begin_request(&self) -> RequestInProgress {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        RequestInProgress(self.clone())
    }

    /// True while a request is being answered.
    pub(super) fn is_busy(&self) -> bool {
        self.0.requests.load(Ordering::Relaxed) > 0
    }

    /// Says whether what was written has left.
    pub(super) fn set_unsent(&self, is_unsent: bool) {
        self.0.is_unsent.store(is_unsent, Ordering::Relaxed);
    }

    /// Polls the connection, and lets go of the engagements that had ended before if all that it had to say has left then.
    pub(super) fn poll_connection<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let seat = &*self.0;
        // Before the count is read: a task that adds to it then wakes this one for another look.
        seat.set_task(cx.waker());
        let leaving = seat.leaving.load(Ordering::Acquire);
        let polled = poll(cx);
        if polled.is_pending() && leaving > 0 && !seat.is_unsent.load(Ordering::Relaxed) {
            seat.leaving.fetch_sub(leaving, Ordering::Relaxed);
            self.update_connection(|taken| taken.engagements = taken.engagements.saturating_sub(leaving));
        }
        polled
    }

    /// The result of `serving`, or `None` if the connection had to go before.
    pub(super) async fn until_closed<T>(&self, serving: impl Future<Output = T>) -> Option<T> {
        self.0.close.run_until_cancelled(serving).await
    }
}

impl SlotState {
    fn set_task(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let seat = &*self.0.0;
        seat.leaving.fetch_add(1, Ordering::Release);
        let task = seat.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Drop for SlotState {
    fn drop(&mut self) {
        let mut connections = self.table.0.lock();
        connections.remove_connection(self.number);
        connections.figures.open.add(-1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_closed(slot: &ConnectionSlot) -> bool {
        slot.0.close.is_cancelled()
    }

    /// A connection whose handshake is complete.
    fn open(table: &ConnectionTable) -> ConnectionSlot {
        let slot = table.take_slot().unwrap();
        slot.finish_handshake();
        slot
    }

    /// Polls a connection that has nothing to do.
    fn look(slot: &ConnectionSlot) {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(slot.poll_connection(&mut cx, |_| Poll::<()>::Pending).is_pending());
    }

    #[test]
    fn the_oldest_idle_connection_makes_room() {
        let table = ConnectionTable::new(3, ConnectionFigures::default());
        let connections = [open(&table), open(&table), open(&table)];
        let engaged = connections[0].hold_active();
        let fourth = open(&table);
        assert_eq!(connections.each_ref().map(is_closed), [false, true, false]);
        drop(engaged);
        look(&connections[0]);
        let _fifth = open(&table);
        assert_eq!(connections.each_ref().map(is_closed), [true, true, false]);
        assert!(!is_closed(&fourth));
    }

    #[test]
    fn figures_say_how_full_the_table_is() {
        let figures = ConnectionFigures::default();
        let table = ConnectionTable::new(2, figures.clone());
        let [first, second] = [open(&table), open(&table)];
        assert_eq!((figures.limit.value(), figures.open.value()), (2.0, 2.0));
        let third = open(&table);
        assert_eq!((figures.evicted.value(), figures.refused.value()), (1, 0));
        let _engaged = [second.hold_active(), third.hold_active()];
        drop(first);
        assert!(table.take_slot().is_none());
        assert_eq!((figures.evicted.value(), figures.refused.value()), (1, 1));
        assert_eq!(figures.open.value(), 2.0);
    }

    #[test]
    fn an_engagement_lasts_until_the_answer_has_left() {
        let table = ConnectionTable::new(1, ConnectionFigures::default());
        let slot = open(&table);
        let engagement = slot.hold_active();
        let other = engagement.clone();
        drop(engagement);
        look(&slot);
        assert!(table.take_slot().is_none(), "a clone lives");
        drop(other);
        assert!(table.take_slot().is_none(), "nobody has looked since");
        let mut cx = Context::from_waker(Waker::noop());
        // The answer is written, and the socket takes no more.
        assert!(
            slot.poll_connection(&mut cx, |_| {
                slot.set_unsent(true);
                Poll::<()>::Pending
            })
            .is_pending()
        );
        assert!(table.take_slot().is_none(), "the answer is still here");
        assert!(
            slot.poll_connection(&mut cx, |_| {
                slot.set_unsent(false);
                Poll::<()>::Pending
            })
            .is_pending()
        );
        assert!(table.take_slot().is_some());
        assert!(is_closed(&slot));
    }

    #[test]
    fn an_answer_that_is_given_while_the_connection_is_polled_is_waited_for() {
        let table = ConnectionTable::new(1, ConnectionFigures::default());
        let slot = open(&table);
        let engagement = slot.hold_active();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(
            slot.poll_connection(&mut cx, |_| {
                drop(engagement);
                Poll::<()>::Pending
            })
            .is_pending()
        );
        assert!(table.take_slot().is_none(), "what was answered may not have been written");
        look(&slot);
        assert!(table.take_slot().is_some());
    }

    #[test]
    fn handshakes_are_a_part_of_all_connections_and_the_oldest_is_closed_first() {
        let table = ConnectionTable::new(1000, ConnectionFigures::default());
        let idle: Vec<_> = (0..500).map(|_| open(&table)).collect();
        let greet = || {
            let slot = table.take_slot().unwrap();
            slot.begin_handshake();
            slot
        };
        let many: Vec<_> = (0..1000).map(|_| greet()).collect();
        let closed = many.iter().filter(|slot| is_closed(slot)).count();
        assert_eq!(closed, 1000 - 250);
        assert!(many[..closed].iter().all(is_closed), "the oldest");
        assert!(!idle.iter().any(is_closed));
    }

    #[test]
    fn silent_connections_are_not_few_and_leave_the_others_their_connections() {
        for (most, room) in [(4000, 1000), (1000, LEAST_WAITING), (200, 100)] {
            let table = ConnectionTable::new(most, ConnectionFigures::default());
            let idle: Vec<_> = (0..100).map(|_| open(&table)).collect();
            let silent: Vec<_> = (0..2000).map(|_| table.take_slot().unwrap()).collect();
            let closed = silent.iter().filter(|slot| is_closed(slot)).count();
            assert_eq!(closed, 2000 - room, "of {most}");
            assert!(silent[..closed].iter().all(is_closed), "the oldest");
            assert!(!idle.iter().any(is_closed));
        }
    }

    #[test]
    fn silent_handshakes_go_before_those_that_have_begun() {
        let table = ConnectionTable::new(4 * LEAST_HANDSHAKES, ConnectionFigures::default());
        let first = table.take_slot().unwrap();
        first.begin_handshake();
        let _many: Vec<_> = (0..400).map(|_| table.take_slot()).collect();
        assert!(!is_closed(&first));
    }

    #[test]
    fn a_connection_that_ends_leaves_its_place() {
        let table = ConnectionTable::new(2, ConnectionFigures::default());
        let first = open(&table);
        for _ in 0..10 {
            drop(open(&table));
        }
        assert!(!is_closed(&first));
    }
}
