//! The clients that are connected, and the one that has to go when there are too many.
//!
//! Of idle connections the oldest of the address that has most goes first, so that one client cannot push out others. Handshakes
//! are a quarter at most, of which silent ones go first; these may be more where a quarter is few, for a client that is about to speak
//! needs the time.

mod rank;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::rank::Rank;

/// One in this number of connections may be in its handshake.
const HANDSHAKE_SHARE: usize = 4;

/// A few connections are let in all the same.
const LEAST_HANDSHAKES: usize = 32;

/// Silent connections and handshakes together may be as many as this in any case. With 64, and 6,000 new connections a second, a client
/// had 10 ms from its connect to its first byte.
const LEAST_WAITING: usize = 256;

/// All connections of a listener.
#[derive(Debug, Clone)]
pub(super) struct Crowd(Arc<Mutex<Places>>);

#[derive(Debug)]
struct Places {
    most: usize,
    next: u64,
    taken: HashMap<u64, Taken>,
    /// Connections whose clients have sent nothing.
    silent: Rank<u64>,
    /// Connections in their handshakes.
    greeting: Rank<u64>,
    /// Connections without an engagement.
    idle: Rank<u64>,
}

#[derive(Debug)]
struct Taken {
    /// The client at the other end.
    client: IpAddr,
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

/// One connection among the others; its place is free again when the last clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct Place(Arc<Seat>);

#[derive(Debug)]
struct Seat {
    number: u64,
    close: CancellationToken,
    crowd: Crowd,
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
pub struct Engagement {
    _engaged: Arc<Engaged>,
}

#[derive(Debug)]
struct Engaged(Place);

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct InProgress(Place);

impl Crowd {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(Places {
            most,
            next: 0,
            taken: HashMap::new(),
            silent: Rank::default(),
            greeting: Rank::default(),
            idle: Rank::default(),
        })))
    }

    /// A place for a new connection of `client`. If there are too many, an idle one is told to go: the oldest of the
    /// client that has most of them, so that a crowd from one address makes room for itself. `None` if there are only
    /// engaged ones.
    pub(super) fn enter(&self, client: IpAddr) -> Option<Place> {
        let close = CancellationToken::new();
        let mut places = self.0.lock();
        // Before the new one has a place: it could be the one that is told to go.
        places.make_room()?;
        let number = places.next;
        places.next += 1;
        let taken = Taken {
            client,
            close: close.clone(),
            phase: Phase::Silent,
            engagements: 0,
        };
        places.rank(number, &taken);
        places.taken.insert(number, taken);
        drop(places);
        Some(Place(Arc::new(Seat {
            number,
            close,
            crowd: self.clone(),
            requests: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
            is_unsent: AtomicBool::new(false),
            task: Mutex::default(),
        })))
    }
}

impl Places {
    fn make_room(&mut self) -> Option<()> {
        if self.silent.len() + self.greeting.len() >= self.handshakes().max(LEAST_WAITING)
            && let Some(number) = self.silent.first().or_else(|| self.greeting.first())
        {
            self.close(number);
        } else if self.taken.len() >= self.most {
            let number = self.silent.first().or_else(|| self.idle.first())?;
            self.close(number);
        }
        Some(())
    }

    fn handshakes(&self) -> usize {
        (self.most / HANDSHAKE_SHARE).max(LEAST_HANDSHAKES)
    }

    /// Makes room for one more handshake.
    fn make_room_to_greet(&mut self) {
        if self.greeting.len() >= self.handshakes()
            && let Some(number) = self.greeting.first()
        {
            self.close(number);
        }
    }

    fn close(&mut self, number: u64) {
        if let Some(closed) = self.remove(number) {
            closed.close.cancel();
        }
    }

