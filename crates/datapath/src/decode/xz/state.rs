//! The blocks that wait, those that are being decoded, the chunks that are ready; and the bounds of each.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::decoder::BlockDecoder;
use super::walk::XzBlock;
use crate::error::DecodeError;

/// Compressed bytes that may wait for workers. To keep two of them busy it takes half of a compressed block: the 24 MiB
/// that `xz -6 -T` puts into a block are seldom more than 10 MiB compressed, and what can hardly be compressed is decoded
/// fast.
pub(super) const WAITING_BYTES: usize = 5 << 20;

/// Decoded bytes that may wait for a reader that takes them in any order: enough to keep the workers going while
/// the reader is busy.
pub(super) const READY_BYTES: usize = 1 << 20;

/// Decoded bytes that may wait for a reader that wants them in order: how far workers get ahead of the oldest block.
/// Two of them are always busy if it is half of a block, of which `xz -6 -T` makes 24 MiB.
pub(super) const AHEAD_BYTES: usize = 12 << 20;

/// Dictionaries of all blocks that are being decoded: two of the 8 MiB that `xz -6` uses. A single block may have a
/// larger one.
pub(super) const DICTIONARY_BYTES: u64 = 20 << 20;

/// Compressed bytes that may wait even if a large dictionary takes the memory of all others.
const LEAST_WAITING_BYTES: u64 = 1 << 20;

/// Memory of a piece or a block on top of its bytes, so that tiny ones do not fill the memory with bookkeeping.
const PIECE_OVERHEAD_BYTES: usize = 64;
const BLOCK_OVERHEAD_BYTES: usize = 256;

/// A chunk with its offset in the decoded file.
pub(super) type Placed = (u64, Bytes);

/// Input of a worker for its block.
pub(super) enum WorkerInput {
    /// More bytes of the block.
    Bytes(Bytes),
    /// All bytes of the block have come, and decode to this number.
    Whole(u64),
    /// No more bytes come although the block is not complete, or the block is not needed any more.
    Nothing,
}

/// A block for a worker.
pub(super) struct AssignedBlock {
    /// The number of the block.
    pub(super) number: u64,
    /// Facts about it.
    pub(super) block: XzBlock,
    /// A decoder that has done its work on another block.
    pub(super) decoder: Option<BlockDecoder>,
}

/// The part of a block that is there.
pub(super) enum BlockExtent {
    /// More is to come.
    Arriving,
    /// All of the block is there, and decodes to this number of bytes.
    Whole(u64),
    /// The file ended or became unreadable within it.
    Cut,
}

/// A block that is not decoded yet.
struct PendingBlock {
    block: XzBlock,
    pieces: VecDeque<Bytes>,
    extent: BlockExtent,
}

/// The bookkeeping. Blocks have numbers, in their order.
#[derive(Default)]
pub(super) struct PoolState {
    /// Blocks that are not decoded yet; those before `untaken` have workers.
    blocks: BTreeMap<u64, PendingBlock>,
    begun: u64,
    untaken: u64,
    /// Dictionaries of the blocks that have workers.
    dictionaries: u64,
    /// Decoders without a block, which still have their dictionaries. They are used again rather than freed: the C
    /// library's allocator would keep that memory, for each thread by itself.
    idle: Vec<BlockDecoder>,
    waiting_bytes: usize,
    /// Chunks by their offsets.
    ready: BTreeMap<u64, Bytes>,
    ready_bytes: usize,
    delivered: u64,
    /// True if chunks may be delivered in any order.
    pub(super) any_order: bool,
    /// The number of the first block that is known to be bad, and why.
    failure: Option<(u64, DecodeError)>,
    /// True if the reader is gone.
    pub(super) closed: bool,
}

fn piece_cost(bytes: &Bytes) -> usize {
    bytes.len() + PIECE_OVERHEAD_BYTES
}

/// The reader's side.
impl PoolState {
    /// True if more can be fed.
    pub(super) fn is_hungry(&self) -> bool {
        let excess = self.dictionaries.saturating_sub(DICTIONARY_BYTES);
        let limit = (WAITING_BYTES as u64).saturating_sub(excess).max(LEAST_WAITING_BYTES);
        self.failure.is_none() && (self.waiting_bytes as u64) < limit
    }

    /// True if all blocks that began are decoded and delivered.
    pub(super) fn is_done(&self) -> bool {
        self.blocks.is_empty() && self.ready.is_empty()
    }

    pub(super) fn begin_block(&mut self, block: XzBlock) {
        let pending = PendingBlock { block, pieces: VecDeque::new(), extent: BlockExtent::Arriving };
        self.blocks.insert(self.begun, pending);
        self.begun += 1;
        self.waiting_bytes += BLOCK_OVERHEAD_BYTES;
    }

    /// Adds to the block that began last, unless its worker has given it up.
    pub(super) fn feed_bytes(&mut self, bytes: Bytes) {
        let cost = piece_cost(&bytes);
        if let Some(pending) = self.last_begun() {
            pending.pieces.push_back(bytes);
            self.waiting_bytes += cost;
        }
    }

    /// Ends the block that began last.
    pub(super) fn end_block(&mut self, extent: BlockExtent) {
        if let Some(pending) = self.last_begun()
            && matches!(pending.extent, BlockExtent::Arriving)
        {
            pending.extent = extent;
        }
    }

    fn last_begun(&mut self) -> Option<&mut PendingBlock> {
        let last = self.begun.checked_sub(1)?;
        self.blocks.get_mut(&last)
    }

