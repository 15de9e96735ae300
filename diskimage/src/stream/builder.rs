//! A map from tables that are read before anything else.

use std::ops::Range;

use super::{MAP_BYTES, Stream, name};
use crate::check::{Tables, check_memory};
use crate::layout::{Access, Layout};
use crate::wants::{Batch, Role, Table, Want, Wants};
use crate::{Error, Facts, Image};

/// Builds a complete map from tables that are fetched ahead of the data, one generation after the other.
pub struct MapBuilder {
    layout: Box<dyn Layout>,
    image_length: u64,
    /// Tables that were learned of and not handed out yet.
    tables: Vec<Want>,
    wants: Wants,
    mapped_bytes: u64,
}

/// A table to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRange {
    /// Where it is in the image; within its length.
    pub range: Range<u64>,
    pub(crate) table: Table,
    /// Bytes of the table, of which some may lie behind the end of the image.
    pub(crate) length: usize,
}

impl TableRange {
    /// What of a wanted table lies in an image of `image_length` bytes.
    pub(crate) fn within(want: &Want, image_length: u64) -> Option<Self> {
        let range = want.host.min(image_length)..want.end().min(image_length);
        let (table, length) = (want.table()?, usize::try_from(want.length).ok()?);
        Some(Self { range, table, length })
    }
}

impl MapBuilder {
    /// A map for `image`, which is `image_length` bytes long.
    pub fn new(image: Image, image_length: u64) -> Result<Self, Error> {
        let mut builder = Self {
            layout: image.layout,
            image_length,
            tables: Vec::new(),
            wants: Wants::new(MAP_BYTES),
            mapped_bytes: 0,
        };
        let first = builder.layout.begin(Access::Ranged { image_length })?;
        builder.admit(first)?;
        Ok(builder)
    }

    /// What the head of the image tells.
    pub fn facts(&self) -> Facts {
        Facts::of(&*self.layout)
    }

    /// The tables to fetch and [`add`](Self::add) next, in the order of the image; none when the map is complete.
    pub fn next_tables(&mut self) -> Vec<TableRange> {
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_unstable();
        let within = |want: &Want| TableRange::within(want, self.image_length);
        tables.iter().filter_map(within).collect()
    }

    /// Adds what one table says; `bytes` are those of its range.
    pub fn add(&mut self, table: &TableRange, bytes: &[u8]) -> Result<(), Error> {
        let batch = self.layout.learn(table.table, bytes)?;
        self.admit(batch)
    }

    fn admit(&mut self, batch: Batch) -> Result<(), Error> {
        let mut wants = batch.sorted(self.layout.format())?;
        // What only helps to save memory in one pass is of no use here.
        wants.retain(|want| match want.role {
            Role::Ignored => false,
            Role::Table(kind) => self.layout.is_required(kind),
            _ => true,
        });
        for want in &wants {
            self.check_inside(want)?;
        }
        let (tables, data): (Vec<_>, Vec<_>) = wants.into_iter().partition(|want| want.table().is_some());
        self.mapped_bytes += data.iter().map(|want| u64::from(want.length)).sum::<u64>();
        self.tables.extend(tables);
        check_memory(&self.tables)?;
        self.wants.add(data)
    }

    fn check_inside(&self, want: &Want) -> Result<(), Error> {
        let end = match want.role {
            // The last sector of a compressed cluster may be cut off: its length is rounded up.
            Role::Compressed => want.host.saturating_add(1),
            _ => want.end(),
        };
        if end > self.image_length {
            return Err(Error::Truncated {
                what: name(&*self.layout, want),
                offset: want.host,
                end: self.image_length,
            });
        }
        Ok(())
    }

    /// Bytes of the image that hold guest data.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes
    }

    /// The stream that needs no parking.
    pub fn into_stream(self) -> Stream {
        Stream::mapped(self.layout, self.wants)
    }
}

impl Tables for MapBuilder {
    fn next_tables(&mut self) -> Result<Vec<TableRange>, Error> {
        Ok(Self::next_tables(self))
    }

    fn add(&mut self, table: &TableRange, bytes: &[u8]) -> Result<(), Error> {
        Self::add(self, table, bytes)
    }
}
