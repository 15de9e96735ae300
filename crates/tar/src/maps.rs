//! Reads sparse files. The map of their regions is stored in blocks after the header (old GNU), in
//! pax records (0.0 and 0.1) or before the data (pax 1.0).

use stream::error::{ArchiveErrorKind, Error};

use super::entries::{TarEntryKind, TarReader};
use super::header::{BLOCK_BYTES, TarHeader, more_regions};
use super::number;
use super::pax::PaxRecords;
use super::sparse::{SparseLayout, StoredRanges, check_count, sparse_error};

/// Limit on the digits of a number in a map before the data. A 64-bit number has at most 20.
const MAX_DIGITS: usize = 32;

impl TarReader {
    /// Reads a sparse file of old GNU tar. Regions that do not fit into the header are in blocks
    /// after it.
    pub(super) fn old_sparse_file(
        &mut self,
        header: &TarHeader<'_>,
        pax: &PaxRecords,
    ) -> Result<TarEntryKind, Error> {
        let stored = self.entry_size(header, pax)?;
        let mut regions = StoredRanges::default();
        let mut more = self.locate_error(header.sparse_regions(&mut regions))?;
        while more {
            let block = self.read_block()?;
            more = self.locate_error(more_regions(&block, &mut regions))?;
        }
        let size = self.locate_error(header.real_size())?;
        self.sparse_file(regions, Some(size), stored, stored)
    }

    /// Begins a sparse file with `stored` bytes of data in an entry of `in_archive` bytes.
    pub(super) fn sparse_file(
        &mut self,
        regions: StoredRanges,
        size: Option<u64>,
        stored: u64,
        in_archive: u64,
    ) -> Result<TarEntryKind, Error> {
        let Some(size) = size else {
            return Err(self.entry_error(sparse_error("comes without the file size")));
        };
        let layout = self.locate_error(SparseLayout::with_holes(regions, size, stored))?;
        self.set_data(layout, in_archive);
        Ok(TarEntryKind::File { size, stored, is_sparse: true })
    }

    /// Reads a sparse file whose map is stored before the data (pax 1.0). Map and data together
    /// occupy `in_archive` bytes.
    pub(super) fn file_with_map_before_data(
        &mut self,
        size: Option<u64>,
        in_archive: u64,
    ) -> Result<TarEntryKind, Error> {
        let before = self.cursor.offset();
        let regions = self.map_before_data(in_archive)?;
        let map_bytes = self.cursor.offset() - before;
        let Some(stored) = in_archive.checked_sub(map_bytes) else {
            let what = format!("takes {map_bytes} bytes, but the entry has {in_archive}");
            return Err(self.entry_error(sparse_error(&what)));
        };
        self.sparse_file(regions, size, stored, in_archive)
    }

    /// Reads the map before the data: the number of regions, then the offset and length of each
    /// region. Each number is on its own line, and the map is padded to whole blocks.
    fn map_before_data(&mut self, size: u64) -> Result<StoredRanges, Error> {
        let start = self.cursor.offset();
        let end = start.saturating_add(size);
        let count = self.map_number(end)?;
        self.locate_error(check_count(count))?;
        let mut regions = StoredRanges::default();
        for _ in 0..count {
            let offset = self.map_number(end)?;
            let length = self.map_number(end)?;
            self.locate_error(regions.push(offset, length))?;
        }
        let bytes = self.cursor.offset() - start;
        self.skip_bytes(bytes.next_multiple_of(BLOCK_BYTES as u64) - bytes)?;
        Ok(regions)
    }

    /// Reads a number of the map. The number has to end with a newline before the offset `end`.
    fn map_number(&mut self, end: u64) -> Result<u64, Error> {
        let mut digits = [0; MAX_DIGITS];
        let mut count = 0;
        while self.cursor.offset() < end {
            let Some(&byte) = self.cursor.fill_buffer()?.first() else {
                return Err(self.truncated_error(1));
            };
            self.cursor.consume(1);
            if byte == b'\n' {
                let parsed = digits.get(..count).and_then(number::parse_decimal);
                return self.locate_error(parsed.ok_or_else(bad_number));
            }
            let Some(place) = digits.get_mut(count) else { break };
            *place = byte;
            count += 1;
        }
        return Err(self.entry_error(bad_number()));

        fn bad_number() -> ArchiveErrorKind {
            sparse_error("before the data does not consist of numbers")
        }
    }
}
