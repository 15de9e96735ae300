//! The engine that all formats share: image bytes in file order in, guest bytes out.
//!
//! A layout never sees data, the target, or how the image comes. It names the tables that it wants and, given a table, what that one maps.
//! The engine keeps the wants in the order of the image, joins neighbours, captures tables and compressed clusters, feeds overlapping
//! wants alike, and lets units wait that nothing maps yet. In most images tables come first, and nothing ever waits.

pub(crate) mod builder;
mod parking;
mod passed;
mod pieces;
pub(crate) mod sink;
#[cfg(test)]
pub(crate) mod testing;

use std::ops::Range;

use bytes::Bytes;

use self::parking::Parking;
use self::pieces::Pieces;
use self::sink::Sink;
use crate::layout::{Access, Layout};
use crate::memory::{Account, Memory};
use crate::offsets::{Guest, Host};
use crate::wants::{Batch, Role, Want, Wants, bytes_of};
use crate::{Error, Facts, Image};

/// Bytes of tables that may be on their way at once: one L1 table of QEMU's limit, and others beside it.
const TABLE_BYTES: u64 = 40 << 20;

/// A wanted range that the stream is inside of.
struct Active {
    want: Want,
    /// Other places that want the very same bytes.
    also: Vec<Guest>,
    /// Bytes so far, unless they are passed on at once.
    captured: Pieces,
}

impl Active {
    fn new(want: Want) -> Self {
        Self {
            want,
            also: Vec::new(),
            captured: Pieces::default(),
        }
    }
}

/// Converts an image; see the documentation of the crate.
pub struct Stream {
    layout: Box<dyn Layout>,
    position: Host,
    wants: Wants,
    active: Vec<Active>,
    /// Bytes that captures of compressed clusters may hold together. Those of a writer overlap by a sector.
    capture_limit: u64,
    /// Tables that the map lacks.
    tables_missing: usize,
    /// `Some` while tables are missing, if the layout lets anything wait.
    parking: Option<Parking>,
    account: Account,
}

impl Stream {
    /// A stream that learns the map as it passes by. It holds the map in `memory`: 24 bytes a run of adjacent
    /// clusters, or a compressed cluster (40 MiB for 100 GiB of data in 64 KiB clusters).
    pub fn one_pass(image: Image, memory: impl Memory + 'static) -> Result<Self, Error> {
        let mut stream = Self::mapped(image.layout, Wants::default(), Account::new(memory));
        let first = stream.layout.begin(Access::OnePass)?;
        let wants = first.sorted(stream.layout.facts().format)?;
        stream.expect_tables(&wants);
        stream.wants.add(wants);
        if stream.tables_missing > 0 {
            stream.parking = stream.layout.facts().parking_unit.map(Parking::new);
        }
        Ok(stream)
    }

    /// A stream whose map is complete.
    fn mapped(layout: Box<dyn Layout>, wants: Wants, account: Account) -> Self {
        let cluster = layout.facts().clusters.map_or(0, |clusters| clusters.size);
        Self {
            layout,
            position: Host(0),
            wants,
            active: Vec::new(),
            capture_limit: cluster.saturating_mul(16).max(4 << 20),
            tables_missing: 0,
            parking: None,
            account,
        }
    }

    /// The facts that the head of the image tells.
    pub fn facts(&self) -> Facts {
        self.layout.facts().clone()
    }

    /// The ranges that a delta makes zero: all of them once the stream has finished. Its data lies elsewhere.
    pub fn zeros(&self) -> &[Range<Guest>] {
        self.layout.zeros()
    }

    /// Bytes of memory that all of it takes: the map as far as it is known and still needed, the tables that are passing,
    /// and the book of what waits.
    fn bytes(&self) -> u64 {
        let passing: u64 = self
            .active
            .iter()
            .map(|active| bytes_of::<Guest>(active.also.capacity()) + captured_bytes(&active.want))
            .sum();
        let parking = self.parking.as_ref().map_or(0, Parking::bytes);
        self.wants.bytes() + passing + parking + self.layout.memory_bytes()
    }

    /// Holds `more` bytes beside what is held; before they are taken.
    fn hold(&mut self, more: u64) -> Result<(), Error> {
        self.account.hold(self.bytes().saturating_add(more))
    }

