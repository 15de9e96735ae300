//! State that the thread that reads an .xz file shares with the threads that decode its blocks.
//!
//! ```text
//!  reader ── bytes of blocks, in order ──► waiting (bounded) ──► worker: one block at a time
//!  reader ◄── chunks, in order or not ◄─── ready (bounded) ◄─────┘
//! ```
//!
//! Nothing can get stuck: blocks are taken in order and all bytes of a block come before those of the next, so the
//! oldest block that is being decoded has its bytes; and a worker with the chunk that the reader needs next need not
//! wait for room.

use parking_lot::{Condvar, Mutex};

use bytes::Bytes;

use super::decoder::BlockDecoder;
use super::state::{Extent, Food, Placed, State, Taken};
use super::walk::Block;
use crate::error::DecodeError;

/// The next thing that the reader has to do.
pub(super) enum Step {
    /// Take this chunk.
    Deliver(Placed),
    /// Feed more of the file.
    Feed,
    /// Give up.
    Fail(DecodeError),
    /// Nothing: all blocks that began are decoded and delivered.
    Done,
}

/// The state, with a bell for each side that may wait for it to change.
#[derive(Default)]
pub(super) struct Pool {
    state: Mutex<State>,
    reader: Condvar,
    workers: Condvar,
}

impl Pool {
    /// Changes the state in a way that workers may wait for.
    fn for_workers(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.workers.notify_all();
    }
}

/// The reader's side.
impl Pool {
    /// Lets chunks be delivered in any order from now on.
    pub(super) fn allow_any_order(&self) {
        self.for_workers(|state| state.any_order = true);
    }

    /// Waits until there is something to do. It is not `Feed` unless the reader `has_more`, nor `Done` if so.
    pub(super) fn step(&self, has_more: bool) -> Step {
        let mut state = self.state.lock();
        loop {
            if let Some(chunk) = state.take_ready() {
                drop(state);
                self.workers.notify_all();
                return Step::Deliver(chunk);
            }
            if let Some(error) = state.take_failure() {
                return Step::Fail(error);
            }
            match has_more {
                true if state.is_hungry() => return Step::Feed,
                false if state.is_done() => return Step::Done,
                _ => self.reader.wait(&mut state),
            }
        }
    }

    /// A block begins.
    pub(super) fn begin(&self, block: Block) {
        self.for_workers(|state| state.begin(block));
    }

    /// Adds bytes to the block that began last.
    pub(super) fn feed(&self, bytes: Bytes) {
        self.for_workers(|state| state.feed(bytes));
    }

    /// The block that began last is complete and decodes to `decoded` bytes.
    pub(super) fn complete(&self, decoded: u64) {
        self.for_workers(|state| state.end(Extent::Whole(decoded)));
    }

    /// Ends the feeding, also in the middle of the block that began last.
    pub(super) fn cut(&self) {
        self.for_workers(|state| state.end(Extent::Cut));
    }

    /// Makes the workers return soon.
    pub(super) fn close(&self) {
        self.for_workers(|state| state.closed = true);
    }
}

/// The workers' side.
impl Pool {
    /// Waits for a block; `None` when the workers should return.
    pub(super) fn take(&self) -> Option<Taken> {
        let mut state = self.state.lock();
        while !state.closed {
            if let Some(taken) = state.take_block() {
                return Some(taken);
            }
            self.workers.wait(&mut state);
        }
        None
    }

    /// Waits for bytes of the block `number`.
    pub(super) fn food(&self, number: u64) -> Food {
        let mut state = self.state.lock();
        loop {
            if let Some(food) = state.take_food(number) {
                drop(state);
                self.reader.notify_one();
                return food;
            }
            self.workers.wait(&mut state);
        }
    }

    /// Hands over a chunk of the block `number` that belongs at `offset`; waits for room. `false` if it is not needed.
    pub(super) fn deliver(&self, number: u64, offset: u64, bytes: Bytes) -> bool {
        let mut state = self.state.lock();
        while !state.is_abandoned(number) && !state.has_room(offset, &bytes) {
            self.workers.wait(&mut state);
        }
        if state.is_abandoned(number) {
            return false;
        }
        state.add_ready(offset, bytes);
        drop(state);
        self.reader.notify_one();
        true
    }

