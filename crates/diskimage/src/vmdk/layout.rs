//! Implements the layout interface for the VMDK format.

use bytes::Bytes;

use super::descriptor::CreateType;
use super::header::{GrainDirectory, HEADER_BYTES, SECTOR, VmdkHeader};
use super::kinds::{DIRECTORY, FOOTER, GRAIN_TABLE, MARKED_DIRECTORY, MARKED_FOOTER, MARKED_TABLE};
use super::marker::{MarkerKind, VmdkMarker, grain_range};
use super::markers::{MarkerWalk, directory_of};
use super::tables::GrainTables;
use crate::bytes_at::le32;
use crate::check::mapped::MappedCheck;
use crate::layout::{AccessOrder, ImageCheck, ImageLayout};
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{LoadedTable, RangeBatch};
use crate::{ClusterCompression, CompressedClusters, Error, Format, HeadFacts};

/// Bytes from the marker of the footer to the end of the image: marker, footer, end-of-stream
/// marker.
const FOOTER_BYTES: u64 = 3 * SECTOR;
/// Largest parking unit in bytes.
const MAX_PARKING_UNIT: u64 = 2 << 20;

/// An image, and the positions of its grains that are known so far.
pub(super) struct VmdkLayout {
    facts: HeadFacts,
    header: VmdkHeader,
    map: GrainMap,
}

/// The two ways to find the positions of grains.
enum GrainMap {
    Tables(GrainTables),
    Markers(MarkerWalk),
}

impl VmdkLayout {
    pub(super) fn new(header: VmdkHeader, kind: CreateType) -> Self {
        let mut features = vec![kind.name().to_owned()];
        let unit = header.grain.min(MAX_PARKING_UNIT);
        let is_at_end = header.directory == GrainDirectory::AtEnd;
        if is_at_end {
            features.push("grain directory at the end".to_owned());
        }
        let facts = HeadFacts {
            clusters: header.is_compressed.then_some(CompressedClusters {
                compression: ClusterCompression::Zlib,
                size: header.grain,
            }),
            cluster_size: Some(header.grain),
            // With markers nothing is parked: they state each grain's position before its data.
            parking_unit: (!is_at_end).then_some(unit),
            features,
            ..HeadFacts::new(Format::Vmdk, header.capacity)
        };
        Self { facts, header, map: GrainMap::Tables(GrainTables::default()) }
    }

    /// Checks that the image reaches the offset of its first grain. QEMU requires this even if the
    /// image contains no grains.
    fn check_reaches_grains(&self, image_end: Host) -> Result<(), Error> {
        if image_end.next_unit(SECTOR) >= self.header.overhead {
            return Ok(());
        }
        Err(Error::truncated_error("the first grain", self.header.overhead, image_end))
    }

    /// Requests the last three sectors of the image, which contain the footer.
    fn ask_footer(image_end: Host) -> Result<RangeBatch, Error> {
        let start = match image_end.0.checked_sub(FOOTER_BYTES) {
            Some(start) if start.is_multiple_of(SECTOR) => Host(start),
            _ => {
                let offset = image_end.unit_start(SECTOR);
                return Err(Error::truncated_error("the footer", offset, image_end));
            }
        };
        let mut first = RangeBatch::default();
        first.push_table(start, FOOTER_BYTES, FOOTER, 0);
        Ok(first)
    }

    /// Returns the offset of the directory, according to the end of the image at `host`.
    fn read_footer(header: &VmdkHeader, host: Host, bytes: &[u8]) -> Result<Host, Error> {
        let sector = HEADER_BYTES;
        let is_marker = |at: usize, kind: MarkerKind| {
            let marker = bytes.get(at..).and_then(VmdkMarker::parse);
            let number = le32(bytes, at + 12);
            marker.is_some_and(|marker| marker.size == 0)
                && number.and_then(MarkerKind::from_number) == Some(kind)
        };
        let end = bytes.get(2 * sector..2 * sector + 16);
        if !is_marker(0, MarkerKind::Footer)
            || end.is_none_or(|end| end.iter().any(|byte| *byte != 0))
        {
            return Err(Format::Vmdk.corrupt_error("the image does not end with a footer", host));
        }
        let footer = bytes.get(sector..).unwrap_or_default();
        directory_of(header, host + SECTOR, footer)
    }
}

