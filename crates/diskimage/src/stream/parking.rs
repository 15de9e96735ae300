//! Keeps parts of the image that have passed, because a table that has not arrived yet may refer
//! to them.
//!
//! If the image counts references, a unit is kept until all of them have arrived. If the count is
//! not known (the refcounts come later, or cannot be trusted), a table may still state that its
//! reference is the only one. Otherwise the unit is kept until all tables are known.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::pieces::PieceList;
use super::sink::GuestSink;
use crate::layout::ImageLayout;
use crate::offsets::Host;
use crate::wanted_ranges::RangeRole;

/// Bytes of memory for each parked unit. A unit takes 48 bytes in a tree node, and the nodes are
/// half full when units come in order.
const PARKED_BYTES: u64 = 104;

/// The parked units of a stream whose map is incomplete.
pub(super) struct ParkingLedger {
    unit: u64,
    /// All parked units, by their first byte.
    parked: BTreeMap<Host, UnitUsage>,
    /// The first byte of the unit that is arriving.
    start: Host,
    current: CurrentUnit,
}

/// The references to a unit.
#[derive(Debug, Default, Clone, Copy)]
struct UnitUsage {
    /// References that have arrived.
    references: u64,
    /// Total number of references, if the image has stated it yet.
    refcount: Option<u64>,
    /// Bytes that nothing has referred to yet.
    unused: u64,
    /// A table states that its reference is the only one.
    is_sole: bool,
    /// The unit contains compressed clusters: any number of them, each with its own references.
    has_compressed: bool,
}

impl UnitUsage {
    /// Counts `times` references from ranges of this role.
    fn add_references(&mut self, role: RangeRole, times: u64) {
        match role {
            RangeRole::PartOfData => return,
            // A reference to a table does not say whether there are others. Usually there are
            // none.
            RangeRole::SoleData | RangeRole::Table(_) => self.is_sole = true,
            RangeRole::Compressed => self.has_compressed = true,
            RangeRole::Data | RangeRole::Ignored => {}
        }
        self.references = self.references.saturating_add(times);
    }

    /// Returns true if nothing will refer to the unit any more.
    fn is_done(&self, layout: &dyn ImageLayout) -> bool {
        if !layout.counts_references() {
            return self.unused == 0;
        }
        // The tables of snapshots are not read. Each snapshot adds one reference to a cluster that
        // it shares with the disk. If this explains the count, the unit is not kept. Otherwise
        // most of an image with snapshots would be parked for nothing, and would not fit.
        let by_snapshots = match self {
            Self { references: 0, .. } | Self { has_compressed: true, .. } => 0,
            _ => u64::from(layout.head_facts().snapshots),
        };
        match self.refcount {
            Some(refcount) => self.references.saturating_add(by_snapshots) >= refcount,
            None => self.is_sole || by_snapshots > 0,
        }
    }
}

/// The unit of the image whose bytes are arriving now.
#[derive(Default)]
struct CurrentUnit {
    pieces: PieceList,
    bytes: u64,
    used: u64,
    usage: UnitUsage,
    /// No further references to the unit can follow. Its bytes are no longer collected.
    is_done: bool,
}

impl ParkingLedger {
    pub(super) fn new(unit: u64) -> Self {
        Self { unit, parked: BTreeMap::new(), start: Host(0), current: CurrentUnit::default() }
    }

