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
pub(super) mod tests;
