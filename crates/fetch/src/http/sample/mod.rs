//! Samples of received bytes. After a broken connection they show whether the server still has the
//! same object, although it sends no validator.
//!
//! ```text
//!  HttpDownload ── each chunk ─► DownloadSampler ── digests of some blocks ─► ReceivedSample
//!                                └─ copy of the last bytes                    (one per object)
//! ```
//!
//! Blocks of fixed size are ranked by a secret random order, and the digests of the lowest-ranked
//! blocks received so far are kept. They are a uniform sample of these blocks, in whatever order
//! the blocks arrived, and each block is known to be in the sample or not before it is hashed: of
//! 4 GiB, about 18 MiB are. After a break, some of the blocks are requested again and compared. The
//! response with the rest of the object begins with the last bytes received, which are compared
//! too.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use fastrand::Rng;
use parking_lot::Mutex;
use stream::digest::{DigestAlgorithm, RunningDigest};
use stream::error::{SourceAdvice, SourceError, SourceErrorKind};

/// Size of a block. Requesting a smaller one would not be faster.
pub(super) const BLOCK_BYTES: u64 = 32 << 10;

/// Blocks whose digests are kept: twice as many as one check compares, so that checks differ.
const KEPT_BLOCKS: usize = 64;

/// Size of the copy of the last bytes.
const TAIL_BYTES: usize = 1 << 20;

/// Most and fewest bytes that one check requests again, half of them blocks, half of them the tail.
const CHECK_BYTES: (u64, u64) = (128 << 10, 2 << 20);

/// All checks together should request no more than this and [`SHARE`] of the received bytes. Each
/// uses a quarter of the rest, so that later ones find something left.
const FREE_BYTES: u64 = 4 << 20;

/// Part of the received bytes that is requested again.
const SHARE: u64 = 128;

/// The blocks of an object whose digests are known. All connections to the object share it.
#[derive(Debug)]
pub(super) struct ReceivedSample {
    seed: u64,
    state: Mutex<SampleState>,
}

#[derive(Debug, Default)]
struct SampleState {
    /// The kept blocks by their ranks.
    kept: BTreeMap<u64, SampledBlock>,
    /// Bytes that the checks so far have compared.
    checked_bytes: u64,
}

/// A block and the digest of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SampledBlock {
    start: u64,
    digest: String,
}

/// The blocks and bytes to compare after a break.
#[derive(Debug)]
pub(super) struct SampleCheck {
    /// The blocks to request.
    pub(super) blocks: Vec<SampledBlock>,
    /// The number of bytes before the break to request.
    pub(super) tail_bytes: u64,
}

impl ReceivedSample {
    pub(super) fn new() -> Self {
        Self { seed: fastrand::u64(..), state: Mutex::default() }
    }

    /// Returns the rank of the block at `start`. The seed is secret, so a server cannot know which
    /// blocks will be compared.
    fn rank(&self, start: u64) -> u64 {
        Rng::with_seed(self.seed ^ start).u64(..)
    }

    /// True if the block at `start` belongs to the sample once it is received.
    fn wants_block(&self, start: u64) -> bool {
        let state = self.state.lock();
        let is_full = state.kept.len() >= KEPT_BLOCKS;
        let worst = state.kept.last_key_value().map(|(rank, _)| *rank);
        !is_full || worst.is_some_and(|worst| self.rank(start) < worst)
    }

    fn keep_block(&self, block: SampledBlock) {
        let mut state = self.state.lock();
        state.kept.insert(self.rank(block.start), block);
        if state.kept.len() > KEPT_BLOCKS {
            state.kept.pop_last();
        }
    }

    /// Chooses what to compare after a break at byte `received`, with `tail` known bytes before it.
    fn plan_check(&self, received: u64, tail: usize) -> SampleCheck {
        let state = self.state.lock();
        let rest = (FREE_BYTES + received / SHARE).saturating_sub(state.checked_bytes);
        let half = (rest / 4).clamp(CHECK_BYTES.0, CHECK_BYTES.1) / 2;
        let count = usize::try_from(half / BLOCK_BYTES).unwrap_or(KEPT_BLOCKS);
        let mut blocks = fastrand::choose_multiple(state.kept.values().cloned(), count);
        blocks.sort_unstable_by_key(|block| block.start);
        SampleCheck { blocks, tail_bytes: half.min(tail as u64) }
    }

