//! Repeats what an interrupted writer has done, from the tables that it has flushed.
//!
//! The place of each cluster follows from the clusters before it, so a writer that repeats the
//! work knows what every entry must be. An entry that differs shows damage, or a hostile file.

use super::{
    COMPRESSED, COPIED, ImageSink, L2_ENTRIES, L2_SPAN_BYTES, Qcow2Writer, SECTOR_BYTES,
    SECTORS_SHIFT, WRITTEN_CLUSTER_BYTES, misuse,
};
use crate::bytes_at::be64;
use crate::offsets::{Guest, Host};
use crate::stream::guest_order::GuestRange;
use crate::{Error, Format};

/// An incomplete image that can be read.
pub trait IncompleteImage: ImageSink {
    /// Fills `bytes` from `host`. Fails if the image ends before that.
    fn read_at(&mut self, host: Host, bytes: &mut [u8]) -> Result<(), Self::Error>;
}

impl Qcow2Writer {
    /// Repeats on a new writer what another writer of the same size has done for the first `end`
    /// bytes of the disk, a multiple of the cluster size. The tables come from `image`, and must be
    /// flushed at least up to `end`. Calls `passed` for each stored cluster in the order of the
    /// disk; the other clusters are zero.
    ///
    /// Everything in `image` may be damaged: the call fails unless each entry is what this writer
    /// would have written. Afterwards cut the image to [`Self::image_bytes`], because ranges that
    /// are not written must read as zeros.
    pub fn replay<F: IncompleteImage>(
        &mut self,
        end: u64,
        image: &mut F,
        mut passed: impl FnMut(&mut F, GuestRange) -> Result<(), F::Error>,
    ) -> Result<(), F::Error> {
        let l1_host = self.known_l1()?;
        let most = self.expected_bytes.map(|bytes| bytes.div_ceil(WRITTEN_CLUSTER_BYTES));
        let clusters = end / WRITTEN_CLUSTER_BYTES;
        if self.position > 0
            || !end.is_multiple_of(WRITTEN_CLUSTER_BYTES)
            || most.is_none_or(|most| most < clusters)
        {
            return Err(misuse("resume", end).into());
        }
        let mut table = vec![0; usize::try_from(L2_ENTRIES * 8).unwrap_or(0)];
        for index in 0..end.div_ceil(L2_SPAN_BYTES) {
            let until = end.min((index + 1) * L2_SPAN_BYTES);
            let mut entry = [0; 8];
            image.read_at(l1_host + index * 8, &mut entry)?;
            let entry = u64::from_be_bytes(entry);
            if entry == 0 {
                self.append_zeros(until - self.position);
                continue;
            }
            image.read_at(Host(entry & !COPIED), &mut table)?;
            self.replay_table(entry, &table, until, image, &mut passed)?;
        }
        self.allocator.reserve_block(image)?;
        self.packed_end = self.packed_end.filter(|end| !end.is_multiple_of(WRITTEN_CLUSTER_BYTES));
        Ok(())
    }

    /// Repeats the L2 table to which `l1_entry` refers, for the disk before `until`.
    fn replay_table<F: IncompleteImage>(
        &mut self,
        l1_entry: u64,
        table: &[u8],
        until: u64,
        image: &mut F,
        passed: &mut impl FnMut(&mut F, GuestRange) -> Result<(), F::Error>,
    ) -> Result<(), F::Error> {
        let mut at = 0;
        while self.position < until {
            let entry = be64(table, at).unwrap_or(0);
            at += 8;
            if entry == 0 {
                self.append_zeros(WRITTEN_CLUSTER_BYTES);
                continue;
            }
            let is_compressed = entry & COMPRESSED != 0;
            let is_first =
                self.l2.as_ref().is_none_or(|(index, ..)| *index != self.position / L2_SPAN_BYTES);
            if is_first || is_compressed {
                self.allocator.reserve_block(image)?;
            }
            let slot = self.open_l2(image)?;
            if is_first && self.l1.entries.last() != Some(&l1_entry) {
                return Err(unexpected("L1", l1_entry).into());
            }
            let guest = Guest(self.position);
            let range = if is_compressed {
                self.replay_compressed(entry, guest, image)?
            } else {
                self.replay_stored(entry, guest, image)?
            };
            self.set_entry(slot, entry);
            self.position += WRITTEN_CLUSTER_BYTES;
            passed(image, range)?;
        }
        Ok(())
    }

    fn replay_stored<F: IncompleteImage>(
        &mut self,
        entry: u64,
        guest: Guest,
        image: &mut F,
    ) -> Result<GuestRange, F::Error> {
        let host = Host(entry & !COPIED);
        if entry & COPIED == 0 || !self.allocator.allocate_at(host, image)? {
            return Err(unexpected("L2", entry).into());
        }
        Ok(GuestRange { guest, host, stored_bytes: WRITTEN_CLUSTER_BYTES, is_compressed: false })
    }

    fn replay_compressed<F: IncompleteImage>(
        &mut self,
        entry: u64,
        guest: Guest,
        image: &mut F,
    ) -> Result<GuestRange, F::Error> {
        let host = Host(entry & ((1 << SECTORS_SHIFT) - 1));
        let sectors = ((entry & (COMPRESSED - 1)) >> SECTORS_SHIFT) + 1;
        let end = Host((host.0 / SECTOR_BYTES + sectors) * SECTOR_BYTES);
        // The exact end of a cluster is not stored: only that it lies in the last sector.
        let is_behind_last = self
            .packed_end
            .is_some_and(|last| host <= last && last.0 < host.0.saturating_add(SECTOR_BYTES));
        let is_packed = !host.is_multiple_of(WRITTEN_CLUSTER_BYTES);
        let clusters = end.0.div_ceil(WRITTEN_CLUSTER_BYTES) - host.0 / WRITTEN_CLUSTER_BYTES;
        let stored_bytes = end - host;
        if entry & COPIED != 0
            || is_packed && !is_behind_last
            || clusters > 1 + u64::from(is_packed)
            || self.allocator.allocate_packed(is_packed.then_some(host), stored_bytes, image)?
                != host
        {
            return Err(unexpected("L2", entry).into());
        }
        self.packed_end = Some(end);
        Ok(GuestRange { guest, host, stored_bytes, is_compressed: true })
    }
}

/// The error for an entry that this writer would not have written.
fn unexpected(table: &str, entry: u64) -> Error {
    let host = Host(entry & !(COPIED | COMPRESSED));
    Format::Qcow2.corrupt_error(format!("an {table} entry of the interrupted image differs"), host)
}
