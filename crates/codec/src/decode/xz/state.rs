//! The state of the pool: waiting blocks, blocks in progress, finished chunks, and the limits of
//! each.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use stream::error::DecodeError;

use super::decoder::BlockDecoder;
use super::walk::{BlockPart, XzBlock, XzFilePart};

/// Limit on the compressed bytes that wait for workers. Half of a compressed block is enough to
/// keep two workers busy. `xz -6 -T` puts 24 MiB into a block, which rarely compress to more than
/// 10 MiB, and data that is nearly incompressible is decoded fast.
pub(super) const WAITING_BYTES: usize = 5 << 20;

/// Limit on the decoded bytes that wait for a reader that accepts them in any order. This is
/// enough to keep the workers busy while the reader does other work.
pub(super) const READY_BYTES: usize = 1 << 20;

/// Limit on the decoded bytes that wait for a reader that needs them in order. It bounds how far
/// the workers get ahead of the oldest block. Two workers are always busy if it is half of a
/// block, and `xz -6 -T` writes blocks of 24 MiB.
pub(super) const AHEAD_BYTES: usize = 12 << 20;

/// Limit on the dictionaries of all blocks in progress, in bytes: enough for two of the 8 MiB that
/// `xz -6` uses. A single block may have a larger dictionary.
pub(super) const DICTIONARY_BYTES: u64 = 20 << 20;

/// Compressed bytes that may always wait, even if a large dictionary uses up the memory for
/// waiting bytes.
const LEAST_WAITING_BYTES: u64 = 1 << 20;

/// Bookkeeping memory charged for each piece or block in addition to its bytes, so that many tiny
/// ones cannot exceed the limits.
const PIECE_OVERHEAD_BYTES: usize = 64;
const BLOCK_OVERHEAD_BYTES: usize = 256;

/// A decoded chunk with its offset in the decoded file.
pub(super) type Placed = (u64, Bytes);

/// The next action of the reader.
pub(super) enum ReaderStep {
    /// Return this chunk.
    Deliver(Placed),
    /// Read and feed more of the file.
    Feed,
    /// Return this error.
    Fail(DecodeError),
    /// Nothing is left: all blocks that began are decoded and delivered.
    Done,
}

/// A block that is assigned to a worker.
pub(super) struct AssignedBlock {
    /// The number of the block in the file.
    pub(super) number: u64,
    /// The properties of the block.
    pub(super) block: XzBlock,
    /// A decoder that was used for another block and can be reused.
    pub(super) decoder: Option<BlockDecoder>,
}

/// A block that is not completely decoded.
struct PendingBlock {
    block: XzBlock,
    /// The parts that its worker has not taken.
    parts: VecDeque<BlockPart>,
}

/// The state of the pool. Blocks are numbered in the order of the file.
#[derive(Default)]
pub(super) struct PoolState {
    /// Blocks that are not completely decoded. Those with numbers below `untaken` are assigned to
    /// workers.
    blocks: BTreeMap<u64, PendingBlock>,
    begun: u64,
    untaken: u64,
    /// Total size of the dictionaries of the blocks in progress, in bytes.
    dictionaries: u64,
    /// Decoders without a block, which still hold their dictionaries. They are reused and not
    /// freed, because the allocator of the C library would keep that memory, separately for each
    /// thread.
    idle: Vec<BlockDecoder>,
    waiting_bytes: usize,
    /// Decoded chunks by their offsets in the decoded file.
    ready: BTreeMap<u64, Bytes>,
    ready_bytes: usize,
    delivered: u64,
    /// True if chunks may be delivered in any order.
    pub(super) any_order: bool,
    /// The number of the first block that is known to be damaged, and its error.
    failure: Option<(u64, DecodeError)>,
    /// True if the reader is gone.
    pub(super) closed: bool,
}

fn piece_cost(bytes: &Bytes) -> usize {
    bytes.len() + PIECE_OVERHEAD_BYTES
}

fn part_cost(part: &BlockPart) -> usize {
    match part {
        BlockPart::Bytes(bytes) => piece_cost(bytes),
        BlockPart::End(_) | BlockPart::Cut => PIECE_OVERHEAD_BYTES,
    }
}

