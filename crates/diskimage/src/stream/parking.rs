//! The passed parts of the image that must be kept because a table that has not come yet may refer to them.
//!
//! Where the image counts its references, a unit is kept until as many of them have come. Where it does not say how many there
//! are (its refcounts come later, or are not to be trusted), a table may still say that it is the only one; else the unit
//! is kept until all tables are known.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::pieces::PieceList;
use super::sink::GuestSink;
use crate::layout::ImageLayout;
use crate::offsets::Host;
use crate::wanted_ranges::RangeRole;

/// Bytes of memory for each parked unit: 48 in a node of a tree that is half full when units come in order.
const PARKED_BYTES: u64 = 104;

/// The book of a stream whose map is not complete.
pub(super) struct ParkingLedger {
    unit: u64,
    /// Every parked unit by its first byte.
    parked: BTreeMap<Host, UnitUsage>,
    /// The first byte of the passing unit.
    start: Host,
    current: CurrentUnit,
}

/// The references to a unit.
#[derive(Debug, Default, Clone, Copy)]
struct UnitUsage {
    /// References that have come.
    references: u64,
    /// References that there are altogether, if the image has told it.
    refcount: Option<u64>,
    /// Bytes that nothing has referred to yet.
    unused: u64,
    /// A table says that its reference is the only one.
    is_sole: bool,
    /// There are compressed clusters in it: any number of them, each with its own references.
    has_compressed: bool,
}

impl UnitUsage {
    /// Counts `times` references by wants of this role.
    fn add_references(&mut self, role: RangeRole, times: u64) {
        match role {
            RangeRole::PartOfData => return,
            // What else refers to tables, their references do not tell. Usually nothing does.
            RangeRole::SoleData | RangeRole::Table(_) => self.is_sole = true,
            RangeRole::Compressed => self.has_compressed = true,
            RangeRole::Data | RangeRole::Ignored => {}
        }
        self.references = self.references.saturating_add(times);
    }

    /// True if nothing will refer to the unit any more.
    fn is_done(&self, layout: &dyn ImageLayout) -> bool {
        if !layout.counts_references() {
            return self.unused == 0;
        }
        // Tables of snapshots are not read. Each snapshot refers once more to what it shares with the disk. If that explains
        // the count, it is not waited for: most of such an image would wait for nothing, and not fit.
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

/// The unit that is passing.
#[derive(Default)]
struct CurrentUnit {
    pieces: PieceList,
    bytes: u64,
    used: u64,
    usage: UnitUsage,
    /// Nothing else will refer to it: its bytes are not collected any more.
    is_done: bool,
}

impl ParkingLedger {
    pub(super) fn new(unit: u64) -> Self {
        Self { unit, parked: BTreeMap::new(), start: Host(0), current: CurrentUnit::default() }
    }

    /// Bytes of memory that the book takes; not those of what waits, which are the sink's.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.parked.len() as u64 * PARKED_BYTES
    }

    /// Bytes of a unit.
    pub(super) fn unit_bytes(&self) -> u64 {
        self.unit
    }

    /// Counts `times` references to the passing unit.
    pub(super) fn note_references(&mut self, layout: &dyn ImageLayout, role: RangeRole, times: u64) {
        let usage = &mut self.current.usage;
        usage.add_references(role, times);
        if layout.counts_references() {
            usage.refcount = layout.refcount_at(self.start);
            self.current.is_done |= usage.is_done(layout);
        }
    }

    /// The next bytes of the passing unit; `is_used` if something refers to them.
    pub(super) fn pass_piece(&mut self, piece: &Bytes, is_used: bool) {
        let length = piece.len() as u64;
        self.current.bytes += length;
        self.current.used += if is_used { length } else { 0 };
        if !self.current.is_done {
            self.current.pieces.push(piece);
        }
    }

    /// The passing unit, which ends at `end`, is whole: keep it or let it go.
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
        // The first cluster has a refcount and no table that refers to it: it would wait until the end.
        let is_header = host == Host(0) && layout.counts_references();
        if current.is_done || is_header || usage.is_done(layout) {
            return Ok(());
        }
        self.parked.insert(host, usage);
        sink.park_unit(host, &current.pieces.into_list())
    }

    /// True if all units that bytes `host..end` lie in are parked.
    pub(super) fn has_parked(&self, host: Host, end: Host) -> bool {
        let first = host.unit_start(self.unit);
        (0..(end - first).div_ceil(self.unit))
            .all(|index| self.parked.contains_key(&(first + index * self.unit)))
    }

    /// The bytes of the unit at `host`, if they are there: all of it, or what has passed of the current one.
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

    /// A table that came late refers to `bytes` bytes of the unit at `host`; lets it go if nothing else will.
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

    /// More refcounts are known, of the image's bytes `counted`: lets go of what has all its references.
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

    /// The map is complete.
    pub(super) fn forget_all<S: GuestSink>(self, sink: &mut S) -> Result<(), S::Error> {
        self.parked.into_keys().try_for_each(|host| sink.drop_parked(host))
    }
}
