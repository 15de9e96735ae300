//! Finds grains by the markers before them, in a stream that is read in one pass and whose
//! directory follows its grains. At the end, the tables have to agree with the markers.

use super::contents::VmdkContents;
use super::header::{GrainDirectory, HEADER_BYTES, SECTOR, VmdkHeader};
use super::kinds::{MARKED_DIRECTORY, MARKED_FOOTER, MARKED_TABLE, MARKER, MARKER_TYPE};
use super::marker::{MARKER_BYTES, MarkerKind, TYPE_BYTES, VmdkMarker};
use crate::offsets::Host;
use crate::wanted_ranges::{LoadedTable, RangeBatch, RangeRole};
use crate::{Error, Format};

/// Follows a stream from marker to marker.
#[derive(Debug, Default)]
pub(super) struct MarkerWalk {
    contents: VmdkContents,
    /// Offset of the directory, according to the footer.
    directory: Option<Host>,
    /// The offset after the end-of-stream marker, once that marker has arrived.
    end: Option<Host>,
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
            MARKED_TABLE => self.contents.add_table(header, table, next),
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
        let number = crate::bytes_at::le32(table.bytes, 0);
        let Some(kind) = number.and_then(MarkerKind::from_number) else {
            return Err(Format::Vmdk
                .corrupt_error(format!("a marker of the unknown type {number:?}"), host));
        };
        // The marker states how far to skip, and the header how much to read: VMware pads its
        // tables.
        let (role, length, sectors) = match kind {
            MarkerKind::EndOfStream => return self.learn_end(header, host, table.note),
            MarkerKind::GrainTable => (MARKED_TABLE, header.table_bytes(), table.note),
            MarkerKind::Directory => (MARKED_DIRECTORY, header.directory_bytes(), table.note),
            // A footer always has one sector, whatever the marker says: QEMU expects it at the end
            // of the image.
            MarkerKind::Footer => (MARKED_FOOTER, HEADER_BYTES as u64, 1),
        };
        self.check_no_footer(host)?;
        let start = host + SECTOR;
        let end = sectors.checked_mul(SECTOR).and_then(|bytes| start.checked_add(bytes));
        match end {
            Some(end) if end - start >= length => {
                next.push_table(start, length, role, 0);
                push_marker(next, end);
                Ok(())
            }
            _ => {
                let what =
                    format!("a marker states {sectors} sectors for a table of {length} bytes");
                Err(Format::Vmdk.corrupt_error(what, host))
            }
        }
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
            _ => Err(Error::Truncated {
                what: "the end-of-stream marker",
                offset: self.end.map_or(end, |expected| Host(expected.0 - SECTOR)),
                end,
            }),
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