    /// The block `number` is decoded, and its decoder can be used again; or it is given up.
    pub(super) fn finish(&self, number: u64, outcome: Result<Option<BlockDecoder>, DecodeError>) {
        self.for_workers(|state| state.finish(number, outcome));
        self.reader.notify_one();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::super::state::{AHEAD_BYTES, READY_BYTES, WAITING_BYTES};
    use super::*;

    pub(in super::super) fn block(dictionary: u64) -> Block {
        Block {
            stream_header: [0; 12],
            dictionary,
            start: 0,
            offset: 0,
        }
    }

    pub(in super::super) fn bytes(length: usize) -> Bytes {
        Bytes::from(vec![7; length])
    }

    fn bad(offset: u64) -> Result<Option<BlockDecoder>, DecodeError> {
        Err(DecodeError::Truncated { codec: "xz", offset })
    }

    /// A pool with `blocks` blocks, all taken.
    fn pool(blocks: u64) -> Pool {
        let pool = Pool::default();
        for number in 0..blocks {
            pool.begin(block(0));
            assert_eq!(pool.take().unwrap().number, number);
        }
        pool
    }

    /// Checks that `action` does not return before `release` was called, and does then.
    fn waits(pool: &Pool, action: impl FnOnce() + Send, release: impl FnOnce(&Pool)) {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(action);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            release(pool);
            waiting.join().unwrap();
        });
    }

    #[test]
    fn the_reader_feeds_until_enough_waits() {
        let pool = pool(1);
        for _ in 0..WAITING_BYTES / (1 << 20) {
            assert!(matches!(pool.step(true), Step::Feed));
            pool.feed(bytes(1 << 20));
        }
        let feed = || assert!(matches!(pool.step(true), Step::Feed));
        waits(&pool, feed, |pool| {
            assert!(matches!(pool.food(0), Food::Bytes(_)))
        });
    }

    #[test]
    fn in_order_only_the_next_chunk_passes_a_full_store() {
        let pool = pool(2);
        let half = AHEAD_BYTES / 2;
        let start = u64::try_from(half).unwrap();
        assert!(pool.deliver(1, start, bytes(half)));
        let deliver = || assert!(pool.deliver(1, 2 * start, bytes(half)));
        waits(&pool, deliver, |pool| {
            // The oldest block's chunk does not wait, and makes room when it is read.
            assert!(pool.deliver(0, 0, bytes(half)));
            for expected in [0, start] {
                assert!(matches!(pool.step(true), Step::Deliver((at, _)) if at == expected));
            }
        });
    }

    #[test]
    fn in_any_order_what_is_ready_is_delivered() {
        let pool = pool(2);
        pool.allow_any_order();
        assert!(pool.deliver(1, 1000, bytes(READY_BYTES)));
        let deliver = || assert!(pool.deliver(0, 0, bytes(1)));
        waits(&pool, deliver, |pool| {
            assert!(matches!(pool.step(false), Step::Deliver((1000, _))));
        });
        assert!(matches!(pool.step(false), Step::Deliver((0, _))));
    }

    #[test]
    fn the_first_bad_block_is_reported_when_none_before_it_can_fail() {
        let pool = pool(4);
        pool.finish(3, bad(3));
        assert!(!pool.deliver(4, 0, bytes(1)), "what follows is not needed");
        pool.finish(0, Ok(None));
        let fail = || {
            let step = pool.step(true);
            assert!(matches!(
                step,
                Step::Fail(DecodeError::Truncated { offset: 1, .. })
            ));
        };
        waits(&pool, fail, |pool| {
            pool.finish(2, bad(2));
            pool.finish(1, bad(1));
        });
    }

    #[test]
    fn closing_wakes_workers_that_wait() {
        let empty = pool(0);
        waits(&empty, || assert!(empty.take().is_none()), Pool::close);

        let starved = pool(1);
        let starve = || assert!(matches!(starved.food(0), Food::Nothing));
        waits(&starved, starve, Pool::close);

        let full = pool(1);
        let deliver = || assert!(!full.deliver(0, 1, bytes(AHEAD_BYTES + 1)));
        waits(&full, deliver, Pool::close);
    }
}
