//! State shared by the thread that reads an .xz file and the threads that decode its blocks.
//!
//! ```text
//!  reader ── bytes of blocks, in order ──► waiting (bounded) ──► worker: one block at a time
//!  reader ◄── chunks, in order or not ◄─── ready (bounded) ◄─────┘
//! ```
//!
//! Deadlocks are impossible for two reasons. Blocks are taken in order, and all bytes of a block
//! come before the bytes of the next one, so the oldest block in progress always has its bytes.
//! Also, a worker that holds the chunk that the reader needs next does not have to wait for room.

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use stream::error::DecodeError;

use super::decoder::BlockDecoder;
use super::state::{AssignedBlock, PoolState, ReaderStep};
use super::walk::BlockPart;

/// The state, with a condition variable for each side that may wait for a change.
#[derive(Default)]
pub(super) struct BlockPool {
    state: Mutex<PoolState>,
    reader: Condvar,
    workers: Condvar,
}

impl BlockPool {
    /// Changes the state and wakes the workers.
    pub(super) fn change_state(&self, change: impl FnOnce(&mut PoolState)) {
        change(&mut self.state.lock());
        // Wake all workers: one may wait for a block, another for input, a third for room.
        self.workers.notify_all();
    }

    /// Calls `attempt` until it returns a value. In between, waits for a change of the state.
    fn wait_for<T>(
        &self,
        changed: &Condvar,
        mut attempt: impl FnMut(&mut PoolState) -> Option<T>,
    ) -> T {
        let mut state = self.state.lock();
        loop {
            match attempt(&mut state) {
                Some(value) => return value,
                None => changed.wait(&mut state),
            }
        }
    }
}

/// Methods for the reader.
impl BlockPool {
    /// Waits for the next action of the reader. Returns `Feed` only if `has_more` is true, that
    /// is, if the reader is not yet at the end of the file, and `Done` only if it is false.
    pub(super) fn next_step(&self, has_more: bool) -> ReaderStep {
        let step = self.wait_for(&self.reader, |state| state.next_step(has_more));
        if matches!(step, ReaderStep::Deliver(_)) {
            self.workers.notify_all();
        }
        step
    }

    /// Closes the pool. The workers then return instead of waiting or taking another block.
    pub(super) fn close(&self) {
        self.change_state(|state| state.closed = true);
    }
}

/// Methods for the workers.
impl BlockPool {
    /// Waits for a block. `None` if the workers should return.
    pub(super) fn take_block(&self) -> Option<AssignedBlock> {
        self.wait_for(&self.workers, |state| {
            if state.closed { Some(None) } else { state.take_block().map(Some) }
        })
    }

    /// Waits for the next part of the block `number`.
    pub(super) fn take_part(&self, number: u64) -> BlockPart {
        let part = self.wait_for(&self.workers, |state| state.take_part(number));
        self.reader.notify_one();
        part
    }

    /// Delivers a chunk of the block `number` that belongs at `offset`, and waits until there is
    /// room for it. Returns `false` if the chunk is not needed any more.
    pub(super) fn deliver_chunk(&self, number: u64, offset: u64, bytes: &Bytes) -> bool {
        let is_needed =
            self.wait_for(&self.workers, |state| state.add_ready(number, offset, bytes));
        self.reader.notify_one();
        is_needed
    }