/// Methods for the reader.
impl PoolState {
    /// Returns the next action of the reader; `None` if it has to wait. `has_more` is true if the
    /// reader is not yet at the end of the file.
    pub(super) fn next_step(&mut self, has_more: bool) -> Option<ReaderStep> {
        if let Some(chunk) = self.take_ready() {
            Some(ReaderStep::Deliver(chunk))
        } else if let Some(error) = self.take_failure() {
            Some(ReaderStep::Fail(error))
        } else if has_more {
            self.is_hungry().then_some(ReaderStep::Feed)
        } else {
            self.is_done().then_some(ReaderStep::Done)
        }
    }

    /// Returns true if more input can be fed.
    fn is_hungry(&self) -> bool {
        let excess = self.dictionaries.saturating_sub(DICTIONARY_BYTES);
        let limit = (WAITING_BYTES as u64).saturating_sub(excess).max(LEAST_WAITING_BYTES);
        self.failure.is_none() && (self.waiting_bytes as u64) < limit
    }

    /// Returns true if all blocks that began are decoded and delivered.
    fn is_done(&self) -> bool {
        self.blocks.is_empty() && self.ready.is_empty()
    }

    /// Adds the next part of the file. Parts of a block that its worker has abandoned are dropped.
    pub(super) fn feed_part(&mut self, part: XzFilePart) {
        match part {
            XzFilePart::Begin(block) => {
                self.blocks.insert(self.begun, PendingBlock { block, parts: VecDeque::new() });
                self.begun += 1;
                self.waiting_bytes += BLOCK_OVERHEAD_BYTES;
            }
            XzFilePart::Block(part) => {
                let last = self.begun.checked_sub(1);
                if let Some(pending) = last.and_then(|last| self.blocks.get_mut(&last)) {
                    self.waiting_bytes += part_cost(&part);
                    pending.parts.push_back(part);
                }
            }
        }
    }

    fn take_ready(&mut self) -> Option<Placed> {
        let first = self.ready.first_entry()?;
        if !self.any_order && *first.key() != self.delivered {
            return None;
        }
        let (offset, bytes) = first.remove_entry();
        self.ready_bytes -= piece_cost(&bytes);
        self.delivered += bytes.len() as u64;
        Some((offset, bytes))
    }

    /// Returns the error of the first bad block, once no earlier block can fail.
    fn take_failure(&mut self) -> Option<DecodeError> {
        let (bad, _) = self.failure.as_ref()?;
        if self.blocks.range(..bad).next().is_some() {
            return None;
        }
        self.failure.take().map(|(_, error)| error)
    }
}

/// Methods for the workers.
impl PoolState {
    /// Returns true if the result of a block is not needed, because an earlier block is bad or the
    /// reader is gone.
    fn is_abandoned(&self, number: u64) -> bool {
        self.closed || self.failure.as_ref().is_some_and(|(bad, _)| *bad < number)
    }

    /// Takes the next block. `None` if no block is waiting, or if its dictionary has to wait until
    /// others are released.
    pub(super) fn take_block(&mut self) -> Option<AssignedBlock> {
        if self.closed || self.failure.is_some() {
            return None;
        }
        let number = self.untaken;
        let block = self.blocks.get(&number)?.block;
        let dictionaries = self.dictionaries.saturating_add(block.dictionary);
        let is_alone = self.blocks.range(..number).next().is_none();
        // A single block may exceed the limit, because no other block would ever make room for it.
        if !is_alone && dictionaries > DICTIONARY_BYTES {
            return None;
        }
        self.dictionaries = dictionaries;
        self.untaken += 1;
        let decoder = self.idle.pop();
        let idle: u64 = self.idle.iter().map(|idle| idle.dictionary).sum();
        // Decoders are freed only if they exceed the limit: with one decoder for each block, the
        // heaps of 16 threads kept 117 MiB although two dictionaries were in use.
        if dictionaries.saturating_add(idle) > DICTIONARY_BYTES {
            self.idle.clear();
        }
        Some(AssignedBlock { number, block, decoder })
    }

