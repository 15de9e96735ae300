//! A map from tables that are read before anything else.

use super::Stream;
use crate::layout::{Access, Layout};
use crate::memory::{Account, Memory};
use crate::offsets::Host;
use crate::tables::{TableRange, Tables};
use crate::wants::{Batch, Role, Want, Wants, bytes_of};
use crate::{Error, Facts, Image};

/// Builds a complete map from tables that are fetched ahead of the data, one generation after the other.
pub struct MapBuilder {
    layout: Box<dyn Layout>,
    image_end: Host,
    /// Tables that were learned of and not handed out yet.
    tables: Vec<TableRange>,
    /// Bytes of memory that the tables take that were handed out last.
    handed_out: u64,
    wants: Wants,
    mapped_bytes: u64,
    account: Account,
}

impl MapBuilder {
    /// A map for `image`, which is `image_length` bytes long. It is held in `memory`, see [`Stream::one_pass`].
    pub fn new(image: Image, image_length: u64, memory: impl Memory + 'static) -> Result<Self, Error> {
        let image_end = Host(image_length);
        let mut builder = Self {
            layout: image.layout,
            image_end,
            tables: Vec::new(),
            handed_out: 0,
            wants: Wants::default(),
            mapped_bytes: 0,
            account: Account::new(memory),
        };
        let first = builder.layout.begin(Access::Ranged { image_end })?;
        builder.admit(first)?;
        Ok(builder)
    }

    /// The facts that the head of the image tells.
    pub fn facts(&self) -> Facts {
        self.layout.facts().clone()
    }

    /// Bytes of memory that all of it takes.
    fn bytes(&self) -> u64 {
        let tables = bytes_of::<TableRange>(self.tables.capacity());
        self.wants.bytes() + self.handed_out + tables + self.layout.memory_bytes()
    }

    fn admit(&mut self, batch: Batch) -> Result<(), Error> {
        let mut wants = batch.sorted(self.layout.facts().format)?;
        let tables = wants.iter().filter(|want| want.is_table()).count();
        let grown = growth(&self.tables, tables);
        self.account
            .hold(self.bytes() + bytes_of::<Want>(wants.capacity()) + grown)?;
        // What only helps to save memory in one pass is of no use here.
        wants.retain(|want| match want.role {
            Role::Ignored => false,
            Role::Table(kind) => self.layout.is_required(kind),
            _ => true,
        });
        for want in &wants {
            self.check_inside(want)?;
        }
        let tables = wants.iter().filter(|want| want.is_table());
        let within = |want: &Want| TableRange::within(*want, self.image_end);
        self.tables.extend(tables.map(within));
        wants.retain(|want| !want.is_table());
        self.mapped_bytes += wants.iter().map(|want| u64::from(want.length)).sum::<u64>();
        self.wants.add(wants);
        Ok(())
    }

    fn check_inside(&self, want: &Want) -> Result<(), Error> {
        let end = match want.role {
            // The last sector of a compressed cluster may be cut off: its length is rounded up.
            Role::Compressed => want.host.saturating_add(1),
            _ => want.end(),
        };
        if end > self.image_end {
            return Err(Error::Truncated {
                what: self.layout.name_of(want),
                offset: want.host,
                end: self.image_end,
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
        Stream::mapped(self.layout, self.wants, self.account)
    }
}

impl Tables for MapBuilder {
    fn next_tables(&mut self) -> Result<Vec<TableRange>, Error> {
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_unstable();
        self.handed_out = bytes_of::<TableRange>(tables.capacity());
        Ok(tables)
    }

    fn add(&mut self, table: &TableRange, bytes: &[u8]) -> Result<(), Error> {
        let Some(table) = table.want.table(bytes) else {
            return Ok(());
        };
        let mut batch = Batch::within(self.account.beside(self.bytes()));
        self.layout.learn(table, &mut batch)?;
        if batch.is_exceeded() {
            return Err(self.account.exceeded());
        }
        self.admit(batch)
    }
}

/// Bytes by which a list grows that takes `more` values: to twice its length at least.
fn growth<T>(list: &Vec<T>, more: usize) -> u64 {
    if list.capacity() - list.len() >= more {
        return 0;
    }
    let capacity = (list.len() + more).max(2 * list.capacity());
    bytes_of::<T>(capacity - list.capacity())
}
