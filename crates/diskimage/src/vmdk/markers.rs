//! Finds grains by the markers before them, in a stream that is read in one pass and whose
//! directory follows its grains. At the end, the tables have to agree with the markers.

use super::contents::VmdkContents;
use super::header::{GrainDirectory, HEADER_BYTES, SECTOR, VmdkHeader};
use super::kinds::{MARKED_DIRECTORY, MARKED_FOOTER, MARKED_TABLE, MARKER, MARKER_TYPE};
use super::marker::{MARKER_BYTES, MarkerKind, TYPE_BYTES, VmdkMarker};
use crate::offsets::Host;
use crate::wanted_ranges::{LoadedTable, RangeBatch, RangeRole};
use crate::{Error, Format};

/// The type of a marker in its sector, and the end of the marker.
const TYPE_AT: usize = 12;
const MARKER_END: usize = 16;

/// Follows a stream from marker to marker.
#[derive(Debug, Default)]
pub(super) struct MarkerWalk {
    contents: VmdkContents,
    /// Offset of the directory, according to the footer.
    directory: Option<Host>,
    /// The offset after the end-of-stream marker, once that marker has arrived.
    end: Option<Host>,
    /// The part of a grain table that has arrived.
    table: Vec<u8>,
}

impl MarkerWalk {
    /// Requests the first marker.
    pub(super) fn first_marker(header: &VmdkHeader) -> RangeBatch {
        let mut first = RangeBatch::default();
        push_marker(&mut first, header.overhead);
        first
    }

    pub(super) fn parse_table(
        &mut self,
        header: &VmdkHeader,
        table: LoadedTable<'_>,
        next: &mut RangeBatch,
    ) -> Result<(), Error> {
        match table.kind {
            MARKER => self.learn_marker(header, table, next)?,
            MARKER_TYPE => self.learn_type(header, table, next)?,
            MARKED_TABLE => self.learn_table_sector(header, table, next)?,
            MARKED_DIRECTORY => self.contents.add_directory(table, next)?,
            _ => self.directory = Some(directory_of(header, table.host, table.bytes)?),
        }
        Ok(())
    }

