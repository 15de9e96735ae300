//! A bounded queue between threads whose bound is bytes, not messages.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

struct QueueState<T> {
    items: VecDeque<(T, usize)>,
    /// Bytes in the queue and in the hands of consumers.
    in_flight: usize,
    closed: bool,
}

/// Many producers, many consumers. An item counts until it is done, not until it is taken.
pub(crate) struct WorkQueue<T> {
    state: Mutex<QueueState<T>>,
    /// Consumers wait for an item here, producers for room there: whoever cannot go on is not woken.
    has_items: Condvar,
    has_room: Condvar,
    budget: usize,
}

impl<T> WorkQueue<T> {
    /// A queue that lets `budget` bytes be in flight; a larger single item passes when nothing else is.
    pub(crate) fn new(budget: usize) -> Self {
        let state = QueueState { items: VecDeque::new(), in_flight: 0, closed: false };
        Self { state: Mutex::new(state), has_items: Condvar::new(), has_room: Condvar::new(), budget }
    }

    /// Waits for room. `false`: the queue is closed and the item dropped.
    pub(crate) fn push(&self, item: T, bytes: usize) -> bool {
        let mut state = self.state.lock();
        while !state.closed && state.in_flight > 0 && state.in_flight.saturating_add(bytes) > self.budget {
            self.has_room.wait(&mut state);
        }
        if state.closed {
            return false;
        }
        state.in_flight += bytes;
        state.items.push_back((item, bytes));
        drop(state);
        self.has_items.notify_one();
        true
    }

    /// Waits for an item; `None` when the queue is closed and empty. The item's bytes are to be given back with
    /// [`WorkQueue::release_bytes`].
    pub(crate) fn pop(&self) -> Option<(T, usize)> {
        let mut state = self.state.lock();
        let is_waiting = |state: &mut QueueState<T>| state.items.is_empty() && !state.closed;
        self.has_items.wait_while(&mut state, is_waiting);
        state.items.pop_front()
    }

    /// Frees the room of an item with this number of bytes. Producers that wait go on when half of the budget is free.
    pub(crate) fn release_bytes(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.in_flight -= bytes;
        let is_low = state.in_flight <= self.budget / 2;
        drop(state);
        // A producer that was woken for the room of each item slept a thousand times in a raw import of 1.4 GB.
        if is_low {
            self.has_room.notify_all();
        }
    }

    /// Ends the queue: items in it are still handed out.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake_all();
    }

    /// Ends the queue after a failure: items in it are dropped.
    pub(crate) fn abort(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.items.clear();
        drop(state);
        self.wake_all();
    }

    fn wake_all(&self) {
        self.has_items.notify_all();
        self.has_room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_flight_stay_under_the_budget() {
        let queue = WorkQueue::new(100);
        let mut most = 0;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some((size, bytes)) = queue.pop() {
                        assert_eq!(size, bytes);
                        // Slower than the producer, so that the budget is what limits it.
                        std::thread::sleep(std::time::Duration::from_micros(20));
                        queue.release_bytes(bytes);
                    }
                });
            }
            for i in 0..1000 {
                let bytes = i % 60 + 1;
                assert!(queue.push(bytes, bytes));
                most = most.max(queue.state.lock().in_flight);
            }
            queue.close();
        });
        assert!(most <= 100, "{most} bytes in flight");
        assert_eq!(queue.state.lock().in_flight, 0);
    }

    #[test]
    fn an_item_larger_than_the_budget_passes_alone() {
        let queue = WorkQueue::new(10);
        assert!(queue.push((), 50));
        let (_, bytes) = queue.pop().unwrap();
        queue.release_bytes(bytes);
        assert!(queue.push((), 50));
    }

    #[test]
    fn a_producer_that_waits_goes_on_when_half_is_free() {
        let queue = WorkQueue::new(100);
        (0..3).for_each(|_| assert!(queue.push((), 30)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.push((), 20));
            // Long enough for it to wait, and then for it not to be woken.
            for left in [60, 30] {
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(!waiting.is_finished());
                queue.release_bytes(30);
                assert!(left == 30 || queue.state.lock().in_flight == left);
            }
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn abort_wakes_a_waiting_producer() {
        let queue = WorkQueue::new(10);
        assert!(queue.push((), 10));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.push((), 10));
            queue.abort();
            assert!(!waiting.join().unwrap());
        });
        assert!(queue.pop().is_none());
    }
}