    /// Fails unless `bytes`, which the server sent again, have the digest of `block`.
    pub(super) fn check_block(
        &self,
        block: &SampledBlock,
        bytes: &[u8],
    ) -> Result<(), SourceError> {
        self.state.lock().checked_bytes += bytes.len() as u64;
        let mut digest = RunningDigest::new(DigestAlgorithm::Sha256);
        digest.update(bytes);
        if digest.finish_digest() != block.digest {
            return Err(difference_error(&block.range()));
        }
        Ok(())
    }
}

impl SampledBlock {
    /// Returns the position of the block.
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start + BLOCK_BYTES
    }
}

/// Creates the error for bytes that differ from those received before.
fn difference_error(range: &Range<u64>) -> SourceError {
    let message = format!(
        "the object changed during the transfer: the server has other bytes at {} to {} than before the connection broke. Start the \
         import again",
        range.start, range.end
    );
    SourceError::new(SourceErrorKind::Changed, message).with_advice(SourceAdvice::InMessage)
}

/// Samples the bytes of one download as they arrive.
pub(super) struct DownloadSampler<'a> {
    sample: &'a ReceivedSample,
    position: u64,
    /// The last bytes before `position`.
    tail: VecDeque<u8>,
    /// The digest of the current block so far, if it belongs to the sample.
    digest: Option<RunningDigest>,
}

impl<'a> DownloadSampler<'a> {
    /// Begins at byte `position`.
    pub(super) fn new(sample: &'a ReceivedSample, position: u64) -> Self {
        Self { sample, position, tail: VecDeque::new(), digest: None }
    }

    /// Records the next bytes.
    pub(super) fn record(&mut self, bytes: &[u8]) {
        let (_, last) = bytes.split_at(bytes.len().saturating_sub(TAIL_BYTES));
        let surplus = (self.tail.len() + last.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        self.tail.extend(last);
        let mut rest = bytes;
        while !rest.is_empty() {
            let start = self.position - self.position % BLOCK_BYTES;
            if self.position == start {
                let is_wanted = self.sample.wants_block(start);
                self.digest = is_wanted.then(|| RunningDigest::new(DigestAlgorithm::Sha256));
            }
            let left = usize::try_from(start + BLOCK_BYTES - self.position).unwrap_or(rest.len());
            let part;
            (part, rest) = rest.split_at(left.min(rest.len()));
            self.position += part.len() as u64;
            if let Some(digest) = &mut self.digest {
                digest.update(part);
            }
            if self.position == start + BLOCK_BYTES
                && let Some(digest) = self.digest.take()
            {
                self.sample.keep_block(SampledBlock { start, digest: digest.finish_digest() });
            }
        }
    }

    /// Chooses what to compare with the server's object before the download is resumed; `None` if
    /// nothing was received.
    pub(super) fn plan_check(&self) -> Option<SampleCheck> {
        let is_begun = !self.tail.is_empty();
        is_begun.then(|| self.sample.plan_check(self.position, self.tail.len()))
    }

    /// Fails unless `bytes`, which begin `before` bytes before the current position, are those that
    /// were received.
    pub(super) fn check_tail(&self, before: u64, bytes: &[u8]) -> Result<(), SourceError> {
        self.sample.state.lock().checked_bytes += bytes.len() as u64;
        let skipped = usize::try_from(before).ok().and_then(|all| self.tail.len().checked_sub(all));
        let known = skipped.map(|skipped| self.tail.range(skipped..));
        let is_same = known.is_some_and(|known| {
            known.len() >= bytes.len() && known.zip(bytes).all(|(known, byte)| known == byte)
        });
        if !is_same {
            let start = self.position.saturating_sub(before);
            return Err(difference_error(&(start..start + bytes.len() as u64)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