    /// Ends the work on the block `number`. The outcome is a decoder that can be reused, `None` if
    /// the block was abandoned, or an error.
    pub(super) fn finish_block(
        &self,
        number: u64,
        outcome: Result<Option<BlockDecoder>, DecodeError>,
    ) {
        self.change_state(|state| state.finish_block(number, outcome));
        self.reader.notify_one();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::super::state::{AHEAD_BYTES, READY_BYTES, WAITING_BYTES};
    use super::super::walk::{XzBlock, XzFilePart};
    use super::*;

    pub(in super::super) fn begin(dictionary: u64) -> XzFilePart {
        XzFilePart::Begin(XzBlock { stream_header: [0; 12], dictionary, start: 0, offset: 0 })
    }

    pub(in super::super) fn bytes_part(length: usize) -> XzFilePart {
        XzFilePart::Block(BlockPart::Bytes(bytes(length)))
    }

    fn bytes(length: usize) -> Bytes {
        Bytes::from(vec![7; length])
    }

    fn bad(offset: u64) -> Result<Option<BlockDecoder>, DecodeError> {
        Err(DecodeError::Truncated { codec: "xz", offset })
    }

    /// Returns a pool with `blocks` blocks, all of them taken.
    fn pool(blocks: u64) -> BlockPool {
        let pool = BlockPool::default();
        for number in 0..blocks {
            pool.change_state(|state| state.feed_part(begin(0)));
            assert_eq!(pool.take_block().unwrap().number, number);
        }
        pool
    }

    /// Checks that `action` waits until `release` is called, and then returns.
    fn waits(pool: &BlockPool, action: impl FnOnce() + Send, release: impl FnOnce(&BlockPool)) {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(action);
            // A waiting thread cannot be observed directly, so the check is that it has not
            // returned after 20 ms.
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            release(pool);
            waiting.join().unwrap();
        });
    }

    #[test]
    fn the_reader_stops_feeding_when_enough_input_waits() {
        let pool = pool(1);
        for _ in 0..WAITING_BYTES / (1 << 20) {
            assert!(matches!(pool.next_step(true), ReaderStep::Feed));
            pool.change_state(|state| state.feed_part(bytes_part(1 << 20)));
        }
        let feed = || assert!(matches!(pool.next_step(true), ReaderStep::Feed));
        waits(&pool, feed, |pool| assert!(matches!(pool.take_part(0), BlockPart::Bytes(_))));
    }

    #[test]
    fn a_full_store_takes_only_the_next_chunk_in_order() {
        let pool = pool(2);
        let half = AHEAD_BYTES / 2;
        let start = u64::try_from(half).unwrap();
        assert!(pool.deliver_chunk(1, start, &bytes(half)));
        let deliver = || assert!(pool.deliver_chunk(1, 2 * start, &bytes(half)));
        waits(&pool, deliver, |pool| {
            // A chunk of the oldest block does not wait, and reading it makes room.
            assert!(pool.deliver_chunk(0, 0, &bytes(half)));
            for expected in [0, start] {
                assert!(
                    matches!(pool.next_step(true), ReaderStep::Deliver((at, _)) if at == expected)
                );
            }
        });
    }

    #[test]
    fn without_order_any_ready_chunk_is_delivered() {
        let pool = pool(2);
        pool.change_state(|state| state.any_order = true);
        assert!(pool.deliver_chunk(1, 1000, &bytes(READY_BYTES)));
        let deliver = || assert!(pool.deliver_chunk(0, 0, &bytes(1)));
        waits(&pool, deliver, |pool| {
            assert!(matches!(pool.next_step(false), ReaderStep::Deliver((1000, _))));
        });
        assert!(matches!(pool.next_step(false), ReaderStep::Deliver((0, _))));
    }

    #[test]
    fn the_first_bad_block_is_reported_when_none_before_it_can_fail() {
        let pool = pool(4);
        pool.finish_block(3, bad(3));
        assert!(!pool.deliver_chunk(4, 0, &bytes(1)), "chunks behind a bad block are not needed");
        pool.finish_block(0, Ok(None));
        let fail = || {
            let step = pool.next_step(true);
            assert!(matches!(step, ReaderStep::Fail(DecodeError::Truncated { offset: 1, .. })));
        };
        waits(&pool, fail, |pool| {
            pool.finish_block(2, bad(2));
            pool.finish_block(1, bad(1));
        });
    }

    #[test]
    fn closing_wakes_waiting_workers() {
        let empty = pool(0);
        waits(&empty, || assert!(empty.take_block().is_none()), BlockPool::close);

        let starved = pool(1);
        let starve = || assert!(matches!(starved.take_part(0), BlockPart::Cut));
        waits(&starved, starve, BlockPool::close);

        let full = pool(1);
        let deliver = || assert!(!full.deliver_chunk(0, 1, &bytes(AHEAD_BYTES + 1)));
        waits(&full, deliver, BlockPool::close);
    }
}
