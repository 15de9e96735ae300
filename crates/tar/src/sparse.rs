//! The layout of a file: which of its bytes are stored in the archive, and which are holes.

use stream::error::ArchiveErrorKind;
use stream::memory::MemoryGrant;

/// Limit on the number of regions of a file. The list then takes 16 MiB of memory. A disk of 64
/// GiB reaches this number if every second block of 32 KiB is a hole.
pub(super) const MAX_REGIONS: u64 = 1 << 20;

/// A contiguous range of stored bytes.
#[derive(Debug, Clone, Copy)]
struct StoredRange {
    /// Offset of the first byte in the file.
    offset: u64,
    /// Number of bytes.
    length: u64,
}

/// The regions of a file in the order in which they are read. Their number is limited, and their
/// memory counts against the memory budget.
#[derive(Debug, Default)]
pub(super) struct StoredRanges {
    list: Vec<StoredRange>,
    memory: MemoryGrant,
}

impl StoredRanges {
    /// Adds a region. Fails if there are too many, or if the memory budget is exhausted.
    pub(super) fn push(&mut self, offset: u64, length: u64) -> Result<(), ArchiveErrorKind> {
        check_count(self.list.len() as u64 + 1)?;
        if self.list.len() == self.list.capacity() {
            // The vector doubles its capacity when it grows, so charge twice its current size.
            let bytes = 2 * self.list.len() * size_of::<StoredRange>();
            self.memory.resize(bytes as u64)?;
        }
        self.list.push(StoredRange { offset, length });
        Ok(())
    }

    /// The number of regions.
    pub(super) fn count(&self) -> u64 {
        self.list.len() as u64
    }

    /// Removes all regions.
    pub(super) fn clear(&mut self) {
        self.list.clear();
    }
}

/// The regions of a file, and a cursor that moves through their stored bytes.
#[derive(Debug)]
pub(super) struct SparseLayout {
    regions: StoredRanges,
    /// Index of the current region.
    current: usize,
    /// Bytes of the current region that were consumed.
    taken: u64,
}

impl SparseLayout {
    /// Creates the layout of a file without holes.
    pub(super) fn without_holes(size: u64) -> Self {
        let mut regions = StoredRanges::default();
        regions.list.push(StoredRange { offset: 0, length: size });
        Self::from_ranges(regions)
    }

    /// Creates the layout of a file of `size` bytes with `stored` bytes in the archive. Fails if
    /// the regions overlap, are out of order or contradict one of these numbers.
    pub(super) fn with_holes(
        regions: StoredRanges,
        size: u64,
        stored: u64,
    ) -> Result<Self, ArchiveErrorKind> {
        let mut end = 0u64;
        let mut sum = 0u64;
        for StoredRange { offset, length } in &regions.list {
            if *offset < end {
                return Err(sparse_error(&format!(
                    "has a region at {offset:#x}, but the one before it ends at {end:#x}"
                )));
            }
            end = match offset.checked_add(*length) {
                Some(end) if end <= size => end,
                _ => {
                    return Err(sparse_error(&format!(
                        "has {length} bytes at {offset:#x}, beyond the end of the file at {size:#x}"
                    )));
                }
            };
            // The sum cannot overflow: regions do not overlap, so it is at most `end`.
            sum += length;
        }
        if sum != stored {
            return Err(sparse_error(&format!("has {sum} bytes of data, but {stored} are stored")));
        }
        Ok(Self::from_ranges(regions))
    }

    fn from_ranges(regions: StoredRanges) -> Self {
        Self { regions, current: 0, taken: 0 }
    }

    /// Returns the offset of the next stored byte in the file, and the number of bytes from there
    /// to the end of its region.
    pub(super) fn next_range(&mut self) -> Option<(u64, u64)> {
        while let Some(region) = self.regions.list.get(self.current) {
            if self.taken < region.length {
                return Some((region.offset + self.taken, region.length - self.taken));
            }
            self.current += 1;
            self.taken = 0;
        }
        None
    }

    /// Marks `bytes` of the current region as consumed.
    pub(super) fn advance(&mut self, bytes: u64) {
        self.taken += bytes;
    }
}

/// The error for a map that contradicts itself or the header.
pub(super) fn sparse_error(what: &str) -> ArchiveErrorKind {
    ArchiveErrorKind::Damaged(format!("the sparse map {what}"))
}

/// Fails if `count` is more than `MAX_REGIONS`.
pub(super) fn check_count(count: u64) -> Result<(), ArchiveErrorKind> {
    ArchiveErrorKind::check_limit("a number of regions in a sparse map", count, MAX_REGIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(regions: &[(u64, u64)]) -> StoredRanges {
        let mut collected = StoredRanges::default();
        for (offset, length) in regions {
            collected.push(*offset, *length).unwrap();
        }
        collected
    }

    fn layout(
        regions: &[(u64, u64)],
        size: u64,
        stored: u64,
    ) -> Result<SparseLayout, ArchiveErrorKind> {
        SparseLayout::with_holes(collected(regions), size, stored)
    }

    #[test]
    fn sparse_maps_must_fit_the_disk_and_the_stored_size() {
        for (regions, size, stored) in [
            (&[][..], 10, 0),
            (&[(0, 10)], 10, 10),
            (&[(2, 3), (5, 1), (10, 0)], 10, 4),
            (&[(u64::MAX - 1, 1)], u64::MAX, 1),
        ] {
            assert!(layout(regions, size, stored).is_ok(), "{regions:?}");
        }
        for (regions, size, stored) in [
            (&[][..], 10, 1),
            (&[(0, 10)], 10, 9),
            (&[(0, 11)], 10, 11),
            (&[(11, 0)], 10, 0),
            (&[(0, 5), (4, 2)], 10, 7),
            (&[(5, 1), (0, 1)], 10, 2),
            (&[(u64::MAX, 2)], u64::MAX, 2),
        ] {
            assert!(layout(regions, size, stored).is_err(), "{regions:?}");
        }
    }

    #[test]
    fn the_number_of_sparse_regions_is_limited() {
        let mut regions = StoredRanges::default();
        for offset in 0..MAX_REGIONS {
            regions.push(offset, 1).unwrap();
        }
        assert!(matches!(regions.push(0, 1), Err(ArchiveErrorKind::Refused(_))));
        assert_eq!(regions.count(), MAX_REGIONS);
    }

    #[test]
    fn data_is_assigned_to_one_region_after_the_other() {
        let mut layout = layout(&[(2, 3), (7, 0), (8, 1)], 10, 4).unwrap();
        assert_eq!(layout.next_range(), Some((2, 3)));
        layout.advance(2);
        assert_eq!(layout.next_range(), Some((4, 1)));
        layout.advance(1);
        assert_eq!(layout.next_range(), Some((8, 1)));
        layout.advance(1);
        assert_eq!(layout.next_range(), None);
    }
}
