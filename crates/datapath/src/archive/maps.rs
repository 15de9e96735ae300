//! Sparse files, wherever their maps are: in blocks behind the header, in pax records, in front of the data.

use super::entries::{Entries, Kind};
use super::header::{BLOCK_BYTES, Header, more_regions};
use super::number;
use super::pax::Pax;
use super::sparse::{Layout, Regions, check_count};
use crate::error::{ArchiveErrorKind, Error};

/// Digits of a number in a map in front of the data, far more than a size can have.
const MAX_DIGITS: usize = 32;

impl Entries {
    /// A file of old GNU tar: what does not fit into the header lies in blocks behind it.
    pub(super) fn old_sparse_file(&mut self, header: &Header<'_>, pax: &Pax) -> Result<Kind, Error> {
        let stored = self.size(header, pax)?;
        let mut regions = Regions::default();
        let mut more = self.located(header.sparse_regions(&mut regions))?;
        while more {
            let block = self.block()?;
            more = self.located(more_regions(&block, &mut regions))?;
        }
        let size = self.located(header.real_size())?;
        self.sparse_file(regions, Some(size), stored, stored)
    }

    /// A sparse file with `stored` bytes of data in an entry of `in_archive` bytes.
    pub(super) fn sparse_file(
        &mut self,
        regions: Regions,
        size: Option<u64>,
        stored: u64,
        in_archive: u64,
    ) -> Result<Kind, Error> {
        let Some(size) = size else {
            let kind = ArchiveErrorKind::Sparse("comes without the size of the file".to_owned());
            return Err(self.refuse(kind));
        };
        let layout = self.located(Layout::sparse(regions, size, stored))?;
        self.set_data(layout, in_archive);
        Ok(Kind::File {
            size,
            stored,
            is_sparse: true,
        })
    }

    /// A file with its map in front of the data (pax 1.0), both together `in_archive` bytes.
    pub(super) fn file_with_map_before_data(
        &mut self,
        size: Option<u64>,
        in_archive: u64,
    ) -> Result<Kind, Error> {
        let before = self.cursor.offset();
        let regions = self.map_before_data(in_archive)?;
        let map_bytes = self.cursor.offset() - before;
        let Some(stored) = in_archive.checked_sub(map_bytes) else {
            return Err(self.refuse(ArchiveErrorKind::Sparse(format!(
                "takes {map_bytes} bytes, but the entry has {in_archive}"
            ))));
        };
        self.sparse_file(regions, size, stored, in_archive)
    }

    /// The map in front of the data: how many regions, then offset and length of each, a number a line, in whole blocks.
    fn map_before_data(&mut self, size: u64) -> Result<Regions, Error> {
        let start = self.cursor.offset();
        let end = start.saturating_add(size);
        let count = self.map_number(end)?;
        self.located(check_count(count))?;
        let mut regions = Regions::default();
        for _ in 0..count {
            let offset = self.map_number(end)?;
            let length = self.map_number(end)?;
            self.located(regions.push(offset, length))?;
        }
        let bytes = self.cursor.offset() - start;
        self.skip(bytes.next_multiple_of(BLOCK_BYTES as u64) - bytes)?;
        Ok(regions)
    }

    /// A line of the map, which ends before `end`.
    fn map_number(&mut self, end: u64) -> Result<u64, Error> {
        let mut digits = [0; MAX_DIGITS];
        let mut count = 0;
        while self.cursor.offset() < end {
            let Some(&byte) = self.cursor.fill()?.first() else {
                return Err(self.truncated(1));
            };
            self.cursor.consume(1);
            if byte == b'\n' {
                let parsed = digits.get(..count).and_then(number::decimal);
                return self.located(parsed.ok_or_else(bad_number));
            }
            let Some(place) = digits.get_mut(count) else { break };
            *place = byte;
            count += 1;
        }
        return Err(self.refuse(bad_number()));

        fn bad_number() -> ArchiveErrorKind {
            ArchiveErrorKind::Sparse("in front of the data is not made of numbers".to_owned())
        }
    }
}
