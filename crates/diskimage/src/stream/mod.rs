//! The engine that all formats share. It takes image bytes in file order and emits guest bytes.
//!
//! A layout never sees the data or the target disk, and does not know how the image arrives. It
//! requests tables and, given a table, the ranges that the table maps. The engine keeps the wanted
//! ranges in image order, merges neighbours, collects tables and compressed clusters, treats
//! overlapping ranges alike, and parks the parts of the image ("units") that no table maps yet. In
//! most images tables come first, and nothing is ever parked.

pub(crate) mod builder;
pub(crate) mod chain;
pub(crate) mod guest_order;
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

/// Bytes of tables that may be collected at once: an L1 table of QEMU's largest size, and some
/// other tables.
const TABLE_BYTES: u64 = 40 << 20;

/// Most different ranges that may contain one byte of the image. Extended L2 entries allow about a
/// thousand that make sense; each activation looks at all of them.
const MAX_ACTIVE: usize = 4096;

/// A wanted range that contains the current position.
struct ActiveRange {
    want: WantedRange,
    /// Guest offsets of other ranges that want exactly the same bytes.
    also: Vec<Guest>,
    /// Bytes collected so far. Stays empty if the bytes are passed on at once.
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
    /// Limit for the total size of the compressed clusters that are collected at once. The
    /// clusters of a real writer overlap by one sector.
    capture_limit: u64,
    /// Number of required tables that have not arrived yet.
    tables_missing: usize,
    /// True if the map is learned while the image passes.
    is_one_pass: bool,
    /// `Some` while tables are missing, if the layout has a parking unit.
    parking: Option<ParkingLedger>,
    account: MemoryAccount,
}

impl ImageStream {
    /// Creates a stream that learns the map while the image passes. The map is charged to
    /// `memory`: 24 bytes for each run of adjacent clusters and for each compressed cluster (40
    /// MiB for 100 GiB of data in 64 KiB clusters).
    pub fn one_pass(image: Image, memory: impl ImageMemory + 'static) -> Result<Self, Error> {
        let mut stream =
            Self::from_map(image.layout, WantedQueue::default(), MemoryAccount::new(memory));
        stream.is_one_pass = true;
        let first = stream.layout.initial_ranges(AccessOrder::OnePass)?;
        let wants = first.into_sorted(stream.layout.head_facts().format)?;
        stream.expect_tables(&wants);
        stream.wants.add_sorted(wants);
        if stream.tables_missing > 0 {
            stream.parking = stream.layout.head_facts().parking_unit.map(ParkingLedger::new);
        }
        Ok(stream)
    }

    /// Creates a stream whose map is complete.
    fn from_map(layout: Box<dyn ImageLayout>, wants: WantedQueue, account: MemoryAccount) -> Self {
        let cluster = layout.head_facts().clusters.map_or(0, |clusters| clusters.size);
        Self {
            layout,
            position: Host(0),
            wants,
            active: Vec::new(),
            capture_limit: capture_limit(cluster),
            tables_missing: 0,
            is_one_pass: false,
            parking: None,
            account,
        }
    }

    /// Returns the facts read from the head.
    pub fn head_facts(&self) -> HeadFacts {
        self.layout.head_facts().clone()
    }

    /// Returns the guest ranges that a delta turns into zeros. The list is complete once the
    /// stream has finished. It does not overlap the data of the delta.
    pub fn zero_ranges(&self) -> &[Range<Guest>] {
        self.layout.zero_ranges()
    }

    /// Bytes of memory that the stream uses: the part of the map that is known and still needed,
    /// the tables that are being collected, and the parking ledger.
    fn memory_bytes(&self) -> u64 {
        let passing: u64 = self
            .active
            .iter()
            .map(|active| bytes_of::<Guest>(active.also.capacity()) + captured_bytes(&active.want))
            .sum();
        let parking = self.parking.as_ref().map_or(0, ParkingLedger::memory_bytes);
        self.wants.memory_bytes() + passing + parking + self.layout.memory_bytes()
    }

    /// Accounts for `more` bytes in addition to the memory held now. Must be called before they
    /// are allocated.
    fn hold_bytes(&mut self, more: u64) -> Result<(), Error> {
        self.account.hold_bytes(self.memory_bytes().saturating_add(more))
    }

    /// Returns the offset up to which the image has been pushed or skipped.
    pub fn position(&self) -> Host {
        self.position
    }

    /// Returns the first offset from here on whose byte is needed, or `None` if the guest's disk
    /// is complete. Every byte is needed while units may have to be parked.
    pub fn next_needed(&self) -> Option<Host> {
        if self.parking.is_some() || !self.active.is_empty() {
            Some(self.position)
        } else {
            self.wants.next_host()
        }
    }

