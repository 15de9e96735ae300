//! A bounded queue between threads. The limit counts bytes, not messages.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

struct QueueState<T> {
    items: VecDeque<(T, usize)>,
    /// Bytes in the queue, plus those that consumers have taken and not released yet.
    in_flight: usize,
    closed: bool,
}

/// A queue for many producers and many consumers. An item counts towards the byte budget until it
/// is released, not only until it is taken.
pub struct WorkQueue<T> {
    state: Mutex<QueueState<T>>,
    /// Consumers wait for `has_items` and producers for `has_room`, so that only threads that can
    /// continue are woken.
    has_items: Condvar,
    has_room: Condvar,
    budget: usize,
}

impl<T> WorkQueue<T> {
    /// Creates a queue that allows `budget` bytes in flight. A single larger item is accepted when
    /// no other bytes are in flight.
    pub fn new(budget: usize) -> Self {
        let state = QueueState { items: VecDeque::new(), in_flight: 0, closed: false };
        Self {
            state: Mutex::new(state),
            has_items: Condvar::new(),
            has_room: Condvar::new(),
            budget,
        }
    }

    /// Waits for room and adds the item. Returns `false` if the queue is closed; the item is
    /// dropped then.
    pub fn push(&self, item: T, bytes: usize) -> bool {
        let mut state = self.state.lock();
        while !state.closed
            && state.in_flight > 0
            && state.in_flight.saturating_add(bytes) > self.budget
        {
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

    /// Waits for an item. `None` when the queue is closed and empty. The caller must return the
    /// item's bytes with [`WorkQueue::release_bytes`].
    pub fn pop(&self) -> Option<(T, usize)> {
        let mut state = self.state.lock();
        let is_waiting = |state: &mut QueueState<T>| state.items.is_empty() && !state.closed;
        self.has_items.wait_while(&mut state, is_waiting);
        state.items.pop_front()
    }

    /// Releases the bytes of an item. Waiting producers are woken when half of the budget is free.
    pub fn release_bytes(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.in_flight -= bytes;
        let is_low = state.in_flight <= self.budget / 2;
        drop(state);
        // If each released item woke a producer, the producer would go back to sleep a thousand
        // times in a raw import of 1.4 GB.
        if is_low {
            self.has_room.notify_all();
        }
    }

    /// Closes the queue. Items in it are still handed out.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.wake_all();
    }

    /// Closes the queue after a failure. Items in it are dropped.
    pub fn abort(&self) {
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
                        // Slower than the producer, so that the budget is the limiting factor.
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
    fn an_item_larger_than_the_budget_passes_when_it_is_alone() {
        let queue = WorkQueue::new(10);
        assert!(queue.push((), 50));
        let (_, bytes) = queue.pop().unwrap();
        queue.release_bytes(bytes);
        assert!(queue.push((), 50));
    }

    #[test]
    fn a_waiting_producer_resumes_when_half_of_the_budget_is_free() {
        let queue = WorkQueue::new(100);
        (0..3).for_each(|_| assert!(queue.push((), 30)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.push((), 20));
            // Long enough for the producer to start waiting, and then to show that it was not
            // woken.
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