    pub(super) fn take_ready(&mut self) -> Option<Placed> {
        let first = self.ready.first_entry()?;
        if !self.any_order && *first.key() != self.delivered {
            return None;
        }
        let (offset, bytes) = first.remove_entry();
        self.ready_bytes -= piece_cost(&bytes);
        self.delivered += bytes.len() as u64;
        Some((offset, bytes))
    }

    /// The failure, once no block before it can fail.
    pub(super) fn take_failure(&mut self) -> Option<DecodeError> {
        let (bad, _) = self.failure.as_ref()?;
        if self.blocks.range(..bad).next().is_some() {
            return None;
        }
        self.failure.take().map(|(_, error)| error)
    }
}

/// The workers' side.
impl PoolState {
    /// True if the result of a block does not matter, as one before it is bad or the reader is gone.
    pub(super) fn is_abandoned(&self, number: u64) -> bool {
        self.closed || self.failure.as_ref().is_some_and(|(bad, _)| *bad < number)
    }

    /// The next block, unless its dictionary has to wait for others to be given back.
    pub(super) fn take_block(&mut self) -> Option<AssignedBlock> {
        if self.closed || self.failure.is_some() {
            return None;
        }
        let number = self.untaken;
        let block = self.blocks.get(&number)?.block;
        let dictionaries = self.dictionaries.saturating_add(block.dictionary);
        let is_alone = self.blocks.range(..number).next().is_none();
        if !is_alone && dictionaries > DICTIONARY_BYTES {
            return None;
        }
        self.dictionaries = dictionaries;
        self.untaken += 1;
        let decoder = self.idle.pop();
        let idle: u64 = self.idle.iter().map(|idle| idle.dictionary).sum();
        if dictionaries.saturating_add(idle) > DICTIONARY_BYTES {
            self.idle.clear();
        }
        Some(AssignedBlock { number, block, decoder })
    }

    /// Takes what there is for the block `number`; `None` if its worker has to wait.
    pub(super) fn take_food(&mut self, number: u64) -> Option<WorkerInput> {
        if self.is_abandoned(number) {
            return Some(WorkerInput::Nothing);
        }
        let Some(pending) = self.blocks.get_mut(&number) else {
            return Some(WorkerInput::Nothing);
        };
        if let Some(bytes) = pending.pieces.pop_front() {
            self.waiting_bytes -= piece_cost(&bytes);
            return Some(WorkerInput::Bytes(bytes));
        }
        match pending.extent {
            BlockExtent::Arriving => None,
            BlockExtent::Whole(decoded) => Some(WorkerInput::Whole(decoded)),
            BlockExtent::Cut => Some(WorkerInput::Nothing),
        }
    }

    /// True if a chunk can be added. The one that the reader needs next always can.
    pub(super) fn has_room(&self, offset: u64, bytes: &Bytes) -> bool {
        let (limit, is_next) = match self.any_order {
            true => (READY_BYTES, self.ready.is_empty()),
            false => (AHEAD_BYTES, offset == self.delivered),
        };
        is_next || self.ready_bytes + piece_cost(bytes) <= limit
    }

    pub(super) fn add_ready(&mut self, offset: u64, bytes: Bytes) {
        self.ready_bytes += piece_cost(&bytes);
        self.ready.insert(offset, bytes);
    }

    /// The block `number` is decoded, and its decoder can be used again; or it is given up.
    pub(super) fn finish_block(&mut self, number: u64, outcome: Result<Option<BlockDecoder>, DecodeError>) {
        if let Some(pending) = self.blocks.remove(&number) {
            let pieces: usize = pending.pieces.iter().map(piece_cost).sum();
            self.waiting_bytes -= pieces + BLOCK_OVERHEAD_BYTES;
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
    use super::super::pool::tests::{block, bytes};
    use super::*;

    #[test]
    fn tiny_blocks_cost_more_than_their_bytes() {
        let mut state = PoolState::default();
        let mut blocks = 0;
        while state.is_hungry() {
            state.begin_block(block(0));
            state.feed_bytes(bytes(1));
            state.end_block(BlockExtent::Whole(1));
            blocks += 1;
        }
        assert!(blocks < WAITING_BYTES / 300, "{blocks} blocks of a byte");

        while let Some(AssignedBlock { number, .. }) = state.take_block() {
            assert!(matches!(state.take_food(number), Some(WorkerInput::Bytes(_))));
            assert!(matches!(state.take_food(number), Some(WorkerInput::Whole(1))));
            state.finish_block(number, Ok(None));
        }
        assert!(state.is_done());
        assert_eq!(state.waiting_bytes, 0);
    }

    #[test]
    fn large_dictionaries_take_turns() {
        let mut state = PoolState::default();
        for dictionary in [DICTIONARY_BYTES * 2, DICTIONARY_BYTES / 2, DICTIONARY_BYTES / 2, 1] {
            state.begin_block(block(dictionary));
        }
        let first = state.take_block().unwrap().number;
        assert!(state.take_block().is_none(), "nothing beside a large one");
        state.feed_bytes(bytes(1 << 20));
        assert!(!state.is_hungry(), "the large one has taken the memory of what waits");
        state.finish_block(first, Ok(None));
        assert!(state.take_block().is_some() && state.take_block().is_some());
        assert!(state.take_block().is_none(), "three are too many");
    }

    #[test]
    fn what_is_left_of_a_bad_block_is_forgotten() {
        let mut state = PoolState::default();
        state.begin_block(block(1));
        state.feed_bytes(bytes(1000));
        state.take_block().unwrap();
        state.finish_block(0, Err(DecodeError::Empty));
        state.feed_bytes(bytes(1000));
        state.end_block(BlockExtent::Whole(1));
        assert_eq!((state.waiting_bytes, state.dictionaries), (0, 0));
        assert!(!state.is_hungry() && state.take_failure().is_some());
    }
}