    /// Takes the next part of the block `number`. `None` if its worker has to wait.
    pub(super) fn take_part(&mut self, number: u64) -> Option<BlockPart> {
        if self.is_abandoned(number) {
            return Some(BlockPart::Cut);
        }
        let Some(pending) = self.blocks.get_mut(&number) else {
            return Some(BlockPart::Cut);
        };
        let part = pending.parts.pop_front()?;
        self.waiting_bytes -= part_cost(&part);
        Some(part)
    }

    /// Adds a chunk of the block `number` that belongs at `offset`. Returns `false` if it is not
    /// needed any more, and `None` if it has to wait. The chunk that the reader needs next is
    /// always accepted.
    pub(super) fn add_ready(&mut self, number: u64, offset: u64, bytes: &Bytes) -> Option<bool> {
        if self.is_abandoned(number) {
            return Some(false);
        }
        let (limit, is_next) = if self.any_order {
            (READY_BYTES, self.ready.is_empty())
        } else {
            (AHEAD_BYTES, offset == self.delivered)
        };
        if !is_next && self.ready_bytes + piece_cost(bytes) > limit {
            return None;
        }
        self.ready_bytes += piece_cost(bytes);
        self.ready.insert(offset, bytes.clone());
        Some(true)
    }

    /// Ends the work on the block `number`. The outcome is a decoder that can be reused, `None` if
    /// the block was abandoned, or an error.
    pub(super) fn finish_block(
        &mut self,
        number: u64,
        outcome: Result<Option<BlockDecoder>, DecodeError>,
    ) {
        if let Some(pending) = self.blocks.remove(&number) {
            let parts: usize = pending.parts.iter().map(part_cost).sum();
            self.waiting_bytes -= parts + BLOCK_OVERHEAD_BYTES;
            self.dictionaries -= pending.block.dictionary;
        }
        match outcome {
            Ok(decoder) => self.idle.extend(decoder),
            Err(error) if !self.is_abandoned(number) => self.failure = Some((number, error)),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::tests::{begin, bytes_part};
    use super::*;

    #[test]
    fn tiny_blocks_count_more_than_their_bytes() {
        let mut state = PoolState::default();
        let mut blocks = 0;
        while state.is_hungry() {
            state.feed_part(begin(0));
            state.feed_part(bytes_part(1));
            state.feed_part(XzFilePart::Block(BlockPart::End(1)));
            blocks += 1;
        }
        assert!(blocks < WAITING_BYTES / 300, "{blocks} blocks of a byte");

        while let Some(AssignedBlock { number, .. }) = state.take_block() {
            assert!(matches!(state.take_part(number), Some(BlockPart::Bytes(_))));
            assert!(matches!(state.take_part(number), Some(BlockPart::End(1))));
            state.finish_block(number, Ok(None));
        }
        assert!(state.is_done());
        assert_eq!(state.waiting_bytes, 0);
    }

    #[test]
    fn blocks_with_large_dictionaries_are_decoded_one_at_a_time() {
        let mut state = PoolState::default();
        for dictionary in [DICTIONARY_BYTES * 2, DICTIONARY_BYTES / 2, DICTIONARY_BYTES / 2, 1] {
            state.feed_part(begin(dictionary));
        }
        let first = state.take_block().unwrap().number;
        assert!(state.take_block().is_none(), "a block with a large dictionary is decoded alone");
        state.feed_part(bytes_part(1 << 20));
        assert!(!state.is_hungry(), "its dictionary uses up the memory for waiting input");
        state.finish_block(first, Ok(None));
        assert!(state.take_block().is_some() && state.take_block().is_some());
        assert!(state.take_block().is_none(), "the dictionaries of three blocks exceed the limit");
    }

    #[test]
    fn the_rest_of_a_bad_block_is_dropped() {
        let mut state = PoolState::default();
        state.feed_part(begin(1));
        state.feed_part(bytes_part(1000));
        state.take_block().unwrap();
        state.finish_block(0, Err(DecodeError::Empty));
        state.feed_part(bytes_part(1000));
        state.feed_part(XzFilePart::Block(BlockPart::End(1)));
        assert_eq!((state.waiting_bytes, state.dictionaries), (0, 0));
        assert!(!state.is_hungry() && state.take_failure().is_some());
    }
}
