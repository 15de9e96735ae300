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

use self::parking::ParkingLedger;
use self::pieces::PieceList;
use self::sink::GuestSink;
use crate::layout::{AccessOrder, ImageLayout};
use crate::memory::{ImageMemory, MemoryAccount};
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{RangeBatch, RangeRole, WantedQueue, WantedRange, bytes_of};
use crate::{Error, HeadFacts, Image};

/// Bytes of tables that may be on their way at once: one L1 table of QEMU's limit, and others beside it.
const TABLE_BYTES: u64 = 40 << 20;

/// A wanted range that the stream is inside of.
struct ActiveRange {
    want: WantedRange,
    /// Other places that want the very same bytes.
    also: Vec<Guest>,
    /// Bytes so far, unless they are passed on at once.
    captured: PieceList,
}

impl ActiveRange {
    fn new(want: WantedRange) -> Self {
        Self { want, also: Vec::new(), captured: PieceList::default() }
    }
}

/// Converts an image; see the documentation of the crate.
pub struct ImageStream {
    layout: Box<dyn ImageLayout>,
    position: Host,
    wants: WantedQueue,
    active: Vec<ActiveRange>,
    /// Bytes that captures of compressed clusters may hold together. Those of a writer overlap by a sector.
    capture_limit: u64,
    /// Tables that the map lacks.
    tables_missing: usize,
    /// `Some` while tables are missing, if the layout lets anything wait.
    parking: Option<ParkingLedger>,
    account: MemoryAccount,
}

impl ImageStream {
    /// A stream that learns the map as it passes by. It holds the map in `memory`: 24 bytes a run of adjacent
    /// clusters, or a compressed cluster (40 MiB for 100 GiB of data in 64 KiB clusters).
    pub fn one_pass(image: Image, memory: impl ImageMemory + 'static) -> Result<Self, Error> {
        let mut stream = Self::from_map(image.layout, WantedQueue::default(), MemoryAccount::new(memory));
        let first = stream.layout.initial_ranges(AccessOrder::OnePass)?;
        let wants = first.into_sorted(stream.layout.head_facts().format)?;
        stream.expect_tables(&wants);
        stream.wants.add_sorted(wants);
        if stream.tables_missing > 0 {
            stream.parking = stream.layout.head_facts().parking_unit.map(ParkingLedger::new);
        }
        Ok(stream)
    }

