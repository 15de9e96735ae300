//! Ranges to be read, and ranges that are known to be zeros.

use std::collections::VecDeque;
use std::ops::Range;

use super::ProtocolViolation;

/// Number of bytes that one request for block status covers.
const WINDOW_BYTES: u64 = 1 << 30;

/// Shorter runs of zeros are read with the data around them, because two requests cost more.
const SMALL_HOLE_BYTES: u64 = 64 << 10;

/// Maximum number of extents that are kept of one reply. The status of the bytes after them is
/// requested again.
const MAX_EXTENTS: usize = 1 << 16;

/// Minimum number of bytes that a useful reply describes, if more were requested. A smaller hole
/// is read anyway, and a server that describes single bytes would otherwise be asked forever.
const MIN_ANSWER_BYTES: u64 = SMALL_HOLE_BYTES;

/// A run of a disk, which begins where the previous one ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockExtent {
    pub end: u64,
    pub zero: bool,
}

/// The reply to a request for block status, built from its runs.
pub(crate) struct BlockStatus {
    asked: Range<u64>,
    at: u64,
    extents: Vec<BlockExtent>,
    /// True if more extents arrived than are kept.
    is_full: bool,
}

impl BlockStatus {
    pub(crate) fn new(asked: Range<u64>) -> Self {
        Self { at: asked.start, asked, extents: Vec::new(), is_full: false }
    }

    /// True if something was described already.
    pub(crate) fn has_begun(&self) -> bool {
        self.at > self.asked.start
    }

    /// Adds the next run: `length` bytes, which may be zeros. The last one may extend beyond the
    /// requested range.
    pub(crate) fn add_run(&mut self, length: u32, zero: bool) -> Result<(), ProtocolViolation> {
        if length == 0 {
            return Err(ProtocolViolation(format!(
                "block status of no bytes at offset {}",
                self.at
            )));
        }
        if self.at >= self.asked.end {
            return Err(ProtocolViolation(format!(
                "block status extends beyond the {} requested bytes at offset {}",
                self.asked.end - self.asked.start,
                self.asked.start
            )));
        }
        self.add_until(self.at.saturating_add(length.into()), zero);
        Ok(())
    }

    /// Adds all runs, which the used `areas` of the disk determine.
    pub(crate) fn add_areas(&mut self, areas: &[Range<u64>]) {
        let first = areas.partition_point(|area| area.end <= self.at);
        let end = self.asked.end;
        for area in areas[first..].iter().take_while(|area| area.start < end) {
            self.add_until(area.start, true);
            self.add_until(area.end, false);
        }
        self.add_until(end, true);
    }

    fn add_until(&mut self, end: u64, zero: bool) {
        if end <= self.at {
            return;
        }
        self.at = end;
        let end = end.min(self.asked.end);
        let has_room = self.extents.len() < MAX_EXTENTS;
        match self.extents.last_mut() {
            _ if self.is_full => {}
            Some(last) if last.zero == zero => last.end = end,
            _ if has_room => self.extents.push(BlockExtent { end, zero }),
            _ => self.is_full = true,
        }
    }

    /// Returns the extents that are known now, at least one.
    pub(super) fn into_extents(self) -> Result<Vec<BlockExtent>, ProtocolViolation> {
        if self.extents.is_empty() {
            return Err(ProtocolViolation(format!(
                "no block status for {} bytes at offset {}",
                self.asked.end - self.asked.start,
                self.asked.start
            )));
        }
        Ok(self.extents)
    }
}

/// The next step in reading a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadStep {
    /// Bytes that have to be read.
    Read(Range<u64>),
    /// Bytes that are zeros.
    Zeros(Range<u64>),
    /// A range whose block status has to be requested first.
    Ask(Range<u64>),
}

/// Cuts ranges into steps. Knowledge about the disk is kept from one range to the next.
pub(super) struct ReadPlan {
    size: u64,
    /// Size of a block. Requests begin and end at multiples of it.
    block: u64,
    longest_read: u64,
    /// True if the server provides block status.
    asks: bool,
    /// Known extents, from `known_from` on.
    known: VecDeque<BlockExtent>,
    known_from: u64,
}

impl ReadPlan {
    /// Creates a plan for a disk of `size` bytes, which is read in multiples of `block`. Block
    /// status is used if `asks` is true.
    pub(super) fn new(size: u64, block: u32, longest_read: u64, asks: bool) -> Self {
        Self {
            size,
            block: block.into(),
            longest_read,
            asks,
            known: VecDeque::new(),
            known_from: 0,
        }
    }