    /// The end of the image's bytes that were pushed or skipped.
    pub fn position(&self) -> Host {
        self.position
    }

    /// The first image byte from here on that is needed; `None` when the guest's disk is complete. Everything
    /// is needed while something may have to wait.
    pub fn next_needed(&self) -> Option<Host> {
        if self.parking.is_some() || !self.active.is_empty() {
            Some(self.position)
        } else {
            self.wants.next_host()
        }
    }

    /// Tells that the image bytes before `offset`, none of them needed, will not be pushed.
    pub fn skip_to(&mut self, offset: Host) {
        debug_assert!(self.next_needed().is_none_or(|needed| offset <= needed));
        self.position = self.position.max(offset);
    }

    /// The next bytes of the image, in pieces of any size.
    pub fn push<S: Sink>(&mut self, mut bytes: Bytes, sink: &mut S) -> Result<(), S::Error> {
        while !bytes.is_empty() {
            self.activate()?;
            let piece = bytes.split_to(self.piece_length(bytes.len()));
            self.feed(&piece, sink)?;
            self.position += piece.len() as u64;
            if let Some(parking) = &mut self.parking
                && self.position.is_multiple_of(parking.unit())
            {
                parking.settle(&mut *self.layout, self.position, sink)?;
                self.hold(0)?;
            }
            self.complete(sink)?;
        }
        Ok(())
    }