    /// A stream whose map is complete.
    fn from_map(layout: Box<dyn ImageLayout>, wants: WantedQueue, account: MemoryAccount) -> Self {
        let cluster = layout.head_facts().clusters.map_or(0, |clusters| clusters.size);
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
    pub fn head_facts(&self) -> HeadFacts {
        self.layout.head_facts().clone()
    }

    /// The ranges that a delta makes zero: all of them once the stream has finished. Its data lies elsewhere.
    pub fn zero_ranges(&self) -> &[Range<Guest>] {
        self.layout.zero_ranges()
    }

    /// Bytes of memory that all of it takes: the map as far as it is known and still needed, the tables that are passing,
    /// and the book of what waits.
    fn memory_bytes(&self) -> u64 {
        let passing: u64 = self
            .active
            .iter()
            .map(|active| bytes_of::<Guest>(active.also.capacity()) + captured_bytes(&active.want))
            .sum();
        let parking = self.parking.as_ref().map_or(0, ParkingLedger::memory_bytes);
        self.wants.memory_bytes() + passing + parking + self.layout.memory_bytes()
    }

    /// Holds `more` bytes beside what is held; before they are taken.
    fn hold_bytes(&mut self, more: u64) -> Result<(), Error> {
        self.account.hold_bytes(self.memory_bytes().saturating_add(more))
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
    pub fn push<S: GuestSink>(&mut self, mut bytes: Bytes, sink: &mut S) -> Result<(), S::Error> {
        while !bytes.is_empty() {
            self.activate_ranges()?;
            let piece = bytes.split_to(self.piece_length(bytes.len()));
            self.feed_active(&piece, sink)?;
            self.position += piece.len() as u64;
            if let Some(parking) = &mut self.parking
                && self.position.is_multiple_of(parking.unit_bytes())
            {
                parking.settle_unit(&mut *self.layout, self.position, sink)?;
                self.hold_bytes(0)?;
            }
            self.complete_ranges(sink)?;
        }
        Ok(())
    }

    /// The end of the image: fails unless everything that is mapped has come.
    pub fn finish<S: GuestSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        self.activate_ranges()?;
        for active in std::mem::take(&mut self.active) {
            match active.want.role {
                // The length is rounded up to sectors; whether the cluster is whole, its decoder finds out.
                RangeRole::Compressed if !active.captured.is_empty() => self.emit_compressed(active, sink)?,
                _ => self.check_not_needed(&active.want)?,
            }
        }
        while let Some(want) = self.wants.pop_until(Host(u64::MAX)) {
            self.check_not_needed(&want)?;
        }
        Ok(self.layout.check_end(self.position)?)
    }

    fn check_not_needed(&self, want: &WantedRange) -> Result<(), Error> {
        match want.role {
            RangeRole::Ignored => return Ok(()),
            RangeRole::Table(kind) if !self.layout.is_required(kind) => return Ok(()),
            _ => {}
        }
        Err(Error::Truncated { what: self.layout.name_of(want), offset: want.host, end: self.position })
    }

    /// Moves the wants that begin here into the active set.
    fn activate_ranges(&mut self) -> Result<(), Error> {
        // A range that goes on from the unit before refers to this unit as well.
        if let Some(parking) = &mut self.parking
            && self.position.is_multiple_of(parking.unit_bytes())
        {
            for active in &self.active {
                let times = 1 + active.also.len() as u64;
                parking.note_references(&*self.layout, active.want.role, times);
            }
        }
        while let Some(want) = self.wants.pop_until(self.position) {
            if let Some(parking) = &mut self.parking {
                parking.note_references(&*self.layout, want.role, 1);
            }
            match self.active.last_mut() {
                Some(last)
                    if (last.want.host, last.want.length, last.want.role)
                        == (want.host, want.length, want.role) =>
                {
                    last.also.push(want.guest_offset());
                }
                _ => self.active.push(ActiveRange::new(want)),
            }
            self.check_captures(want.host)?;
        }
        Ok(())
    }

    fn check_captures(&mut self, offset: Host) -> Result<(), Error> {
        let (mut clusters, mut tables) = (0, 0);
        for active in &self.active {
            match active.want.role {
                RangeRole::Compressed => clusters += u64::from(active.want.length),
                RangeRole::Table(_) => tables += u64::from(active.want.length),
                _ => {}
            }
        }
        let what = if clusters > self.capture_limit {
            "too many compressed clusters overlap"
        } else if tables > TABLE_BYTES {
            "too many tables overlap"
        } else {
            return self.hold_bytes(0);
        };
        let format = self.layout.head_facts().format;
        Err(Error::TooEntangled { format, what, offset })
    }

    /// Bytes from here on that can be treated alike.
    fn piece_length(&self, available: usize) -> usize {
        let mut end = Host(u64::MAX);
        if let Some(next) = self.wants.next_host() {
            end = end.min(next);
        }
        for active in &self.active {
            end = end.min(active.want.host_end());
        }
        if let Some(parking) = &self.parking {
            end = end.min(self.position.unit_start(parking.unit_bytes()) + parking.unit_bytes());
        }
        usize::try_from(end - self.position).map_or(available, |length| length.min(available))
    }

    fn feed_active<S: GuestSink>(&mut self, piece: &Bytes, sink: &mut S) -> Result<(), S::Error> {
        for active in &mut self.active {
            match active.want.role {
                RangeRole::Data | RangeRole::SoleData | RangeRole::PartOfData => {
                    let skip = self.position - active.want.host;
                    for guest in
                        std::iter::once(active.want.guest_offset()).chain(active.also.iter().copied())
                    {
                        sink.write_data(guest + skip, piece.clone())?;
                    }
                }
                RangeRole::Ignored => {}
                RangeRole::Compressed | RangeRole::Table(_) => active.captured.push(piece),
            }
        }
        if let Some(parking) = &mut self.parking {
            parking.pass_piece(piece, !self.active.is_empty());
        }
        Ok(())
    }

    /// Takes the ranges that end here out of the active set and uses what they captured.
    fn complete_ranges<S: GuestSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let mut index = 0;
        while index < self.active.len() {
            if self.active[index].want.host_end() > self.position {
                index += 1;
                continue;
            }
            let active = self.active.remove(index);
            match active.want.role {
                RangeRole::Compressed => self.emit_compressed(active, sink)?,
                RangeRole::Table(_) => self.parse_table(active.want, &active.captured.join_pieces(), sink)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn emit_compressed<S: GuestSink>(&self, active: ActiveRange, sink: &mut S) -> Result<(), S::Error> {
        let stored = active.captured.join_pieces();
        for guest in active.also.into_iter().chain([active.want.guest_offset()]) {
            sink.write_compressed(guest, self.layout.compressed_payload(guest, stored.clone())?)?;
        }
        Ok(())
    }

    /// A table is there: asks for what it refers to.
    fn parse_table<S: GuestSink>(
        &mut self,
        want: WantedRange,
        bytes: &[u8],
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let Some(table) = want.loaded_table(bytes) else {
            return Ok(());
        };
        let is_required = self.layout.is_required(table.kind);
        // What only helps to save memory is of no use when nothing waits any more.
        if !is_required && self.parking.is_none() {
            return Ok(());
        }
        // The bytes of the table are still there, and those of its wants come to them.
        let table_bytes = captured_bytes(&want);
        let mut batch = RangeBatch::with_room(
            self.account.available_beside(self.memory_bytes().saturating_add(table_bytes)),
        );
        self.layout.parse_table(table, &mut batch)?;
        if batch.is_exceeded() {
            return Err(self.account.limit_error().into());
        }
        self.hold_bytes(batch.memory_bytes().saturating_add(table_bytes))?;
        if let Some(parking) = &mut self.parking {
            parking.release_counted(&*self.layout, batch.counted.clone(), sink)?;
        }
        self.add_batch(batch, sink)?;
        if is_required {
            self.tables_missing = self.tables_missing.saturating_sub(1);
        }
        self.check_map_complete(sink)
    }

    /// Takes up what a table asks for: what lies ahead will come, what has passed is looked for.
    fn add_batch<S: GuestSink>(&mut self, batch: RangeBatch, sink: &mut S) -> Result<(), S::Error> {
        let mut passed = batch.into_sorted(self.layout.head_facts().format)?;
        self.expect_tables(&passed);
        let first_ahead = passed.partition_point(|want| want.host < self.position);
        if first_ahead == 0 {
            // Most tables come before all of what they map. `split_off` would make a copy of all of it.
            self.hold_bytes(bytes_of::<WantedRange>(passed.capacity()))?;
            self.wants.add_sorted(passed);
            return Ok(());
        }
        self.hold_bytes(bytes_of::<WantedRange>(passed.capacity() + passed.len() - first_ahead))?;
        self.wants.add_sorted(passed.split_off(first_ahead));
        passed.into_iter().try_for_each(|want| self.resolve_passed(want, sink))
    }

    fn expect_tables(&mut self, wants: &[WantedRange]) {
        let required = |want: &&WantedRange| matches!(want.role, RangeRole::Table(kind) if self.layout.is_required(kind));
        self.tables_missing += wants.iter().filter(required).count();
    }

    /// All tables are known: nothing refers to what is parked now.
    fn check_map_complete<S: GuestSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if self.tables_missing == 0
            && let Some(parking) = self.parking.take()
        {
            parking.forget_all(sink)?;
        }
        Ok(())
    }
}

/// Bytes that a wanted range takes when it has come: a table is joined before it is learned, from pieces that are still there.
fn captured_bytes(want: &WantedRange) -> u64 {
    match want.role {
        RangeRole::Table(_) => 2 * u64::from(want.length),
        _ => 0,
    }
}