    /// Returns the step for the front of `range`, which must not be empty.
    pub(super) fn next_step(&mut self, range: &Range<u64>) -> ReadStep {
        if !self.asks {
            return self.plan_read(range.start..range.end);
        }
        while let Some(front) = self.known.front().filter(|front| front.end <= range.start) {
            self.known_from = front.end;
            self.known.pop_front();
        }
        match self.known.front() {
            Some(front) if range.start >= self.known_from => {
                let end = front.end.min(range.end);
                if front.zero && self.is_worth_skipping(range.start..front.end) {
                    ReadStep::Zeros(range.start..end)
                } else {
                    self.plan_read(range.start..self.data_end(range))
                }
            }
            _ => {
                // A reply may end within a block, and the part that is known must not be requested
                // again.
                let known_until = Some(self.known_from).filter(|until| *until <= range.start);
                let start = self.align_down(range.start).max(known_until.unwrap_or(0));
                ReadStep::Ask(start..start.saturating_add(WINDOW_BYTES).min(self.size))
            }
        }
    }

    /// Records the reply to [`ReadStep::Ask`], which begins at `from`.
    pub(super) fn record_extents(&mut self, from: u64, extents: Vec<BlockExtent>) {
        let until = extents.last().map_or(from, |last| last.end);
        self.asks &= until == self.size || until - from >= MIN_ANSWER_BYTES;
        self.known_from = from;
        self.known = extents.into();
    }

    /// Stops using block status, because the server cannot provide it.
    pub(super) fn stop_asking(&mut self) {
        self.asks = false;
    }

    /// Returns the end of the data at the front of `range`: the next run of zeros that is worth
    /// skipping, or the end of the longest read.
    fn data_end(&self, range: &Range<u64>) -> u64 {
        let enough = range.end.min(range.start.saturating_add(self.longest_read));
        let mut end = self.known_from;
        for (index, extent) in self.known.iter().enumerate() {
            let skipped = index > 0 && extent.zero && self.is_worth_skipping(end..extent.end);
            if skipped || end >= enough {
                break;
            }
            end = extent.end;
        }
        end.min(enough)
    }

    fn is_worth_skipping(&self, zeros: Range<u64>) -> bool {
        zeros.end - zeros.start >= SMALL_HOLE_BYTES || zeros.end == self.size
    }

    /// Plans one read at the front of `range`. Reads end at multiples of the longest length, so
    /// all reads have the same boundaries.
    fn plan_read(&self, range: Range<u64>) -> ReadStep {
        let longest = self.longest_read;
        let boundary = (range.start / longest).saturating_add(1).saturating_mul(longest);
        ReadStep::Read(range.start..range.end.min(boundary))
    }

    /// Returns the whole blocks that contain `range`, because requests consist of whole blocks.
    /// The last block of the disk may be incomplete.
    pub(super) fn align_range(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.checked_next_multiple_of(self.block).unwrap_or(self.size);
        self.align_down(range.start)..end.min(self.size)
    }