impl ImageLayout for VmdkLayout {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn ImageCheck> {
        Box::new(MappedCheck::new(self, image_length))
    }

    fn head_facts(&self) -> &HeadFacts {
        &self.facts
    }

    fn initial_ranges(&mut self, access: AccessOrder) -> Result<RangeBatch, Error> {
        let mut tables = GrainTables::default();
        if let AccessOrder::Ranged { image_end } = access {
            tables.add_place(image_end);
        }
        // Like QEMU, use the tables wherever they can be read before the data. The markers are
        // used only if the tables come last and the image is read in one pass.
        match (self.header.directory, access) {
            (GrainDirectory::At(host), _) => {
                if let AccessOrder::Ranged { image_end } = access {
                    self.check_reaches_grains(image_end)?;
                }
                let mut first = RangeBatch::default();
                tables.ask_directory(&self.header, host, &mut first);
                self.map = GrainMap::Tables(tables);
                Ok(first)
            }
            (GrainDirectory::AtEnd, AccessOrder::Ranged { image_end }) => {
                self.map = GrainMap::Tables(tables);
                Self::ask_footer(image_end)
            }
            (GrainDirectory::AtEnd, AccessOrder::OnePass) if self.header.is_compressed && self.header.has_markers => {
                self.map = GrainMap::Markers(MarkerWalk::default());
                Ok(MarkerWalk::first_marker(&self.header))
            }
            (GrainDirectory::AtEnd, AccessOrder::OnePass) => Err(Format::Vmdk.unsupported_error(
                "only its end contains the list of its grains: serve it uncompressed from a server that supports ranges, or convert it \
                 once with `qemu-img convert -O qcow2`",
            )),
        }
    }

    fn parse_table(&mut self, table: LoadedTable<'_>, batch: &mut RangeBatch) -> Result<(), Error> {
        let tables = match &mut self.map {
            GrainMap::Markers(markers) => return markers.parse_table(&self.header, table, batch),
            GrainMap::Tables(tables) => tables,
        };
        match table.kind {
            FOOTER => {
                let directory = Self::read_footer(&self.header, table.host, table.bytes)?;
                tables.ask_directory(&self.header, directory, batch);
            }
            DIRECTORY => tables.learn_directory(&self.header, table.bytes, batch),
            _ => tables.learn_table(&self.header, table, batch),
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        match &self.map {
            GrainMap::Tables(tables) => tables.memory_bytes(),
            GrainMap::Markers(markers) => markers.memory_bytes(),
        }
    }

    fn compressed_payload(&self, guest: Guest, stored: Bytes) -> Result<Bytes, Error> {
        match self.map {
            GrainMap::Tables(_) if self.header.has_markers => {
                Ok(stored.slice(grain_range(&self.header, guest, &stored)?))
            }
            _ => Ok(stored),
        }
    }

    fn check_end(&self, end: Host) -> Result<(), Error> {
        match (&self.map, self.header.directory) {
            (GrainMap::Markers(markers), _) => markers.check_end(end),
            (GrainMap::Tables(_), GrainDirectory::At(_)) => self.check_reaches_grains(end),
            // The footer, which has the directory, was checked.
            (GrainMap::Tables(_), GrainDirectory::AtEnd) => Ok(()),
        }
    }

    fn table_name(&self, kind: u8) -> &'static str {
        match kind {
            DIRECTORY | MARKED_DIRECTORY => "the grain directory",
            GRAIN_TABLE | MARKED_TABLE => "a grain table",
            FOOTER | MARKED_FOOTER => "the footer",
            _ => "a marker",
        }
    }
}