    fn rank(&mut self, number: u64, taken: &Taken) {
        match taken.phase {
            Phase::Silent => self.silent.insert(taken.client, number),
            Phase::Greeting => self.greeting.insert(taken.client, number),
            Phase::Open => {}
        }
        if taken.engagements == 0 {
            self.idle.insert(taken.client, number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Taken> {
        let taken = self.taken.remove(&number)?;
        match taken.phase {
            Phase::Silent => self.silent.remove(taken.client, number),
            Phase::Greeting => self.greeting.remove(taken.client, number),
            Phase::Open => {}
        }
        if taken.engagements == 0 {
            self.idle.remove(taken.client, number);
        }
        Some(taken)
    }

    /// Changes a connection, unless it was told to go.
    fn change(&mut self, number: u64, change: impl FnOnce(&mut Taken)) {
        if let Some(mut taken) = self.remove(number) {
            change(&mut taken);
            self.rank(number, &taken);
            self.taken.insert(number, taken);
        }
    }
}

impl Place {
    fn change(&self, change: impl FnOnce(&mut Taken)) {
        self.0.crowd.0.lock().change(self.0.number, change);
    }

    /// The client has begun its handshake.
    pub(super) fn speaks(&self) {
        self.0.crowd.0.lock().make_room_to_greet();
        self.change(|taken| taken.phase = Phase::Greeting);
    }

    /// The handshake is complete.
    pub(super) fn opens(&self) {
        self.change(|taken| taken.phase = Phase::Open);
    }

    /// Keeps this connection from being closed for another one.
    pub(super) fn engage(&self) -> Engagement {
        self.change(|taken| taken.engagements += 1);
        Engagement {
            _engaged: Arc::new(Engaged(self.clone())),
        }
    }

    /// A request begins.
    pub(super) fn begin(&self) -> InProgress {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        InProgress(self.clone())
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
    pub(super) fn drive<T>(
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
            self.change(|taken| taken.engagements = taken.engagements.saturating_sub(leaving));
        }
        polled
    }

    /// The result of `serving`, or `None` if the connection had to go before.
    pub(super) async fn until_closed<T>(&self, serving: impl Future<Output = T>) -> Option<T> {
        self.0.close.run_until_cancelled(serving).await
    }
}

impl Seat {
    fn set_task(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Engaged {
    fn drop(&mut self) {
        let seat = &*self.0.0;
        seat.leaving.fetch_add(1, Ordering::Release);
        let task = seat.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.crowd.0.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn there(number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, number))
    }

    fn is_closed(place: &Place) -> bool {
        place.0.close.is_cancelled()
    }

    /// A connection whose handshake is complete.
    fn open(crowd: &Crowd, client: IpAddr) -> Place {
        let place = crowd.enter(client).unwrap();
        place.opens();
        place
    }

    /// Polls a connection that has nothing to do.
    fn look(place: &Place) {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(place.drive(&mut cx, |_| Poll::<()>::Pending).is_pending());
    }

    #[test]
    fn the_oldest_idle_connection_makes_room() {
        let crowd = Crowd::new(3);
        let places = [open(&crowd, HERE), open(&crowd, HERE), open(&crowd, HERE)];
        let engaged = places[0].engage();
        let fourth = open(&crowd, HERE);
        assert_eq!(places.each_ref().map(is_closed), [false, true, false]);
        drop(engaged);
        look(&places[0]);
        let _fifth = open(&crowd, HERE);
        assert_eq!(places.each_ref().map(is_closed), [true, true, false]);
        assert!(!is_closed(&fourth));
    }

    #[test]
    fn an_engagement_lasts_until_the_answer_has_left() {
        let crowd = Crowd::new(1);
        let place = open(&crowd, HERE);
        let engagement = place.engage();
        let other = engagement.clone();
        drop(engagement);
        look(&place);
        assert!(crowd.enter(HERE).is_none(), "a clone lives");
        drop(other);
        assert!(crowd.enter(HERE).is_none(), "nobody has looked since");
        let mut cx = Context::from_waker(Waker::noop());
        // The answer is written, and the socket takes no more.
        assert!(
            place
                .drive(&mut cx, |_| {
                    place.set_unsent(true);
                    Poll::<()>::Pending
                })
                .is_pending()
        );
        assert!(crowd.enter(HERE).is_none(), "the answer is still here");
        assert!(
            place
                .drive(&mut cx, |_| {
                    place.set_unsent(false);
                    Poll::<()>::Pending
                })
                .is_pending()
        );
        assert!(crowd.enter(HERE).is_some());
        assert!(is_closed(&place));
    }

    #[test]
    fn an_answer_that_is_given_while_the_connection_is_polled_is_waited_for() {
        let crowd = Crowd::new(1);
        let place = open(&crowd, HERE);
        let engagement = place.engage();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(
            place
                .drive(&mut cx, |_| {
                    drop(engagement);
                    Poll::<()>::Pending
                })
                .is_pending()
        );
        assert!(
            crowd.enter(HERE).is_none(),
            "what was answered may not have been written"
        );
        look(&place);
        assert!(crowd.enter(HERE).is_some());
    }

    #[test]
    fn a_client_with_many_idle_connections_makes_room_for_others() {
        let crowd = Crowd::new(4);
        let lonely = open(&crowd, there(1));
        let many = [open(&crowd, HERE), open(&crowd, HERE), open(&crowd, HERE)];
        let _more: Vec<_> = (0..100).map(|_| open(&crowd, HERE)).collect();
        assert!(!is_closed(&lonely) && many.iter().all(is_closed));
    }

    #[test]
    fn handshakes_are_a_part_of_all_connections_and_the_busiest_client_pays_first() {
        let crowd = Crowd::new(1000);
        let idle: Vec<_> = (0..500).map(|_| open(&crowd, HERE)).collect();
        let greet = |client| {
            let place = crowd.enter(client).unwrap();
            place.speaks();
            place
        };
        let lonely = greet(there(1));
        let many: Vec<_> = (0..1000).map(|_| greet(HERE)).collect();
        let closed = many.iter().filter(|place| is_closed(place)).count();
        assert_eq!(closed, 1000 - 249, "one of 250 is another client's");
        assert!(many[..closed].iter().all(is_closed), "the oldest");
        assert!(!is_closed(&lonely) && !idle.iter().any(is_closed));
    }

    #[test]
    fn silent_connections_are_not_few_and_leave_the_others_their_places() {
        for (most, room) in [(4000, 1000), (1000, LEAST_WAITING), (200, 100)] {
            let crowd = Crowd::new(most);
            let idle: Vec<_> = (0..100).map(|_| open(&crowd, HERE)).collect();
            let silent: Vec<_> = (0..2000).map(|_| crowd.enter(there(1)).unwrap()).collect();
            let closed = silent.iter().filter(|place| is_closed(place)).count();
            assert_eq!(closed, 2000 - room, "of {most}");
            assert!(silent[..closed].iter().all(is_closed), "the oldest");
            assert!(!idle.iter().any(is_closed));
        }
    }

    #[test]
    fn silent_handshakes_go_before_those_that_have_begun() {
        let crowd = Crowd::new(4 * LEAST_HANDSHAKES);
        for client in [HERE, there(1)] {
            let first = crowd.enter(client).unwrap();
            first.speaks();
            // One of each address, and many of one.
            let _many: Vec<_> = (2..=200).map(|number| crowd.enter(there(number))).collect();
            let _more: Vec<_> = (0..200).map(|_| crowd.enter(client)).collect();
            assert!(!is_closed(&first));
        }
    }

    #[test]
    fn a_connection_that_ends_leaves_its_place() {
        let crowd = Crowd::new(2);
        let first = open(&crowd, HERE);
        for _ in 0..10 {
            drop(open(&crowd, HERE));
        }
        assert!(!is_closed(&first));
    }
}
