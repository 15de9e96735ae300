//! The reply to one read. Its parts may arrive in any order; its bytes are handed out in order.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use stream::buffer::{CHUNK_BYTES, ChunkBuffer};
use stream::zeros::ZEROS;

use super::ProtocolViolation;

/// Maximum number of separate parts of an incomplete reply. Servers send a reply in order, or
/// nearly so.
const MAX_PARTS: usize = 1024;

/// The bytes of one read, in slots that become chunks. They are laid out in memory as on the disk.
pub(crate) struct ReadAssembly {
    range: Range<u64>,
    slots: VecDeque<AssemblySlot>,
    /// Ranges that have arrived, in ascending order. Ranges that touch each other are merged.
    arrived: Vec<Range<u64>>,
}

/// A part of the read that becomes one chunk. If it has no buffer, all of its bytes that have
/// arrived are zeros.
struct AssemblySlot {
    range: Range<u64>,
    buffer: Option<ChunkBuffer>,
}

impl AssemblySlot {
    fn slot_len(&self) -> usize {
        range_len(&self.range)
    }
}

impl ReadAssembly {
    /// Creates the assembly for a read of `range`, which is held in memory as a whole.
    pub(crate) fn new(range: Range<u64>) -> Self {
        let mut slots = VecDeque::new();
        let mut start = range.start;
        while start < range.end {
            let boundary = (start / CHUNK_BYTES as u64 + 1).saturating_mul(CHUNK_BYTES as u64);
            let end = boundary.min(range.end);
            slots.push_back(AssemblySlot { range: start..end, buffer: None });
            start = end;
        }
        Self { range, slots, arrived: Vec::new() }
    }

    /// Checks a part that the server announces, which is `length` bytes at `offset`, and returns
    /// its range. The part must lie within the requested range and must not have arrived before.
    pub(crate) fn check_part(
        &self,
        offset: u64,
        length: u64,
    ) -> Result<Range<u64>, ProtocolViolation> {
        let end = offset.checked_add(length);
        let Some(end) =
            end.filter(|end| length > 0 && offset >= self.range.start && *end <= self.range.end)
        else {
            return Err(ProtocolViolation(format!(
                "{length} bytes at offset {offset} do not belong to a read of {} bytes at offset {}",
                self.range.end - self.range.start,
                self.range.start
            )));
        };
        let twice = self.arrived.iter().any(|part| part.start < end && offset < part.end);
        if twice {
            return Err(ProtocolViolation(format!(
                "some of the {length} bytes at offset {offset} arrive twice"
            )));
        }
        Ok(offset..end)
    }

    /// Returns the buffer for the first bytes of `part`, which may be shorter than `part`. `part`
    /// was accepted by [`ReadAssembly::check_part`].
    pub(crate) fn part_buffer(&mut self, part: &Range<u64>) -> &mut [u8] {
        self.part_buffers(part).next().unwrap_or_default()
    }

    /// Returns the buffers for all bytes of `part`, in order.
    pub(crate) fn part_buffers(&mut self, part: &Range<u64>) -> impl Iterator<Item = &mut [u8]> {
        self.slots.iter_mut().filter_map(|slot| slot.room_for(part))
    }

    /// Records the arrival of `part`, either as data in [`ReadAssembly::part_buffer`] or as zeros,
    /// which need not be written.
    pub(crate) fn mark_received(&mut self, part: Range<u64>) -> Result<(), ProtocolViolation> {
        let at = self.arrived.partition_point(|before| before.start < part.start);
        self.arrived.insert(at, part);
        self.arrived.dedup_by(|next, before| {
            let touches = before.end == next.start;
            if touches {
                before.end = next.end;
            }
            touches
        });
        if self.arrived.len() > MAX_PARTS {
            return Err(ProtocolViolation(format!(
                "a read of {} bytes is answered in more than {MAX_PARTS} parts out of order",
                self.range.end - self.range.start
            )));
        }
        Ok(())
    }

    /// Returns the range of the read.
    pub(crate) fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Returns the first range of which nothing has arrived.
    pub(crate) fn first_missing(&self) -> Option<Range<u64>> {
        let begin = self.arrived.first().filter(|part| part.start == self.range.start);
        let start = begin.map_or(self.range.start, |part| part.end);
        let next = self.arrived.iter().map(|part| part.start).find(|next| *next > start);
        Some(start..next.unwrap_or(self.range.end)).filter(|range| !range.is_empty())
    }

    /// Copies the bytes of `part`, which was accepted by [`ReadAssembly::check_part`].
    pub(crate) fn fill_part(&mut self, part: &Range<u64>, mut bytes: &[u8]) {
        for room in self.part_buffers(part) {
            let (now, later) = bytes.split_at(room.len().min(bytes.len()));
            room[..now.len()].copy_from_slice(now);
            bytes = later;
        }
    }

    /// Clears the bytes of `part` where a buffer holds bytes of an attempt that was cut off.
    pub(crate) fn zero_part(&mut self, part: &Range<u64>) {
        for slot in self.slots.iter_mut().filter(|slot| slot.buffer.is_some()) {
            slot.room_for(part).unwrap_or_default().fill(0);
        }
    }

    /// True if every byte has arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.range.is_empty() || self.arrived.first() == Some(&self.range)
    }

    /// Returns the next chunk in order, with its offset. Must be called only when the read is
    /// complete.
    pub(crate) fn pop_chunk(&mut self) -> Option<(u64, Bytes)> {
        self.slots.pop_front()?.into_chunk()
    }
}

impl AssemblySlot {
    /// Returns the room for the bytes of `part` that lie in the slot.
    fn room_for(&mut self, part: &Range<u64>) -> Option<&mut [u8]> {
        let Range { start, end } = self.range;
        let (first, last) = (part.start.max(start), part.end.min(end));
        if first >= last {
            return None;
        }
        let length = self.slot_len();
        let buffer = self.buffer.get_or_insert_with(|| {
            let mut buffer = ChunkBuffer::new(start);
            // Holes are never written, so the buffer, which may be a reused one, is zeroed.
            if (first, last) != (start, end) {
                let room = buffer.spare_capacity();
                let used = length.min(room.len());
                room[..used].fill(0);
            }
            buffer
        });
        buffer.spare_capacity().get_mut(range_len(&(start..first))..range_len(&(start..last)))
    }

    fn into_chunk(self) -> Option<(u64, Bytes)> {
        let length = self.slot_len();
        let bytes = match self.buffer {
            Some(mut buffer) => {
                buffer.mark_filled(length as u64);
                buffer.freeze()
            }
            None => Bytes::from_static(ZEROS.get(..length)?),
        };
        Some((self.range.start, bytes))
    }
}

/// Returns the length of a range, which is at most the length of a chunk or a read.
fn range_len(range: &Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
}
