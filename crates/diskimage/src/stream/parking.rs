//! The passed parts of the image that must be kept because a table that has not come yet may refer to them.
//!
//! Where the image counts its references, a unit is kept until as many of them have come. Where it does not say how many there
//! are (its refcounts come later, or are not to be trusted), a table may still say that it is the only one; else the unit
//! is kept until all tables are known.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::pieces::Pieces;
use super::sink::Sink;
use crate::layout::Layout;
use crate::offsets::Host;
use crate::wants::Role;

/// Bytes of memory for each parked unit: 48 in a node of a tree that is half full when units come in order.
const PARKED_BYTES: u64 = 104;

/// The book of a stream whose map is not complete.
pub(super) struct Parking {
    unit: u64,
    /// Every parked unit by its first byte.
    parked: BTreeMap<Host, Usage>,
    /// The first byte of the passing unit.
    start: Host,
    current: Current,
}

/// The references to a unit.
#[derive(Debug, Default, Clone, Copy)]
struct Usage {
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

impl Usage {
    /// Counts `times` references by wants of this role.
    fn add(&mut self, role: Role, times: u64) {
        match role {
            Role::PartOfData => return,
            // What else refers to tables, their references do not tell. Usually nothing does.
            Role::SoleData | Role::Table(_) => self.is_sole = true,
            Role::Compressed => self.has_compressed = true,
            Role::Data | Role::Ignored => {}
        }
        self.references = self.references.saturating_add(times);
    }

    /// True if nothing will refer to the unit any more.
    fn is_done(&self, layout: &dyn Layout) -> bool {
        if !layout.counts_references() {
            return self.unused == 0;
        }
        // Tables of snapshots are not read. Each snapshot refers once more to what it shares with the disk. If that explains
        // the count, it is not waited for: most of such an image would wait for nothing, and not fit.
        let by_snapshots = match self {
            Self { references: 0, .. }
            | Self {
                has_compressed: true, ..
            } => 0,
            _ => u64::from(layout.facts().snapshots),
        };
        match self.refcount {
            Some(refcount) => self.references.saturating_add(by_snapshots) >= refcount,
            None => self.is_sole || by_snapshots > 0,
        }
    }
}

/// The unit that is passing.
#[derive(Default)]
struct Current {
    pieces: Pieces,
    bytes: u64,
    used: u64,
    usage: Usage,
    /// Nothing else will refer to it: its bytes are not collected any more.
    is_done: bool,
}

impl Parking {
    pub(super) fn new(unit: u64) -> Self {
        Self {
            unit,
            parked: BTreeMap::new(),
            start: Host(0),
            current: Current::default(),
        }
    }

    /// Bytes of memory that the book takes; not those of what waits, which are the sink's.
    pub(super) fn bytes(&self) -> u64 {
        self.parked.len() as u64 * PARKED_BYTES
    }

    /// Bytes of a unit.
    pub(super) fn unit(&self) -> u64 {
        self.unit
    }

    /// Counts `times` references to the passing unit.
    pub(super) fn note(&mut self, layout: &dyn Layout, role: Role, times: u64) {
        let usage = &mut self.current.usage;
        usage.add(role, times);
        if layout.counts_references() {
            usage.refcount = layout.refcount(self.start);
            self.current.is_done |= usage.is_done(layout);
        }
    }

    /// The next bytes of the passing unit; `is_used` if something refers to them.
    pub(super) fn pass(&mut self, piece: &Bytes, is_used: bool) {
        let length = piece.len() as u64;
        self.current.bytes += length;
        self.current.used += if is_used { length } else { 0 };
        if !self.current.is_done {
            self.current.pieces.push(piece);
        }
    }

    /// The passing unit, which ends at `end`, is whole: keep it or let it go.
    pub(super) fn settle<S: Sink>(
        &mut self,
        layout: &mut dyn Layout,
        end: Host,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let host = std::mem::replace(&mut self.start, end);
        let current = std::mem::take(&mut self.current);
        layout.pass(host);
        let usage = Usage {
            refcount: layout.refcount(host),
            unused: current.bytes.saturating_sub(current.used),
            ..current.usage
        };
        // The first cluster has a refcount and no table that refers to it: it would wait until the end.
        let is_header = host == Host(0) && layout.counts_references();
        if current.is_done || is_header || usage.is_done(layout) {
            return Ok(());
        }
        self.parked.insert(host, usage);
        sink.park(host, &current.pieces.into_list())
    }

    /// True if all units that bytes `host..end` lie in are parked.
    pub(super) fn holds(&self, host: Host, end: Host) -> bool {
        let first = host.unit(self.unit);
        (0..(end - first).div_ceil(self.unit))
            .all(|index| self.parked.contains_key(&(first + index * self.unit)))
    }

    /// The bytes of the unit at `host`, if they are there: all of it, or what has passed of the current one.
    pub(super) fn find<S: Sink>(&self, host: Host, sink: &mut S) -> Result<Option<Bytes>, S::Error> {
        if self.parked.contains_key(&host) {
            return sink.parked(host).map(Some);
        }
        let is_there = host == self.start && !self.current.is_done;
        Ok(is_there.then(|| self.current.pieces.clone().join()))
    }

    /// A table that came late refers to `bytes` bytes of the unit at `host`; lets it go if nothing else will.
    pub(super) fn reference<S: Sink>(
        &mut self,
        layout: &dyn Layout,
        host: Host,
        role: Role,
        bytes: u64,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let Some(usage) = self.parked.get_mut(&host) else {
            if host == self.start {
                self.current.used += bytes;
                self.note(layout, role, 1);
            }
            return Ok(());
        };
        usage.add(role, 1);
        usage.unused = usage.unused.saturating_sub(bytes);
        if usage.is_done(layout) {
            self.parked.remove(&host);
            sink.forget(host)?;
        }
        Ok(())
    }

    /// More refcounts are known, of the image's bytes `counted`: lets go of what has all its references.
    pub(super) fn release<S: Sink>(
        &mut self,
        layout: &dyn Layout,
        counted: Range<Host>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let mut done = Vec::new();
        for (host, usage) in self.parked.range_mut(counted) {
            usage.refcount = layout.refcount(*host);
            if usage.is_done(layout) {
                done.push(*host);
            }
        }
        for host in done {
            self.parked.remove(&host);
            sink.forget(host)?;
        }
        Ok(())
    }

    /// The map is complete.
    pub(super) fn forget_all<S: Sink>(self, sink: &mut S) -> Result<(), S::Error> {
        self.parked.into_keys().try_for_each(|host| sink.forget(host))
    }
}
