//! Who is connected, and who has to go when there are too many.

use std::collections::BTreeMap;
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

    /// A place for a new connection. If there are too many, the oldest idle one is told to go.
    pub(super) fn enter(&self) -> Place {
        let close = CancellationToken::new();
        let mut places = self.places();
        if places.taken.len() >= places.most
            && let Some(number) = places.oldest_idle()
            && let Some(oldest) = places.taken.remove(&number)
        {
            oldest.close.cancel();
        }
        let number = places.next;
        places.next += 1;
        let taken = Taken {
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
    fn oldest_idle(&self) -> Option<u64> {
        let idle = self.taken.iter().find(|(_, taken)| taken.engagements == 0);
        idle.map(|(number, _)| *number)
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
    use super::*;

    fn is_closed(place: &Place) -> bool {
        place.0.close.is_cancelled()
    }

    #[test]
    fn the_oldest_idle_connection_makes_room() {
        let crowd = Crowd::new(3);
        let places = [crowd.enter(), crowd.enter(), crowd.enter()];
        let engaged = places[0].engage();
        let fourth = crowd.enter();
        assert_eq!(places.each_ref().map(is_closed), [false, true, false]);
        drop(engaged);
        let _fifth = crowd.enter();
        assert_eq!(places.each_ref().map(is_closed), [true, true, false]);
        assert!(!is_closed(&fourth));
    }

    #[test]
    fn a_connection_that_ends_leaves_its_place() {
        let crowd = Crowd::new(2);
        let first = crowd.enter();
        for _ in 0..10 {
            drop(crowd.enter());
        }
        assert!(!is_closed(&first));
    }
}