    /// The end of the image: fails unless everything that is mapped has come.
    pub fn finish<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        self.activate()?;
        for active in std::mem::take(&mut self.active) {
            match active.want.role {
                // The length is rounded up to sectors; whether the cluster is whole, its decoder finds out.
                Role::Compressed if !active.captured.is_empty() => self.emit_compressed(active, sink)?,
                _ => self.check_not_needed(&active.want)?,
            }
        }
        while let Some(want) = self.wants.pop_until(Host(u64::MAX)) {
            self.check_not_needed(&want)?;
        }
        Ok(self.layout.finish(self.position)?)
    }

    fn check_not_needed(&self, want: &Want) -> Result<(), Error> {
        match want.role {
            Role::Ignored => return Ok(()),
            Role::Table(kind) if !self.layout.is_required(kind) => return Ok(()),
            _ => {}
        }
        Err(Error::Truncated {
            what: self.layout.name_of(want),
            offset: want.host,
            end: self.position,
        })
    }

    /// Moves the wants that begin here into the active set.
    fn activate(&mut self) -> Result<(), Error> {
        // A range that goes on from the unit before refers to this unit as well.
        if let Some(parking) = &mut self.parking
            && self.position.is_multiple_of(parking.unit())
        {
            for active in &self.active {
                let times = 1 + active.also.len() as u64;
                parking.note(&*self.layout, active.want.role, times);
            }
        }
        while let Some(want) = self.wants.pop_until(self.position) {
            if let Some(parking) = &mut self.parking {
                parking.note(&*self.layout, want.role, 1);
            }
            match self.active.last_mut() {
                Some(last)
                    if (last.want.host, last.want.length, last.want.role)
                        == (want.host, want.length, want.role) =>
                {
                    last.also.push(want.guest());
                }
                _ => self.active.push(Active::new(want)),
            }
            self.check_captures(want.host)?;
        }
        Ok(())
    }

    fn check_captures(&mut self, offset: Host) -> Result<(), Error> {
        let (mut clusters, mut tables) = (0, 0);
        for active in &self.active {
            match active.want.role {
                Role::Compressed => clusters += u64::from(active.want.length),
                Role::Table(_) => tables += u64::from(active.want.length),
                _ => {}
            }
        }
        let what = if clusters > self.capture_limit {
            "too many compressed clusters overlap"
        } else if tables > TABLE_BYTES {
            "too many tables overlap"
        } else {
            return self.hold(0);
        };
        let format = self.layout.facts().format;
        Err(Error::TooEntangled { format, what, offset })
    }

    /// Bytes from here on that can be treated alike.
    fn piece_length(&self, available: usize) -> usize {
        let mut end = Host(u64::MAX);
        if let Some(next) = self.wants.next_host() {
            end = end.min(next);
        }
        for active in &self.active {
            end = end.min(active.want.end());
        }
        if let Some(parking) = &self.parking {
            end = end.min(self.position.unit(parking.unit()) + parking.unit());
        }
        usize::try_from(end - self.position).map_or(available, |length| length.min(available))
    }

    fn feed<S: Sink>(&mut self, piece: &Bytes, sink: &mut S) -> Result<(), S::Error> {
        for active in &mut self.active {
            match active.want.role {
                Role::Data | Role::SoleData | Role::PartOfData => {
                    let skip = self.position - active.want.host;
                    for guest in std::iter::once(active.want.guest()).chain(active.also.iter().copied()) {
                        sink.data(guest + skip, piece.clone())?;
                    }
                }
                Role::Ignored => {}
                Role::Compressed | Role::Table(_) => active.captured.push(piece),
            }
        }
        if let Some(parking) = &mut self.parking {
            parking.pass(piece, !self.active.is_empty());
        }
        Ok(())
    }

    /// Takes the ranges that end here out of the active set and uses what they captured.
    fn complete<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let mut index = 0;
        while index < self.active.len() {
            if self.active[index].want.end() > self.position {
                index += 1;
                continue;
            }
            let active = self.active.remove(index);
            match active.want.role {
                Role::Compressed => self.emit_compressed(active, sink)?,
                Role::Table(_) => self.learn(active.want, &active.captured.join(), sink)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn emit_compressed<S: Sink>(&self, active: Active, sink: &mut S) -> Result<(), S::Error> {
        let stored = active.captured.join();
        for guest in active.also.into_iter().chain([active.want.guest()]) {
            sink.compressed(guest, self.layout.payload(guest, stored.clone())?)?;
        }
        Ok(())
    }

    /// A table is there: asks for what it refers to.
    fn learn<S: Sink>(&mut self, want: Want, bytes: &[u8], sink: &mut S) -> Result<(), S::Error> {
        let Some(table) = want.table(bytes) else {
            return Ok(());
        };
        let is_required = self.layout.is_required(table.kind);
        // What only helps to save memory is of no use when nothing waits any more.
        if !is_required && self.parking.is_none() {
            return Ok(());
        }
        // The bytes of the table are still there, and those of its wants come to them.
        let table_bytes = captured_bytes(&want);
        let mut batch = Batch::within(self.account.beside(self.bytes().saturating_add(table_bytes)));
        self.layout.learn(table, &mut batch)?;
        if batch.is_exceeded() {
            return Err(self.account.exceeded().into());
        }
        self.hold(batch.bytes().saturating_add(table_bytes))?;
        if let Some(parking) = &mut self.parking {
            parking.release(&*self.layout, batch.counted.clone(), sink)?;
        }
        self.admit(batch, sink)?;
        if is_required {
            self.tables_missing = self.tables_missing.saturating_sub(1);
        }
        self.check_map_complete(sink)
    }

    /// Takes up what a table asks for: what lies ahead will come, what has passed is looked for.
    fn admit<S: Sink>(&mut self, batch: Batch, sink: &mut S) -> Result<(), S::Error> {
        let mut passed = batch.sorted(self.layout.facts().format)?;
        self.expect_tables(&passed);
        let first_ahead = passed.partition_point(|want| want.host < self.position);
        if first_ahead == 0 {
            // Most tables come before all of what they map. `split_off` would make a copy of all of it.
            self.hold(bytes_of::<Want>(passed.capacity()))?;
            self.wants.add(passed);
            return Ok(());
        }
        self.hold(bytes_of::<Want>(passed.capacity() + passed.len() - first_ahead))?;
        self.wants.add(passed.split_off(first_ahead));
        passed
            .into_iter()
            .try_for_each(|want| self.resolve_passed(want, sink))
    }

    fn expect_tables(&mut self, wants: &[Want]) {
        let required = |want: &&Want| matches!(want.role, Role::Table(kind) if self.layout.is_required(kind));
        self.tables_missing += wants.iter().filter(required).count();
    }

    /// All tables are known: nothing refers to what is parked now.
    fn check_map_complete<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if self.tables_missing == 0
            && let Some(parking) = self.parking.take()
        {
            parking.forget_all(sink)?;
        }
        Ok(())
    }
}

/// Bytes that a wanted range takes when it has come: a table is joined before it is learned, from pieces that are still there.
fn captured_bytes(want: &Want) -> u64 {
    match want.role {
        Role::Table(_) => 2 * u64::from(want.length),
        _ => 0,
    }
}