    /// Skips the image bytes before `offset`. None of them may be needed.
    pub fn skip_to(&mut self, offset: Host) {
        debug_assert!(self.next_needed().is_none_or(|needed| offset <= needed));
        self.position = self.position.max(offset);
    }

    /// Processes the next bytes of the image, in pieces of any size.
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

    /// Ends the stream. Fails unless all mapped bytes have arrived.
    pub fn finish<S: GuestSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        self.activate_ranges()?;
        for active in std::mem::take(&mut self.active) {
            match active.want.role {
                // The length is rounded up to sectors. The decoder finds out whether the cluster
                // is complete.
                RangeRole::Compressed if !active.captured.is_empty() => {
                    self.emit_compressed(active, sink)?
                }
                _ => self.check_not_needed(&active.want)?,
            }
        }
        while let Some(want) = self.wants.pop_until(Host(u64::MAX)) {
            self.check_not_needed(&want)?;
        }
        // If the map was read first, its builder has compared it with the end of the image.
        if self.is_one_pass {
            self.layout.check_end(self.position)?;
        }
        Ok(())
    }

    fn check_not_needed(&self, want: &WantedRange) -> Result<(), Error> {
        if !self.layout.needs_range(want) {
            return Ok(());
        }
        Err(Error::truncated_error(self.layout.name_of(want), want.host, self.position))
    }

    /// Moves the ranges that begin at the current position into the active set.
    fn activate_ranges(&mut self) -> Result<(), Error> {
        // A range that continues from the previous unit refers to this unit as well.
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
        } else if self.active.len() > MAX_ACTIVE {
            "too many clusters overlap"
        } else {
            return self.hold_bytes(0);
        };
        Err(self.layout.head_facts().format.entangled_error(what, offset))
    }

    /// Number of bytes from the current position on that belong to the same set of ranges.
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
                    for guest in std::iter::once(active.want.guest_offset())
                        .chain(active.also.iter().copied())
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

    /// Removes the ranges that end here from the active set and uses the bytes that they
    /// collected.
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
                RangeRole::Table(_) => {
                    self.parse_table(active.want, &active.captured.join_pieces(), sink)?
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn emit_compressed<S: GuestSink>(
        &self,
        active: ActiveRange,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let stored = active.captured.join_pieces();
        for guest in active.also.into_iter().chain([active.want.guest_offset()]) {
            sink.write_compressed(guest, self.layout.compressed_payload(guest, stored.clone())?)?;
        }
        Ok(())
    }

    /// Parses a table that has arrived, and adds the ranges that it refers to.
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
        // Tables that only save memory are not needed when nothing is parked any more.
        if !is_required && self.parking.is_none() {
            return Ok(());
        }
        // The bytes of the table are still held while its ranges are added.
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

    /// Adds the ranges of a table. Ranges that lie ahead are queued, ranges that have passed are
    /// taken from the parked units.
    fn add_batch<S: GuestSink>(&mut self, batch: RangeBatch, sink: &mut S) -> Result<(), S::Error> {
        let mut passed = batch.into_sorted(self.layout.head_facts().format)?;
        self.expect_tables(&passed);
        let first_ahead = passed.partition_point(|want| want.host < self.position);
        if first_ahead == 0 {
            // The usual case: the table precedes everything that it maps. `split_off` would copy
            // all of its ranges.
            self.hold_bytes(bytes_of::<WantedRange>(passed.capacity()))?;
            self.wants.add_sorted(passed);
            return Ok(());
        }
        self.hold_bytes(bytes_of::<WantedRange>(passed.capacity() + passed.len() - first_ahead))?;
        self.wants.add_sorted(passed.split_off(first_ahead));
        passed.into_iter().try_for_each(|want| self.resolve_passed(want, sink))
    }

    fn expect_tables(&mut self, wants: &[WantedRange]) {
        let tables = wants.iter().filter(|want| want.is_table());
        self.tables_missing += tables.filter(|want| self.layout.needs_range(want)).count();
    }

    /// Releases the parked units once all tables are known: nothing can refer to them any more.
    fn check_map_complete<S: GuestSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if self.tables_missing == 0
            && let Some(parking) = self.parking.take()
        {
            parking.forget_all(sink)?;
        }
        Ok(())
    }
}

/// Maximum number of bytes of compressed clusters that are collected at once, for clusters of this
/// size.
fn capture_limit(cluster: u64) -> u64 {
    cluster.saturating_mul(16).max(4 << 20)
}

/// Bytes of memory that a wanted range uses when it has arrived. A table is joined into one buffer
/// while its pieces are still held.
fn captured_bytes(want: &WantedRange) -> u64 {
    match want.role {
        RangeRole::Table(_) => 2 * u64::from(want.length),
        _ => 0,
    }
}
