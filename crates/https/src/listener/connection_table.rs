//! The table of a listener's connections, which chooses the connection to close when there are too
//! many.
//!
//! In a full table, the oldest connection whose client has sent nothing is closed first, then the
//! oldest idle one. Handshakes may use only a quarter of the connections, so that clients without
//! a completed handshake cannot evict the others. The limits do not depend on client addresses:
//! behind an Ingress all clients have the same address.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use program::metrics::{Counter, Gauge};
use tokio_util::sync::CancellationToken;

/// Handshakes may use one in this number of connections.
const HANDSHAKE_SHARE: usize = 4;

/// Minimum for the limit of handshakes, used for small tables.
const LEAST_HANDSHAKES: usize = 32;

/// Minimum for the combined limit of silent connections and handshakes. With a limit of 64 and
/// 6,000 new connections per second, a client had only 10 ms between its connect and its first
/// byte.
const LEAST_WAITING: usize = 256;

/// Metrics that show how full a listener is.
#[derive(Debug, Clone, Default)]
pub struct ConnectionFigures {
    /// Number of open connections.
    pub open: Gauge,
    /// Number of connections beyond which the oldest idle one is closed.
    pub limit: Gauge,
    /// Connections that were closed because there were too many.
    pub evicted: Counter,
    /// New connections that were closed immediately because all others were in use.
    pub refused: Counter,
}

/// All connections of a listener. Clones refer to the same table.
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
    /// Connections whose handshake is in progress.
    greeting: BTreeSet<u64>,
    /// Connections that no [`ActiveGuard`] protects.
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
    /// The TLS handshake is in progress.
    Greeting,
    /// The TLS handshake is complete.
    Open,
}

/// The slot of one connection in the table. It is released when the last clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlot(Arc<SlotState>);

#[derive(Debug)]
struct SlotState {
    number: u64,
    close: CancellationToken,
    table: ConnectionTable,
    /// Number of requests in progress.
    requests: AtomicUsize,
    /// Number of dropped guards whose responses may not have been sent completely.
    leaving: AtomicUsize,
    /// True if data was written but not yet flushed.
    is_unsent: AtomicBool,
    /// Waker of the task that drives the connection.
    task: Mutex<Option<Waker>>,
}

/// Protects a connection from eviction as long as a clone of this guard exists. After that, the
/// protection continues until the responses so far have been sent.
#[derive(Debug, Clone)]
pub struct ActiveGuard {
    _engaged: Arc<Active>,
}

