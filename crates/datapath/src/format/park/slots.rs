//! Parks clusters on the target itself (rung C of the ladder in `park`), at offsets whose final
//! content is not written yet.
//!
//! An uncompressed cluster ends up on the target once, and a compressed one is smaller than its
//! result. The final content and the waiting clusters therefore fit on the target together, except
//! for clusters that only snapshots use. Slots are taken from the end of the target downwards,
//! because images are mostly written from its beginning. When final data needs a slot that is
//! taken, the parked cluster moves. A slot that is freed reads as zeros again at the end.
//!
//! A file may temporarily grow to twice the size of the disk; it is truncated before the commit.
//! Final data never claims an offset beyond the disk, so clusters that wait there never have to
//! move, and truncating costs less than zeroing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use bytes::Bytes;
use stream::error::Error;
use stream::marks::HELD_BYTES;

use crate::disk::Writer;

/// The set of guest clusters whose final content has been written. It is stored as bit sets of
/// 4096 clusters, which exist only where they have members.
#[derive(Default)]
struct FinalClusters {
    sets: BTreeMap<u64, Box<[u64; 64]>>,
}

impl FinalClusters {
    fn insert(&mut self, cluster: u64) {
        let set = self.sets.entry(cluster / 4096).or_insert_with(|| Box::new([0; 64]));
        set[Self::word_index(cluster)] |= 1 << (cluster % 64);
    }

    fn contains(&self, cluster: u64) -> bool {
        self.sets
            .get(&(cluster / 4096))
            .is_some_and(|set| set[Self::word_index(cluster)] >> (cluster % 64) & 1 == 1)
    }

    fn word_index(cluster: u64) -> usize {
        usize::try_from(cluster % 4096 / 64).unwrap_or(0)
    }
}

/// Memory that a slot takes in one of the collections: 16 bytes in a table or node that is half
/// full.
const SLOT_BYTES: u64 = 48;

/// Memory that a bit set takes: 512 bytes, and its entry in the tree.
const SET_BYTES: u64 = 576;

/// The slots of a target. Slot `n` is the range of guest cluster `n`. If the target has space
/// beyond the disk, there are slots there too.
pub(super) struct TargetSlots {
    cluster: u64,
    /// Slots below this one are never used: they lie in the held first MiB.
    first: u64,
    /// Slots from this one on are taken, final or listed in `free`.
    next: u64,
    top: u64,
    finals: FinalClusters,
    /// Maps a taken slot to the host offset of the cluster in it.
    taken: HashMap<u64, u64>,
    free: Vec<u64>,
    /// Free slots that still contain their old data. They are zeroed together at the end, unless
    /// they are reused before.
    stale: BTreeSet<u64>,
    /// Slots from this one on need no zeroing, because a file is truncated there.
    cut_off: u64,
}

impl TargetSlots {
    /// Creates the slots for a disk of `virtual_size` bytes on a target that holds `capacity`
    /// bytes. A file may grow to twice the size of the disk.
    pub(super) fn new(cluster: u64, virtual_size: u64, capacity: u64) -> Self {
        let top = capacity.min(virtual_size.saturating_mul(2)) / cluster;
        Self {
            cluster,
            first: HELD_BYTES.div_ceil(cluster),
            next: top,
            top,
            finals: FinalClusters::default(),
            taken: HashMap::new(),
            free: Vec::new(),
            stale: BTreeSet::new(),
            cut_off: virtual_size.div_ceil(cluster),
        }
    }

    /// Bytes of memory that the collections of slots take.
    pub(super) fn memory_bytes(&self) -> u64 {
        let slots = self.taken.len() + self.free.len() + self.stale.len();
        slots as u64 * SLOT_BYTES + self.finals.sets.len() as u64 * SET_BYTES
    }

    /// Marks the clusters of a guest range as final and zeroes stale slots among them. Returns the
    /// taken slots in the range, each with the host offset of its cluster. The caller must read
    /// and free them before it writes the range.
    pub(super) fn claim_range(
        &mut self,
        guest: u64,
        length: u64,
        writer: &Writer<'_>,
    ) -> Result<Vec<(u64, u64)>, Error> {
        let mut taken = Vec::new();
        let last = (guest + length.max(1) - 1) / self.cluster;
        for cluster in guest / self.cluster..=last {
            self.finals.insert(cluster);
            if self.stale.remove(&cluster) {
                self.zero_slots(cluster..cluster + 1, writer)?;
            }
            if let Some(host) = self.taken.get(&cluster) {
                taken.push((cluster, *host));
            }
        }
        Ok(taken)
    }

    /// Writes a cluster into a free slot and returns the slot. `None` if no slot is free, or if
    /// the target has no space for it.
    pub(super) fn write_cluster(
        &mut self,
        host: u64,
        bytes: &[u8],
        writer: &mut Writer<'_>,
    ) -> Result<Option<u64>, Error> {
        let Some(slot) = self.find_free() else {
            return Ok(None);
        };
        // Zero the device up to the slot now; zeroing it later would destroy the parked cluster.
        writer.zero_until(self.top * self.cluster)?;
        match writer.disk().write_cached(slot * self.cluster, bytes) {
            Ok(()) => {
                self.stale.remove(&slot);
                self.taken.insert(slot, host);
                Ok(Some(slot))
            }
            // This is not an error yet, because the caller tries the scratch directory next.
            Err(error) if error.is_no_space() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn find_free(&mut self) -> Option<u64> {
        while let Some(slot) = self.free.pop() {
            if !self.finals.contains(slot) {
                return Some(slot);
            }
        }
        while self.next > self.first {
            self.next -= 1;
            if !self.finals.contains(self.next) {
                return Some(self.next);
            }
        }
        None
    }

    pub(super) fn read_slot(&self, slot: u64, writer: &Writer<'_>) -> Result<Bytes, Error> {
        let mut bytes = vec![0; usize::try_from(self.cluster).unwrap_or(0)];
        writer.disk().read_at(slot * self.cluster, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Frees a slot that is no longer needed.
    pub(super) fn free_slot(&mut self, slot: u64, writer: &Writer<'_>) -> Result<(), Error> {
        self.taken.remove(&slot);
        if self.finals.contains(slot) {
            return self.zero_slots(slot..slot + 1, writer);
        }
        self.free.push(slot);
        self.stale.insert(slot);
        Ok(())
    }

    /// Ends the parking once no cluster waits any more: all slots that were used read as zeros
    /// again.
    pub(super) fn finish_parking(&mut self, writer: &Writer<'_>) -> Result<(), Error> {
        let mut stale = std::mem::take(&mut self.stale).into_iter().peekable();
        while let Some(first) = stale.next() {
            let mut end = first + 1;
            while stale.next_if_eq(&end).is_some() {
                end += 1;
            }
            self.zero_slots(first..end, writer)?;
        }
        Ok(())
    }

    /// Zeroes `slots`. Does nothing on a target that was not zeroed to begin with, because its
    /// gaps are filled later.
    fn zero_slots(&self, slots: Range<u64>, writer: &Writer<'_>) -> Result<(), Error> {
        let disk = writer.disk();
        let end = if disk.is_device() { slots.end } else { slots.end.min(self.cut_off) };
        if disk.is_zeroed() && slots.start < end {
            disk.zero_range(slots.start * self.cluster..end * self.cluster)?;
        }
        Ok(())
    }
}