    fn align_down(&self, offset: u64) -> u64 {
        offset - offset % self.block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn plan(size: u64, block: u32, longest_read: u64) -> ReadPlan {
        ReadPlan::new(size, block, longest_read, true)
    }

    /// Returns all steps through `range`, with every request for block status answered from
    /// `extents`.
    fn steps(plan: &mut ReadPlan, mut range: Range<u64>, extents: &[BlockExtent]) -> Vec<ReadStep> {
        let mut steps = Vec::new();
        while !range.is_empty() {
            match plan.next_step(&range) {
                ReadStep::Ask(asked) => {
                    assert!(asked.start <= range.start && asked.end > range.start);
                    let known = extents.iter().filter(|extent| extent.end > asked.start);
                    plan.record_extents(asked.start, known.copied().collect());
                }
                step => {
                    let (ReadStep::Read(done) | ReadStep::Zeros(done)) = &step else {
                        unreachable!()
                    };
                    assert_eq!(done.start, range.start);
                    range.start = done.end;
                    steps.push(step);
                }
            }
        }
        steps
    }

    fn extents(ends: &[u64]) -> Vec<BlockExtent> {
        let alternating = ends.iter().enumerate();
        alternating.map(|(index, end)| BlockExtent { end: *end, zero: index % 2 == 1 }).collect()
    }

    #[test]
    fn large_holes_are_skipped_and_small_ones_read() {
        let known = extents(&[MIB, 3 * MIB, 4 * MIB, 4 * MIB + 4096, 5 * MIB, 8 * MIB]);
        assert_eq!(
            steps(&mut plan(8 * MIB, 1, 2 * MIB), 0..8 * MIB, &known),
            [
                ReadStep::Read(0..MIB),
                ReadStep::Zeros(MIB..3 * MIB),
                ReadStep::Read(3 * MIB..4 * MIB),
                ReadStep::Read(4 * MIB..5 * MIB),
                ReadStep::Zeros(5 * MIB..8 * MIB),
            ]
        );
    }

    #[test]
    fn reads_follow_the_block_sizes_of_the_server() {
        let mut plan = plan(MIB, 4096, 65536);
        plan.stop_asking();
        let steps = steps(&mut plan, 5000..MIB, &[]);
        assert_eq!(steps[0], ReadStep::Read(5000..65536));
        assert_eq!(steps.len(), 16);
        assert_eq!(plan.align_range(&(5000..65536)), 4096..65536);
        assert_eq!(plan.align_range(&(5000..9000)), 4096..12288);
    }

    #[test]
    fn known_extents_are_used_for_the_next_range() {
        let mut plan = plan(1 << 40, 512, 2 * MIB);
        assert_eq!(
            plan.next_step(&(0..4 * MIB)),
            ReadStep::Ask(0..1 << 30),
            "one window at a time"
        );
        plan.record_extents(0, extents(&[8 * MIB, 64 * MIB]));
        assert_eq!(plan.next_step(&(12 * MIB..16 * MIB)), ReadStep::Zeros(12 * MIB..16 * MIB));
        assert_eq!(
            plan.next_step(&(64 * MIB..65 * MIB)),
            ReadStep::Ask(64 * MIB..64 * MIB + (1 << 30))
        );
    }

    #[test]
    fn ranges_are_cut_at_the_ends_of_used_areas() {
        for (range, expected) in [
            (0..70, &[(10, true), (30, false), (50, true), (60, false), (70, true)][..]),
            (15..25, &[(25, false)]),
            (30..50, &[(50, true)]),
            (55..58, &[(58, false)]),
            (60..61, &[(61, true)]),
        ] {
            let mut status = BlockStatus::new(range.clone());
            status.add_areas(&[10..20, 20..30, 50..60]);
            let extents = expected.iter().map(|(end, zero)| BlockExtent { end: *end, zero: *zero });
            assert_eq!(status.into_extents().unwrap(), extents.collect::<Vec<_>>(), "{range:?}");
        }
    }

    #[test]
    fn endless_extents_take_limited_memory() {
        let mut status = BlockStatus::new(0..1 << 30);
        for byte in 0..4 << 20 {
            status.add_run(1, byte % 2 != 0).unwrap();
        }
        assert!(status.extents.capacity() <= 2 * MAX_EXTENTS, "{}", status.extents.capacity());
        let extents = status.into_extents().unwrap();
        let last = BlockExtent { end: MAX_EXTENTS as u64, zero: true };
        assert_eq!((extents.len(), extents.last()), (MAX_EXTENTS, Some(&last)));
    }

    #[test]
    fn a_server_with_tiny_extents_is_not_asked_again() {
        let mut slow = plan(MIB, 1, MIB);
        assert_eq!(slow.next_step(&(0..MIB)), ReadStep::Ask(0..MIB));
        slow.record_extents(0, vec![BlockExtent { end: MIN_ANSWER_BYTES - 1, zero: true }]);
        assert_eq!(slow.next_step(&(0..MIB)), ReadStep::Read(0..MIB));
        let mut usual = plan(MIB, 1, MIB);
        usual.record_extents(0, vec![BlockExtent { end: MIN_ANSWER_BYTES, zero: true }]);
        assert_eq!(usual.next_step(&(0..MIB)), ReadStep::Zeros(0..MIN_ANSWER_BYTES));
        assert_eq!(usual.next_step(&(MIN_ANSWER_BYTES..MIB)), ReadStep::Ask(MIN_ANSWER_BYTES..MIB));
    }

    #[test]
    fn block_status_must_fit_the_request() {
        let status = |descriptors: &[(u32, u32)]| {
            let mut status = BlockStatus::new(10..100);
            for (length, flags) in descriptors {
                status.add_run(*length, *flags & 2 != 0)?;
            }
            status.into_extents()
        };
        let data = BlockExtent { end: 40, zero: false };
        let zeros = BlockExtent { end: 100, zero: true };
        // A hole that is not declared to be zeros is data. The last descriptor may extend beyond
        // the range.
        assert_eq!(status(&[(20, 0), (10, 1), (600, 3)]).unwrap(), [data, zeros]);
        assert_eq!(
            status(&[(30, 0)]).unwrap(),
            [data],
            "an answer may be shorter than the request"
        );
        for wrong in [&[][..], &[(0, 0)], &[(90, 0), (1, 0)], &[(30, 0), (0, 3)]] {
            assert!(status(wrong).is_err(), "{wrong:?}");
        }
    }
}