    /// Bytes of memory that the contents use.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.contents.memory_bytes()
    }

    fn learn_marker(
        &mut self,
        header: &VmdkHeader,
        table: LoadedTable<'_>,
        next: &mut RangeBatch,
    ) -> Result<(), Error> {
        let host = table.host;
        let Some(marker) = VmdkMarker::parse(table.bytes) else {
            return Err(Format::Vmdk.corrupt_error("a marker is truncated", host));
        };
        let behind = host + MARKER_BYTES;
        if marker.size == 0 {
            next.push_table(behind, TYPE_BYTES, MARKER_TYPE, marker.value);
            return Ok(());
        }
        self.check_no_footer(host)?;
        let guest = marker.grain_start(header, host)?;
        self.contents.add_grain(header, guest.0 / header.grain, host, next)?;
        let size = u64::from(marker.size);
        next.push_data(behind, size, RangeRole::Compressed, guest);
        push_marker(next, (behind + size).next_unit(SECTOR));
        Ok(())
    }

    /// Handles the type of a marker. `LoadedTable::note` is the value of the marker.
    fn learn_type(
        &mut self,
        header: &VmdkHeader,
        table: LoadedTable<'_>,
        next: &mut RangeBatch,
    ) -> Result<(), Error> {
        let host = Host(table.host.0 - MARKER_BYTES);
        let start = host + SECTOR;
        let kind = crate::bytes_at::le32(table.bytes, 0).and_then(MarkerKind::from_number);
        if kind == Some(MarkerKind::EndOfStream) {
            if self.directory.is_some() || table.note != 0 {
                return self.learn_end(header, host, table.note);
            }
            // Zeros are padding if the footer has not come. Xen Orchestra pads behind its grains.
            push_marker(next, start);
            return Ok(());
        }
        self.check_no_footer(host)?;
        let (length, marked) = match kind {
            Some(MarkerKind::GrainTable) => (header.table_bytes(), Some(MARKED_TABLE)),
            Some(MarkerKind::Directory) => (header.directory_bytes(), Some(MARKED_DIRECTORY)),
            // A footer always has one sector, whatever the marker says: QEMU expects it at the end
            // of the image.
            Some(MarkerKind::Footer) => (HEADER_BYTES as u64, Some(MARKED_FOOTER)),
            // Readers that use the tables never see other markers.
            Some(MarkerKind::EndOfStream) | None => (0, None),
        };
        // The marker states how far to skip, and the header how much to read: VMware pads its
        // tables. Xen Orchestra states 0 sectors.
        let sectors = match (kind, table.note) {
            (Some(MarkerKind::Footer), _) => 1,
            (_, 0) => length.div_ceil(SECTOR),
            (_, sectors) => sectors,
        };
        let end = sectors.checked_mul(SECTOR).and_then(|bytes| start.checked_add(bytes));
        let Some(end) = end.filter(|end| *end - start >= length) else {
            let what = format!("a marker states {sectors} sectors for a table of {length} bytes");
            return Err(Format::Vmdk.corrupt_error(what, host));
        };
        if marked == Some(MARKED_TABLE) {
            self.table.clear();
            next.push_table(start, SECTOR, MARKED_TABLE, table.note);
            return Ok(());
        }
        if let Some(marked) = marked {
            next.push_table(start, length, marked, 0);
        }
        push_marker(next, end);
        Ok(())
    }

    /// Handles a sector after the marker of grain tables. `LoadedTable::note` is the number of
    /// sectors that are left, or 0 if it is unknown: Xen Orchestra writes all tables after one
    /// marker that states 0 sectors. Then the next marker is their end.
    fn learn_table_sector(
        &mut self,
        header: &VmdkHeader,
        sector: LoadedTable<'_>,
        next: &mut RangeBatch,
    ) -> Result<(), Error> {
        let (host, left) = (sector.host, sector.note);
        if left == 0 && is_zero(&self.table) && begins_section(header, sector.bytes) {
            let note = crate::bytes_at::le64(sector.bytes, 0).unwrap_or(0);
            let bytes = sector.bytes.get(TYPE_AT..MARKER_END).unwrap_or_default();
            let marker = LoadedTable { kind: MARKER_TYPE, host: host + MARKER_BYTES, note, bytes };
            return self.learn_type(header, marker, next);
        }
        self.table.extend_from_slice(sector.bytes);
        let table_bytes = usize::try_from(header.table_bytes()).unwrap_or(usize::MAX);
        if let Some(table) = self.table.get(..table_bytes) {
            let start = Host((host + SECTOR).0.saturating_sub(self.table.len() as u64));
            self.contents.add_table(header, start, table, next);
            self.table.clear();
        }
        match left {
            1 => push_marker(next, host + SECTOR),
            _ => next.push_table(host + SECTOR, SECTOR, MARKED_TABLE, left.saturating_sub(1)),
        }
        Ok(())
    }

    fn check_no_footer(&self, host: Host) -> Result<(), Error> {
        match self.directory {
            None => Ok(()),
            Some(_) => Err(Format::Vmdk.corrupt_error(
                "something other than the end of the stream follows the footer",
                host,
            )),
        }
    }

    fn learn_end(&mut self, header: &VmdkHeader, host: Host, value: u64) -> Result<(), Error> {
        let Some(directory) = self.directory else {
            return Err(Format::Vmdk.corrupt_error("the stream ends without a footer", host));
        };
        if value != 0 {
            return Err(Format::Vmdk
                .corrupt_error(format!("the end-of-stream marker states {value} sectors"), host));
        }
        self.end = Some(host + SECTOR);
        self.contents.check_directory(header, directory)
    }

    /// Checks that the image ends after its end-of-stream marker. `end` is the end of the image.
    pub(super) fn check_end(&self, end: Host) -> Result<(), Error> {
        match self.end {
            Some(expected) if end > expected => Err(Format::Vmdk.corrupt_error(
                format!("{} bytes follow the end of the stream", end - expected),
                expected,
            )),
            Some(expected) if end == expected => Ok(()),
            _ => {
                let offset = self.end.map_or(end, |expected| Host(expected.0 - SECTOR));
                Err(Error::truncated_error("the end-of-stream marker", offset, end))
            }
        }
    }
}

/// Returns the offset of the directory according to the footer at `host`. Everything else in the
/// footer has to agree with `header`.
pub(super) fn directory_of(header: &VmdkHeader, host: Host, footer: &[u8]) -> Result<Host, Error> {
    let footer = VmdkHeader::parse(footer)?;
    if !header.agrees_with(&footer) {
        return Err(Format::Vmdk.corrupt_error("the footer contradicts the header", host));
    }
    // QEMU requires the image to reach its first grain.
    if footer.overhead > host {
        return Err(
            Format::Vmdk.corrupt_error("the footer states that all grains come after it", host)
        );
    }
    match footer.directory {
        GrainDirectory::At(directory) => Ok(directory),
        GrainDirectory::AtEnd => Err(Format::Vmdk
            .corrupt_error("the footer does not say where the grain directory is", host)),
    }
}

fn push_marker(batch: &mut RangeBatch, host: Host) {
    batch.push_table(host, MARKER_BYTES, MARKER, 0);
}

/// True for a sector that contains the marker of tables, of a directory or of a footer. A grain
/// table looks different: no entry refers to the first sectors of the image, where the header is.
/// If entry 1 stands for zeros, a table may look like a marker of tables, and is taken for a table.
fn begins_section(header: &VmdkHeader, sector: &[u8]) -> bool {
    let Some((marker, padding)) = sector.split_at_checked(MARKER_END) else { return false };
    let kinds = if header.has_zeroed_grains { 2..=3 } else { 1..=3 };
    VmdkMarker::parse(marker).is_some_and(|marker| marker.size == 0)
        && crate::bytes_at::le32(marker, TYPE_AT).is_some_and(|kind| kinds.contains(&kind))
        && is_zero(padding)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
