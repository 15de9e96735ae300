//! Who is connected, and who has to go when there are too many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// All connections of a listener.
#[derive(Debug, Clone)]
pub(super) struct Crowd(Arc<Mutex<Places>>);

#[derive(Debug)]
struct Places {
    most: usize,
    next: u64,
    /// By the order in which they came.
    taken: BTreeMap<u64, Taken>,
}

#[derive(Debug)]
struct Taken {
    /// Whose connection it is.
    client: IpAddr,
    close: CancellationToken,
    engagements: usize,
}

/// One connection among the others; its place is free again when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Place(Arc<Seat>);

#[derive(Debug)]
struct Seat {
    number: u64,
    close: CancellationToken,
    crowd: Crowd,
}

/// As long as this lives, its connection is not closed for another one.
#[derive(Debug)]
pub struct Engagement(Place);

impl Crowd {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(Places {
            most,
            next: 0,
            taken: BTreeMap::new(),
        })))
    }

    /// A place for a new connection of `client`. If there are too many, an idle one is told to go: the oldest of the
    /// client that has most of them, so that a crowd from one address makes room for itself.
    pub(super) fn enter(&self, client: IpAddr) -> Place {
        let close = CancellationToken::new();
        let mut places = self.places();
        if places.taken.len() >= places.most
            && let Some(number) = places.least_missed()
            && let Some(oldest) = places.taken.remove(&number)
        {
            oldest.close.cancel();
        }
        let number = places.next;
        places.next += 1;
        let taken = Taken {
            client,
            close: close.clone(),
            engagements: 0,
        };
        places.taken.insert(number, taken);
        Place(Arc::new(Seat {
            number,
            close,
            crowd: self.clone(),
        }))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engage(&self, number: u64, change: impl FnOnce(usize) -> usize) {
        if let Some(taken) = self.places().taken.get_mut(&number) {
            taken.engagements = change(taken.engagements);
        }
    }
}

impl Places {
    fn least_missed(&self) -> Option<u64> {
        let mut by_client: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        for (number, taken) in &self.taken {
            if taken.engagements == 0 {
                // The first that is seen is the oldest.
                by_client.entry(taken.client).or_insert((0, *number)).0 += 1;
            }
        }
        let most = by_client
            .into_values()
            .max_by_key(|(count, oldest)| (*count, Reverse(*oldest)));
        most.map(|(_, oldest)| oldest)
    }
}

impl Place {
    /// Keeps this connection from being closed for another one.
    pub fn engage(&self) -> Engagement {
        self.0.crowd.engage(self.0.number, |count| count + 1);
        Engagement(self.clone())
    }

    /// The result of `serving`, or `None` if the connection had to go before.
    pub(super) async fn until_closed<T>(&self, serving: impl Future<Output = T>) -> Option<T> {
        self.0.close.run_until_cancelled(serving).await
    }
}

impl Drop for Engagement {
    fn drop(&mut self) {
        let Seat { number, crowd, .. } = &*self.0.0;
        crowd.engage(*number, |count| count.saturating_sub(1));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.crowd.places().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn is_closed(place: &Place) -> bool {
        place.0.close.is_cancelled()
    }

    #[test]
    fn the_oldest_idle_connection_makes_room() {
        let crowd = Crowd::new(3);
        let places = [crowd.enter(HERE), crowd.enter(HERE), crowd.enter(HERE)];
        let engaged = places[0].engage();
        let fourth = crowd.enter(HERE);
        assert_eq!(places.each_ref().map(is_closed), [false, true, false]);
        drop(engaged);
        let _fifth = crowd.enter(HERE);
        assert_eq!(places.each_ref().map(is_closed), [true, true, false]);
        assert!(!is_closed(&fourth));
    }

    #[test]
    fn a_client_with_many_idle_connections_makes_room_for_others() {
        let crowd = Crowd::new(4);
        let lonely = crowd.enter(THERE);
        let many = [crowd.enter(HERE), crowd.enter(HERE), crowd.enter(HERE)];
        let _more: Vec<_> = (0..100).map(|_| crowd.enter(HERE)).collect();
        assert!(!is_closed(&lonely) && many.iter().all(is_closed));
    }

    #[test]
    fn a_connection_that_ends_leaves_its_place() {
        let crowd = Crowd::new(2);
        let first = crowd.enter(HERE);
        for _ in 0..10 {
            drop(crowd.enter(HERE));
        }
        assert!(!is_closed(&first));
    }
}
