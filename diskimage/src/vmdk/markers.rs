//! Where the grains are, by the markers before them: a stream that comes once, whose directory is behind its grains. What
//! its tables say in the end has to be the same.

use super::contents::Contents;
use super::header::{Directory, HEADER_BYTES, Header, SECTOR};
use super::marker::{Kind, MARKER_BYTES, Marker, TYPE_BYTES};
use super::{MARKED_DIRECTORY, MARKED_FOOTER, MARKED_TABLE, MARKER, MARKER_TYPE, corrupt};
use crate::Error;
use crate::wants::{Batch, Role, Table};

/// The way from marker to marker.
#[derive(Debug, Default)]
pub(super) struct Markers {
    contents: Contents,
    /// Where the footer says that the directory is.
    directory: Option<u64>,
    /// The byte after the end-of-stream marker, once it has come.
    end: Option<u64>,
}

impl Markers {
    /// Asks for the first marker.
    pub(super) fn begin(header: &Header) -> Batch {
        let mut first = Batch::default();
        push_marker(&mut first, header.overhead);
        first
    }

    pub(super) fn learn(
        &mut self,
        header: &Header,
        table: Table,
        bytes: &[u8],
        next: &mut Batch,
    ) -> Result<(), Error> {
        match table.kind {
            MARKER => self.learn_marker(header, table.host, bytes, next),
            MARKER_TYPE => self.learn_type(header, table, bytes, next),
            MARKED_TABLE => {
                self.contents.add_table(header, table.host, bytes, next);
                Ok(())
            }
            MARKED_DIRECTORY => self.contents.add_directory(table.host, bytes, next),
            _ => self.learn_footer(header, table.host, bytes),
        }
    }

    /// Bytes of memory that the table of contents takes.
    pub(super) fn bytes(&self) -> u64 {
        self.contents.bytes()
    }

    fn learn_marker(
        &mut self,
        header: &Header,
        host: u64,
        bytes: &[u8],
        next: &mut Batch,
    ) -> Result<(), Error> {
        let Some(marker) = Marker::parse(bytes) else {
            return Err(corrupt("a marker is cut short", host));
        };
        let behind = host + MARKER_BYTES;
        if marker.size == 0 {
            next.push(behind, TYPE_BYTES, Role::Table(MARKER_TYPE), marker.value);
            return Ok(());
        }
        self.check_no_footer(host)?;
        let guest = marker.grain(header, host)?;
        self.contents
            .add_grain(header, guest / header.grain, host, next)?;
        let size = u64::from(marker.size);
        next.push(behind, size, Role::Compressed, guest);
        push_marker(next, (behind + size).next_multiple_of(SECTOR));
        Ok(())
    }

    /// `table.at` is the value of the marker.
    fn learn_type(
        &mut self,
        header: &Header,
        table: Table,
        bytes: &[u8],
        next: &mut Batch,
    ) -> Result<(), Error> {
        let host = table.host - MARKER_BYTES;
        let number = crate::bytes_at::le32(bytes, 0);
        let Some(kind) = number.and_then(Kind::from_number) else {
            return Err(corrupt(format!("a marker of the unknown type {number:?}"), host));
        };
        let (role, length, sectors) = match kind {
            Kind::EndOfStream => return self.learn_end(header, host, table.at),
            Kind::GrainTable => (MARKED_TABLE, header.table_bytes(), table.at),
            Kind::Directory => (MARKED_DIRECTORY, header.directory_bytes(), table.at),
            // One sector, whatever its marker says: QEMU looks for it at the end of the image.
            Kind::Footer => (MARKED_FOOTER, HEADER_BYTES as u64, 1),
        };
        self.check_no_footer(host)?;
        let start = host + SECTOR;
        let end = sectors
            .checked_mul(SECTOR)
            .and_then(|bytes| start.checked_add(bytes));
        match end {
            Some(end) if end - start >= length => {
                next.push(start, length, Role::Table(role), 0);
                push_marker(next, end);
                Ok(())
            }
            _ => {
                let what = format!("a marker says {sectors} sectors for a table of {length} bytes");
                Err(corrupt(what, host))
            }
        }
    }

    fn check_no_footer(&self, host: u64) -> Result<(), Error> {
        match self.directory {
            None => Ok(()),
            Some(_) => Err(corrupt(
                "something other than the end of the stream follows the footer",
                host,
            )),
        }
    }

    fn learn_footer(&mut self, header: &Header, host: u64, bytes: &[u8]) -> Result<(), Error> {
        self.directory = Some(directory_of(header, host, bytes)?);
        Ok(())
    }

    fn learn_end(&mut self, header: &Header, host: u64, value: u64) -> Result<(), Error> {
        let Some(directory) = self.directory else {
            return Err(corrupt("the stream ends without a footer", host));
        };
        if value != 0 {
            return Err(corrupt(
                format!("the end-of-stream marker says {value} sectors"),
                host,
            ));
        }
        self.end = Some(host + SECTOR);
        self.contents.check(header, directory)
    }

    /// The image ends at `end`.
    pub(super) fn finish(&self, end: u64) -> Result<(), Error> {
        match self.end {
            Some(expected) if end > expected => Err(corrupt(
                format!("{} bytes follow the end of the stream", end - expected),
                expected,
            )),
            Some(expected) if end == expected => Ok(()),
            _ => Err(Error::Truncated {
                what: "the end-of-stream marker",
                offset: self.end.map_or(end, |expected| expected - SECTOR),
                end,
            }),
        }
    }
}

/// Where the footer at `host` says that the directory is. The rest of what it says has to be what `header` says.
pub(super) fn directory_of(header: &Header, host: u64, footer: &[u8]) -> Result<u64, Error> {
    let footer = Header::parse(footer)?;
    if !header.agrees_with(&footer) {
        return Err(corrupt("the footer contradicts the header", host));
    }
    // QEMU wants the image to reach as far as its first grain.
    if footer.overhead > host {
        return Err(corrupt("the footer says that all grains are behind it", host));
    }
    match footer.directory {
        Directory::At(directory) => Ok(directory),
        Directory::AtEnd => Err(corrupt(
            "the footer does not say where the grain directory is",
            host,
        )),
    }
}

fn push_marker(batch: &mut Batch, host: u64) {
    batch.push(host, MARKER_BYTES, Role::Table(MARKER), 0);
}
