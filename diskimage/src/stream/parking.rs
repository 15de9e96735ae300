//! Which passed parts of the image must be kept because a table that has not come yet may refer to them.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::Sink;
use super::pieces::Pieces;
use crate::layout::Layout;
use crate::wants::Role;

/// Bytes of memory for each parked unit: 24 in a node of a tree that is half full when units come in order.
const PARKED_BYTES: u64 = 56;

/// The book of a stream whose map is not complete.
pub(super) struct Parking {
    unit: u64,
    /// Host offset of every parked unit.
    parked: BTreeMap<u64, Usage>,
    /// Where the passing unit begins.
    start: u64,
    current: Current,
}

/// How much of a unit has been asked for.
#[derive(Debug, Default, Clone, Copy)]
struct Usage {
    /// Compressed clusters that begin, end or lie in it, and later references of any kind.
    references: u64,
    /// Bytes that nobody has asked for yet.
    unused: u64,
}

/// The unit that is passing.
#[derive(Default)]
struct Current {
    pieces: Pieces,
    bytes: u64,
    used: u64,
    /// Somebody has it for itself; see [`Layout::owns_units`].
    is_owned: bool,
    references: u64,
}

impl Parking {
    pub(super) fn new(unit: u64) -> Self {
        Self {
            unit,
            parked: BTreeMap::new(),
            start: 0,
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

    /// The passing unit is wanted by somebody.
    pub(super) fn note(&mut self, layout: &dyn Layout, role: Role) {
        if role == Role::Compressed {
            self.current.references += 1;
        } else if layout.owns_units() {
            self.current.is_owned = true;
        }
    }

    /// The next bytes of the passing unit; `is_used` if somebody got them.
    pub(super) fn pass(&mut self, piece: &Bytes, is_used: bool) {
        let length = piece.len() as u64;
        self.current.bytes += length;
        self.current.used += if is_used { length } else { 0 };
        if !self.current.is_owned {
            self.current.pieces.push(piece);
        }
    }

    /// The passing unit, which ends at `end`, is whole: keep it or let it go.
    pub(super) fn settle<S: Sink>(
        &mut self,
        layout: &mut dyn Layout,
        end: u64,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let host = std::mem::replace(&mut self.start, end);
        let current = std::mem::take(&mut self.current);
        layout.pass(host);
        let usage = Usage {
            references: current.references,
            unused: current.bytes.saturating_sub(current.used),
        };
        if current.is_owned || host == 0 && layout.owns_units() || is_satisfied(layout, host, usage) {
            return Ok(());
        }
        self.parked.insert(host, usage);
        sink.park(host, &current.pieces.into_list())
    }

    /// True if all units that bytes `host..end` lie in are parked.
    pub(super) fn holds(&self, host: u64, end: u64) -> bool {
        let first = host - host % self.unit;
        (0..(end - first).div_ceil(self.unit))
            .all(|index| self.parked.contains_key(&(first + index * self.unit)))
    }

    /// The bytes of the unit at `host`, if they are there: all of it, or what has passed of the current one.
    pub(super) fn find<S: Sink>(&self, host: u64, sink: &mut S) -> Result<Option<Bytes>, S::Error> {
        if self.parked.contains_key(&host) {
            return sink.parked(host).map(Some);
        }
        let is_there = host == self.start && !self.current.is_owned;
        Ok(is_there.then(|| self.current.pieces.clone().join()))
    }

    /// A table that came late refers to `bytes` bytes of the unit at `host`; lets it go if nobody else can.
    pub(super) fn reference<S: Sink>(
        &mut self,
        layout: &dyn Layout,
        host: u64,
        role: Role,
        bytes: u64,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let Some(usage) = self.parked.get_mut(&host) else {
            if host == self.start {
                self.current.used += bytes;
            }
            return Ok(());
        };
        usage.references += 1;
        usage.unused = usage.unused.saturating_sub(bytes);
        let usage = *usage;
        let is_done = role != Role::Compressed && layout.owns_units();
        if is_done || is_satisfied(layout, host, usage) {
            self.parked.remove(&host);
            sink.forget(host)?;
        }
        Ok(())
    }

    /// More refcounts are known, of the image's bytes `counted`: lets go of what they call satisfied.
    pub(super) fn release<S: Sink>(
        &mut self,
        layout: &dyn Layout,
        counted: Range<u64>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let satisfied: Vec<u64> = self
            .parked
            .range(counted)
            .filter(|(host, usage)| is_satisfied(layout, **host, **usage))
            .map(|(host, _)| *host)
            .collect();
        for host in satisfied {
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

/// True if all of the unit was asked for, or as often as the image's refcounts promise.
fn is_satisfied(layout: &dyn Layout, host: u64, usage: Usage) -> bool {
    usage.unused == 0 && !layout.owns_units()
        || layout
            .refcount(host)
            .is_some_and(|refcount| usage.references >= refcount)
}