    /// Bytes of memory that the ledger uses. The parked bytes themselves are held by the sink.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.parked.len() as u64 * PARKED_BYTES
    }

    /// Bytes of a unit.
    pub(super) fn unit_bytes(&self) -> u64 {
        self.unit
    }

    /// Counts `times` references to the unit that is passing.
    pub(super) fn note_references(
        &mut self,
        layout: &dyn ImageLayout,
        role: RangeRole,
        times: u64,
    ) {
        let usage = &mut self.current.usage;
        usage.add_references(role, times);
        if layout.counts_references() {
            usage.refcount = layout.refcount_at(self.start);
            self.current.is_done |= usage.is_done(layout);
        }
    }

    /// Takes the next bytes of the unit that is passing. `is_used` is true if something refers to
    /// them.
    pub(super) fn pass_piece(&mut self, piece: &Bytes, is_used: bool) {
        let length = piece.len() as u64;
        self.current.bytes += length;
        self.current.used += if is_used { length } else { 0 };
        if !self.current.is_done {
            self.current.pieces.push(piece);
        }
    }

    /// Parks or releases the unit that was passing. It is complete and ends at `end`.
    pub(super) fn settle_unit<S: GuestSink>(
        &mut self,
        layout: &mut dyn ImageLayout,
        end: Host,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let host = std::mem::replace(&mut self.start, end);
        let current = std::mem::take(&mut self.current);
        layout.advance_to(host);
        let usage = UnitUsage {
            refcount: layout.refcount_at(host),
            unused: current.bytes.saturating_sub(current.used),
            ..current.usage
        };
        // The first cluster has a refcount, but no table refers to it, so it would stay parked
        // until the end.
        let is_header = host == Host(0) && layout.counts_references();
        if current.is_done || is_header || usage.is_done(layout) {
            return Ok(());
        }
        self.parked.insert(host, usage);
        sink.park_unit(host, &current.pieces.into_list())
    }

    /// Returns true if all units that overlap the bytes `host..end` are parked.
    pub(super) fn has_parked(&self, host: Host, end: Host) -> bool {
        let first = host.unit_start(self.unit);
        (0..(end - first).div_ceil(self.unit))
            .all(|index| self.parked.contains_key(&(first + index * self.unit)))
    }

    /// Returns the bytes of the unit at `host` if they are kept: the whole unit if it is parked,
    /// or the bytes that have passed if it is the current one.
    pub(super) fn find_unit<S: GuestSink>(
        &self,
        host: Host,
        sink: &mut S,
    ) -> Result<Option<Bytes>, S::Error> {
        if self.parked.contains_key(&host) {
            return sink.read_parked(host).map(Some);
        }
        let is_there = host == self.start && !self.current.is_done;
        Ok(is_there.then(|| self.current.pieces.clone().join_pieces()))
    }

    /// Counts a reference from a late table to `bytes` bytes of the unit at `host`. Releases the
    /// unit if nothing else will refer to it.
    pub(super) fn add_late_reference<S: GuestSink>(
        &mut self,
        layout: &dyn ImageLayout,
        host: Host,
        role: RangeRole,
        bytes: u64,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let Some(usage) = self.parked.get_mut(&host) else {
            if host == self.start {
                self.current.used += bytes;
                self.note_references(layout, role, 1);
            }
            return Ok(());
        };
        usage.add_references(role, 1);
        usage.unused = usage.unused.saturating_sub(bytes);
        if usage.is_done(layout) {
            self.parked.remove(&host);
            sink.drop_parked(host)?;
        }
        Ok(())
    }

    /// Updates the parked units within the image's bytes `counted`, whose refcounts have become
    /// known. Releases each unit whose references have all arrived.
    pub(super) fn release_counted<S: GuestSink>(
        &mut self,
        layout: &dyn ImageLayout,
        counted: Range<Host>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let mut done = Vec::new();
        for (host, usage) in self.parked.range_mut(counted) {
            usage.refcount = layout.refcount_at(*host);
            if usage.is_done(layout) {
                done.push(*host);
            }
        }
        for host in done {
            self.parked.remove(&host);
            sink.drop_parked(host)?;
        }
        Ok(())
    }

    /// Releases all parked units, because the map is complete.
    pub(super) fn forget_all<S: GuestSink>(self, sink: &mut S) -> Result<(), S::Error> {
        self.parked.into_keys().try_for_each(|host| sink.drop_parked(host))
    }
}
