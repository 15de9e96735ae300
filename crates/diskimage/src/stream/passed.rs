//! Ranges that became known only after they had passed. Their bytes are parked, or were not kept.

use bytes::Bytes;

use super::parking::ParkingLedger;
use super::sink::GuestSink;
use super::{ActiveRange, ImageStream};
use crate::Error;
use crate::offsets::Host;
use crate::wanted_ranges::{RangeRole, WantedRange};

impl ImageStream {
    /// Serves a range that had begun to pass before it became known.
    pub(super) fn resolve_passed<S: GuestSink>(
        &mut self,
        want: WantedRange,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let unit = self.parking.as_ref().map(ParkingLedger::unit_bytes);
        let Some(unit) = unit.filter(|_| self.can_be_served(&want)) else {
            return if self.layout.needs_range(&want) {
                Err(self.not_kept(&want, want.host).into())
            } else {
                Ok(())
            };
        };
        let passed = want.host_end().min(self.position);
        let mut active = ActiveRange::new(want);
        let mut at = want.host;
        while at < passed {
            let first = at.unit_start(unit);
            let end = passed.min(first.saturating_add(unit));
            // Bytes that the guest does not read are not fetched, but they count as a reference:
            // the last reference releases the unit.
            if want.role != RangeRole::Ignored {
                let bytes = self.kept_bytes(&want, first, at, end, sink)?;
                if want.role.is_data() {
                    sink.write_data(want.guest_offset() + (at - want.host), bytes)?;
                } else {
                    active.captured.push(&bytes);
                }
            }
            if let Some(parking) = &mut self.parking {
                parking.add_late_reference(&*self.layout, first, want.role, end - at, sink)?;
            }
            at = end;
        }
        self.continue_ahead(active, passed, sink)
    }

    /// Returns false if the stream does not park units, or if an optional table is not completely
    /// parked.
    fn can_be_served(&self, want: &WantedRange) -> bool {
        let is_optional = want.is_table() && !self.layout.needs_range(want);
        self.parking
            .as_ref()
            .is_some_and(|parking| !is_optional || parking.has_parked(want.host, want.host_end()))
    }

    /// Returns the bytes `at..end` of the image, which lie in the unit that begins at `first`.
    fn kept_bytes<S: GuestSink>(
        &self,
        want: &WantedRange,
        first: Host,
        at: Host,
        end: Host,
        sink: &mut S,
    ) -> Result<Bytes, S::Error> {
        let found = match &self.parking {
            Some(parking) => parking.find_unit(first, sink)?,
            None => None,
        };
        let Some(bytes) = found else {
            return Err(self.not_kept(want, first).into());
        };
        // The last unit of an image may be short, and a range may reach beyond it.
        let range = slice_range(at - first, end - first);
        match bytes.get(range.clone()) {
            Some(_) => Ok(bytes.slice(range)),
            None => {
                let what = self.layout.name_of(want);
                Err(Error::truncated_error(what, at, self.position).into())
            }
        }
    }

    /// Returns the error for a range that was not kept. If references are counted and the image
    /// has no snapshots, only a wrong refcount can have released the unit too early.
    fn not_kept(&self, want: &WantedRange, offset: Host) -> Error {
        let what = self.layout.name_of(want);
        if self.layout.counts_references() && self.layout.head_facts().snapshots == 0 {
            return Error::RefcountContradiction { what, offset };
        }
        let format = self.layout.head_facts().format;
        Error::Passed { format, what, offset }
    }

    /// Continues with the part of a passed range that still lies ahead.
    fn continue_ahead<S: GuestSink>(
        &mut self,
        active: ActiveRange,
        passed: Host,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let want = active.want;
        if passed == want.host_end() {
            return match want.role {
                RangeRole::Compressed => self.emit_compressed(active, sink),
                RangeRole::Table(_) => self.parse_table(want, &active.captured.join_pieces(), sink),
                _ => Ok(()),
            };
        }
        // `feed_active` counts from `want.host`, so the range keeps its beginning.
        self.active.push(active);
        Ok(self.check_captures(want.host)?)
    }
}

fn slice_range(start: u64, end: u64) -> std::ops::Range<usize> {
    usize::try_from(start).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX)
}
