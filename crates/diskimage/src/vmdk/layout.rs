//! VMDK as the engine sees it.

use bytes::Bytes;

use super::descriptor::CreateType;
use super::header::{Directory, HEADER_BYTES, Header, SECTOR};
use super::kinds::{DIRECTORY, FOOTER, GRAIN_TABLE, MARKED_DIRECTORY, MARKED_FOOTER, MARKED_TABLE};
use super::marker::{Kind, Marker, grain_range};
use super::markers::{Markers, directory_of};
use super::tables::Tables;
use crate::bytes_at::le32;
use crate::check::mapped::Mapped;
use crate::layout::{Access, Check, Layout};
use crate::offsets::{Guest, Host};
use crate::wants::{Batch, Table};
use crate::{Clusters, Compression, Error, Facts, Format};

/// Bytes from the marker of the footer to the end of the image: marker, footer, end-of-stream marker.
const FOOTER_BYTES: u64 = 3 * SECTOR;
/// Bytes that wait together, at most.
const MAX_PARKING_UNIT: u64 = 2 << 20;

/// An image, and the places of its grains as far as it has told them.
pub(super) struct Vmdk {
    facts: Facts,
    header: Header,
    map: Map,
    is_one_pass: bool,
}

/// The two things that tell the places of grains.
enum Map {
    Tables(Tables),
    Markers(Markers),
}

impl Vmdk {
    pub(super) fn new(header: Header, kind: CreateType) -> Self {
        let mut features = vec![kind.name().to_owned()];
        let unit = header.grain.min(MAX_PARKING_UNIT);
        let is_at_end = header.directory == Directory::AtEnd;
        if is_at_end {
            features.push("grain directory at the end".to_owned());
        }
        let facts = Facts {
            clusters: header.is_compressed.then_some(Clusters {
                compression: Compression::Zlib,
                size: header.grain,
            }),
            cluster_size: Some(header.grain),
            parking_unit: (!is_at_end).then_some(unit),
            features,
            ..Facts::new(Format::Vmdk, header.capacity)
        };
        Self {
            facts,
            header,
            map: Map::Tables(Tables::default()),
            is_one_pass: false,
        }
    }

    /// QEMU wants an image to reach as far as its first grain, even if it has none.
    fn check_reaches_grains(&self, image_end: Host) -> Result<(), Error> {
        if image_end.next_unit(SECTOR) >= self.header.overhead {
            return Ok(());
        }
        Err(Error::Truncated {
            what: "the first grain",
            offset: self.header.overhead,
            end: image_end,
        })
    }

    /// Asks for the last three sectors of the image.
    fn ask_footer(image_end: Host) -> Result<Batch, Error> {
        let start = match image_end.0.checked_sub(FOOTER_BYTES) {
            Some(start) if start.is_multiple_of(SECTOR) => Host(start),
            _ => {
                return Err(Error::Truncated {
                    what: "the footer",
                    offset: image_end.unit(SECTOR),
                    end: image_end,
                });
            }
        };
        let mut first = Batch::default();
        first.push_table(start, FOOTER_BYTES, FOOTER, 0);
        Ok(first)
    }

    fn read_footer(&self, host: Host, bytes: &[u8]) -> Result<Host, Error> {
        let sector = HEADER_BYTES;
        let is_marker = |at: usize, kind: Kind| {
            let marker = bytes.get(at..).and_then(Marker::parse);
            let number = le32(bytes, at + 12);
            marker.is_some_and(|marker| marker.size == 0) && number.and_then(Kind::from_number) == Some(kind)
        };
        let end = bytes.get(2 * sector..2 * sector + 16);
        if !is_marker(0, Kind::Footer) || end.is_none_or(|end| end.iter().any(|byte| *byte != 0)) {
            return Err(Format::Vmdk.corrupt("the image does not end with a footer", host));
        }
        let footer = bytes.get(sector..).unwrap_or_default();
        directory_of(&self.header, host + SECTOR, footer)
    }
}

impl Layout for Vmdk {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn Check> {
        Box::new(Mapped::new(self, image_length))
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn begin(&mut self, access: Access) -> Result<Batch, Error> {
        let mut tables = Tables::default();
        self.is_one_pass = access == Access::OnePass;
        if let Access::Ranged { image_end } = access {
            tables.add_place(image_end);
        }
        // QEMU goes by the tables, and so do we wherever they can be had before the data. Only where they come last and the image
        // comes once, the markers have to do.
        match (self.header.directory, access) {
            (Directory::At(host), _) => {
                if let Access::Ranged { image_end } = access {
                    self.check_reaches_grains(image_end)?;
                }
                let mut first = Batch::default();
                tables.ask_directory(&self.header, host, &mut first);
                self.map = Map::Tables(tables);
                Ok(first)
            }
            (Directory::AtEnd, Access::Ranged { image_end }) => {
                self.map = Map::Tables(tables);
                Self::ask_footer(image_end)
            }
            (Directory::AtEnd, Access::OnePass) if self.header.is_compressed && self.header.has_markers => {
                self.map = Map::Markers(Markers::default());
                Ok(Markers::begin(&self.header))
            }
            (Directory::AtEnd, Access::OnePass) => Err(Format::Vmdk.unsupported(
                "only its end says where its grains belong: serve it uncompressed from a server with ranges, or convert it once with `qemu-img convert -O qcow2`",
            )),
        }
    }

    fn learn(&mut self, table: Table<'_>, batch: &mut Batch) -> Result<(), Error> {
        let directory = match table.kind {
            FOOTER => Some(self.read_footer(table.host, table.bytes)?),
            _ => None,
        };
        match (&mut self.map, directory) {
            (Map::Markers(markers), _) => return markers.learn(&self.header, table, batch),
            (Map::Tables(tables), Some(directory)) => tables.ask_directory(&self.header, directory, batch),
            (Map::Tables(tables), None) if table.kind == DIRECTORY => {
                tables.learn_directory(&self.header, table.bytes, batch);
            }
            (Map::Tables(tables), None) => tables.learn_table(&self.header, table, batch),
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        match &self.map {
            Map::Tables(tables) => tables.bytes(),
            Map::Markers(markers) => markers.bytes(),
        }
    }

    fn payload(&self, guest: Guest, stored: Bytes) -> Result<Bytes, Error> {
        match self.map {
            Map::Tables(_) if self.header.has_markers => {
                Ok(stored.slice(grain_range(&self.header, guest, &stored)?))
            }
            _ => Ok(stored),
        }
    }

    fn finish(&mut self, end: Host) -> Result<(), Error> {
        match &self.map {
            Map::Markers(markers) => markers.finish(end),
            Map::Tables(_) if self.is_one_pass => self.check_reaches_grains(end),
            Map::Tables(_) => Ok(()),
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