#[derive(Debug)]
struct Active(ConnectionSlot);

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

    /// Takes a slot for a new connection. If the table is full, the oldest idle connection is
    /// closed. Returns `None` if all connections are active.
    pub(super) fn take_slot(&self) -> Option<ConnectionSlot> {
        let close = CancellationToken::new();
        let mut connections = self.0.lock();
        // This comes before the new connection is added, because otherwise that connection could
        // be the one that is evicted.
        if connections.make_room().is_none() {
            connections.figures.refused.add(1);
            return None;
        }
        // Numbers only grow, so the oldest connection is the first in each `BTreeSet`.
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

    /// Changes the state of a connection, unless the connection was already evicted.
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

    /// Records that the client has begun its handshake. Closes the oldest handshake if there is no
    /// room for another one.
    pub(super) fn begin_handshake(&self) {
        let mut connections = self.0.table.0.lock();
        if connections.greeting.len() >= connections.max_handshakes()
            && let Some(&number) = connections.greeting.first()
        {
            connections.close_connection(number);
        }
        connections.update_connection(self.0.number, |taken| taken.phase = Phase::Greeting);
    }

    /// Records that the handshake is complete.
    pub(super) fn finish_handshake(&self) {
        self.update_connection(|taken| taken.phase = Phase::Open);
    }

    /// Protects this connection from eviction.
    pub(super) fn hold_active(&self) -> ActiveGuard {
        self.update_connection(|taken| taken.engagements += 1);
        ActiveGuard { _engaged: Arc::new(Active(self.clone())) }
    }

    /// Records that a request has begun.
    pub(super) fn begin_request(&self) {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a request has ended.
    pub(super) fn end_request(&self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }

    /// True while a request is in progress.
    pub(super) fn is_busy(&self) -> bool {
        self.0.requests.load(Ordering::Relaxed) > 0
    }

    /// Records whether some written data was not flushed yet.
    pub(super) fn set_unsent(&self, is_unsent: bool) {
        self.0.is_unsent.store(is_unsent, Ordering::Relaxed);
    }

    /// Polls the connection. If all written data has been sent afterwards, the guards that were
    /// dropped before the poll are released.
    pub(super) fn poll_connection<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let seat = &*self.0;
        // The waker is stored before the count is read, so that a guard dropped after the read
        // wakes this task again.
        seat.set_task(cx.waker());
        let leaving = seat.leaving.load(Ordering::Acquire);
        let polled = poll(cx);
        if polled.is_pending() && leaving > 0 && !seat.is_unsent.load(Ordering::Relaxed) {
            seat.leaving.fetch_sub(leaving, Ordering::Relaxed);
            self.update_connection(|taken| {
                taken.engagements = taken.engagements.saturating_sub(leaving)
            });
        }
        polled
    }

    /// Returns the result of `serving`, or `None` if the connection was evicted before it
    /// finished.
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

    /// Returns a connection whose handshake is complete.
    fn open(table: &ConnectionTable) -> ConnectionSlot {
        let slot = table.take_slot().unwrap();
        slot.finish_handshake();
        slot
    }

    /// Polls a connection that does `action` and then waits.
    fn poll(slot: &ConnectionSlot, action: impl FnOnce()) {
        let mut cx = Context::from_waker(Waker::noop());
        let polled = slot.poll_connection(&mut cx, |_| {
            action();
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
    }

    #[test]
    fn the_oldest_idle_connection_is_closed_for_a_new_one() {
        let table = ConnectionTable::new(3, ConnectionFigures::default());
        let connections = [open(&table), open(&table), open(&table)];
        let engaged = connections[0].hold_active();
        let fourth = open(&table);
        assert_eq!(connections.each_ref().map(is_closed), [false, true, false]);
        drop(engaged);
        poll(&connections[0], || {});
        let _fifth = open(&table);
        assert_eq!(connections.each_ref().map(is_closed), [true, true, false]);
        assert!(!is_closed(&fourth));
    }

    #[test]
    fn metrics_show_how_full_the_table_is() {
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
    fn a_connection_is_active_until_its_answer_is_sent() {
        let table = ConnectionTable::new(1, ConnectionFigures::default());
        let slot = open(&table);
        let engagement = slot.hold_active();
        let other = engagement.clone();
        drop(engagement);
        poll(&slot, || {});
        assert!(table.take_slot().is_none(), "a clone of the guard is alive");
        drop(other);
        assert!(table.take_slot().is_none(), "the connection has not been polled since");
        // The response is written, but the socket accepts no more data.
        poll(&slot, || slot.set_unsent(true));
        assert!(table.take_slot().is_none(), "the answer is not sent yet");
        poll(&slot, || slot.set_unsent(false));
        assert!(table.take_slot().is_some());
        assert!(is_closed(&slot));
    }

    #[test]
    fn an_answer_given_during_a_poll_is_waited_for() {
        let table = ConnectionTable::new(1, ConnectionFigures::default());
        let slot = open(&table);
        let engagement = slot.hold_active();
        poll(&slot, || drop(engagement));
        assert!(table.take_slot().is_none(), "the answer may not have been written yet");
        poll(&slot, || {});
        assert!(table.take_slot().is_some());
    }

    #[test]
    fn handshakes_are_limited_and_the_oldest_is_closed_first() {
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
        assert!(many[..closed].iter().all(is_closed), "the oldest are closed");
        assert!(!idle.iter().any(is_closed));
    }

    #[test]
    fn silent_connections_are_limited_and_the_oldest_is_closed_first() {
        for (most, room) in [(4000, 1000), (1000, LEAST_WAITING), (200, 100)] {
            let table = ConnectionTable::new(most, ConnectionFigures::default());
            let idle: Vec<_> = (0..100).map(|_| open(&table)).collect();
            let silent: Vec<_> = (0..2000).map(|_| table.take_slot().unwrap()).collect();
            let closed = silent.iter().filter(|slot| is_closed(slot)).count();
            assert_eq!(closed, 2000 - room, "of {most}");
            assert!(silent[..closed].iter().all(is_closed), "the oldest are closed");
            assert!(!idle.iter().any(is_closed));
        }
    }

    #[test]
    fn silent_connections_are_closed_before_handshakes_that_have_begun() {
        let table = ConnectionTable::new(4 * LEAST_HANDSHAKES, ConnectionFigures::default());
        let first = table.take_slot().unwrap();
        first.begin_handshake();
        let _many: Vec<_> = (0..400).map(|_| table.take_slot()).collect();
        assert!(!is_closed(&first));
    }

    #[test]
    fn a_closed_connection_frees_its_slot() {
        let table = ConnectionTable::new(2, ConnectionFigures::default());
        let first = open(&table);
        for _ in 0..10 {
            drop(open(&table));
        }
        assert!(!is_closed(&first));
    }
}
