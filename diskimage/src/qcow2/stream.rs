//! The state machine: image bytes in file order in, guest bytes out.

use bytes::Bytes;

use super::MAP_BYTES;
use super::header::Header;
use super::map::{l2_tables, l2_wants};
use super::pieces::Pieces;
use super::refcounts::Refcounts;
use super::table::L2Table;
use super::wants::{Batch, Role, Want, Wants};
use super::zeros::Zeros;
use crate::Error;

mod parking;

use parking::Parking;

/// Where the guest's bytes go, and where clusters wait whose place is not known yet.
pub trait Sink {
    /// What can go wrong on the way; errors of the image are converted into it.
    type Error: From<Error>;

    /// Guest bytes at `guest`, within the virtual size. Come in any order, in pieces of any size.
    fn data(&mut self, guest: u64, bytes: Bytes) -> Result<(), Self::Error>;

    /// A compressed cluster that belongs at `guest`; it inflates to exactly one cluster, of which the part
    /// beyond the virtual size is dropped.
    fn compressed(&mut self, guest: u64, bytes: Bytes) -> Result<(), Self::Error>;

    /// Keeps the host cluster that begins at `host` (one pass only). The last one of a file may be short.
    fn park(&mut self, host: u64, pieces: &[Bytes]) -> Result<(), Self::Error>;

    /// The bytes of a parked cluster.
    fn parked(&mut self, host: u64) -> Result<Bytes, Self::Error>;

    /// A parked cluster is not needed any more.
    fn forget(&mut self, host: u64) -> Result<(), Self::Error>;
}

/// A wanted range that the stream is inside of.
struct Active {
    want: Want,
    /// Other places that want the very same bytes.
    also: Vec<u64>,
    /// Bytes so far, unless they are passed on at once.
    captured: Pieces,
}

/// Converts an image; see the [module](super) documentation.
pub struct Stream {
    header: Header,
    position: u64,
    wants: Wants,
    zeros: Zeros,
    active: Vec<Active>,
    /// Bytes that captures may hold together: compressed clusters overlap by a sector, not by the thousand.
    capture_limit: u64,
    /// `Some` while L2 tables are missing.
    parking: Option<Parking>,
}

impl Stream {
    /// A stream that learns the map as it passes by.
    pub fn one_pass(header: Header) -> Result<Self, Error> {
        let mut stream = Self::mapped(header, Wants::new(MAP_BYTES), Zeros::default());
        let header = &stream.header;
        if header.l1_entries == 0 {
            return Ok(stream);
        }
        let mut l1 = Batch::default();
        l1.push(header.l1_offset, header.l1_entries * 8, Role::L1, 0);
        stream.wants.add(l1.sorted())?;
        if !header.dirty {
            let mut table = Batch::default();
            table.push(
                header.refcount_table_offset,
                header.refcount_table_bytes,
                Role::RefcountTable,
                0,
            );
            stream.wants.add(table.sorted())?;
        }
        stream.parking = Some(Parking::default());
        Ok(stream)
    }

    /// A stream whose map is complete.
    pub(super) fn mapped(header: Header, wants: Wants, zeros: Zeros) -> Self {
        let capture_limit = (header.cluster_size() * 16).max(4 << 20);
        Self {
            header,
            position: 0,
            wants,
            zeros,
            active: Vec::new(),
            capture_limit,
            parking: None,
        }
    }

    /// The image's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What a delta makes zero: all of it once the stream has finished. Whatever else it says lies elsewhere.
    pub fn zeros(&self) -> &Zeros {
        &self.zeros
    }

    /// Bytes of memory that the map takes, as far as it is known and still needed.
    pub fn map_bytes(&self) -> u64 {
        self.wants.bytes()
    }

    /// Bytes of the image that were pushed or skipped.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The first image byte from here on that is needed; `None` when the guest's disk is complete. Everything
    /// is needed until the map is complete.
    pub fn next_needed(&self) -> Option<u64> {
        if self.parking.is_some() || !self.active.is_empty() {
            Some(self.position)
        } else {
            self.wants.next_host()
        }
    }

    /// Tells that the image bytes before `offset`, none of them needed, will not be pushed.
    pub fn skip_to(&mut self, offset: u64) {
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
                && self.position.is_multiple_of(self.header.cluster_size())
            {
                parking.settle(&self.header, self.position - self.header.cluster_size(), sink)?;
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
                role => self.check_not_needed(role, active.want.host)?,
            }
        }
        while let Some(want) = self.wants.pop_until(u64::MAX) {
            self.check_not_needed(want.role, want.host)?;
        }
        Ok(())
    }

    fn check_not_needed(&self, role: Role, offset: u64) -> Result<(), Error> {
        let what = match role {
            Role::Data | Role::Compressed => "a data cluster",
            Role::L1 => "the L1 table",
            Role::L2 => "an L2 table",
            Role::Ignored | Role::RefcountTable | Role::RefcountBlock => return Ok(()),
        };
        Err(Error::Truncated {
            what,
            offset,
            end: self.position,
        })
    }

    /// Moves the wants that begin here into the active set.
    fn activate(&mut self) -> Result<(), Error> {
        if let Some(parking) = &mut self.parking
            && self.position.is_multiple_of(self.header.cluster_size())
        {
            self.active
                .iter()
                .for_each(|active| parking.note(active.want.role));
        }
        while let Some(want) = self.wants.pop_until(self.position) {
            if let Some(parking) = &mut self.parking {
                parking.note(want.role);
            }
            match self.active.last_mut() {
                Some(last)
                    if (last.want.host, last.want.length, last.want.role)
                        == (want.host, want.length, want.role) =>
                {
                    last.also.push(want.at);
                }
                _ => self.active.push(Active {
                    want,
                    also: Vec::new(),
                    captured: Pieces::default(),
                }),
            }
            self.check_captures(want.host)?;
        }
        Ok(())
    }

    fn check_captures(&self, offset: u64) -> Result<(), Error> {
        let compressed = |active: &&Active| active.want.role == Role::Compressed;
        let bytes: u64 = self
            .active
            .iter()
            .filter(compressed)
            .map(|active| u64::from(active.want.length))
            .sum();
        if bytes > self.capture_limit {
            return Err(Error::Corrupt {
                what: "too many compressed clusters overlap".into(),
                offset,
            });
        }
        Ok(())
    }

    /// How far the bytes can be treated alike.
    fn piece_length(&self, available: usize) -> usize {
        let mut end = u64::MAX;
        if let Some(next) = self.wants.next_host() {
            end = end.min(next);
        }
        for active in &self.active {
            end = end.min(active.want.end());
        }
        if self.parking.is_some() {
            let cluster = self.header.cluster_size();
            end = end.min(self.position - self.position % cluster + cluster);
        }
        usize::try_from(end - self.position).map_or(available, |length| length.min(available))
    }

    fn feed<S: Sink>(&mut self, piece: &Bytes, sink: &mut S) -> Result<(), S::Error> {
        for active in &mut self.active {
            match active.want.role {
                Role::Data => {
                    let skip = self.position - active.want.host;
                    for at in std::iter::once(active.want.at).chain(active.also.iter().copied()) {
                        sink.data(at + skip, piece.clone())?;
                    }
                }
                Role::Ignored => {}
                _ => active.captured.push(piece),
            }
        }
        if let Some(parking) = &mut self.parking {
            parking.pass(piece);
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
                Role::Data | Role::Ignored => {}
                Role::Compressed => self.emit_compressed(active, sink)?,
                Role::L1 => self.learn_l1(&active.captured.join(), sink)?,
                Role::L2 => {
                    let table = L2Table {
                        offset: active.want.host,
                        guest: active.want.at,
                    };
                    self.learn_l2(table, &active.captured.join(), sink)?;
                }
                Role::RefcountTable => self.learn_refcount_table(&active.captured.join(), sink)?,
                Role::RefcountBlock => {
                    if let Some(parking) = &mut self.parking {
                        parking.learn_block(&self.header, active.want.at, &active.captured.join(), sink)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn emit_compressed<S: Sink>(&self, active: Active, sink: &mut S) -> Result<(), S::Error> {
        let bytes = active.captured.join();
        for at in active.also.iter().copied() {
            sink.compressed(at, bytes.clone())?;
        }
        sink.compressed(active.want.at, bytes)
    }

    fn learn_l1<S: Sink>(&mut self, l1: &[u8], sink: &mut S) -> Result<(), S::Error> {
        let tables = l2_tables(&self.header, l1)?;
        let Some(parking) = &mut self.parking else {
            return Ok(());
        };
        parking.l2_missing = Some(tables.len());
        let mut ahead = Batch::default();
        let mut passed = Vec::new();
        for table in tables {
            if table.offset >= self.position {
                ahead.push(table.offset, self.header.cluster_size(), Role::L2, table.guest);
            } else {
                passed.push(table);
            }
        }
        self.wants.add(ahead.sorted())?;
        self.check_map_complete(sink)?;
        for table in passed {
            let bytes = self.parked(table.offset, "an L2 table", sink)?;
            self.learn_l2(table, &bytes, sink)?;
        }
        Ok(())
    }

    fn learn_l2<S: Sink>(&mut self, table: L2Table, bytes: &[u8], sink: &mut S) -> Result<(), S::Error> {
        let mut wants = l2_wants(&self.header, table, bytes)?;
        if self.header.is_delta {
            self.zeros.learn(&self.header, table, bytes)?;
        }
        let first_ahead = wants.partition_point(|want| want.host < self.position);
        let ahead = wants.split_off(first_ahead);
        self.wants.add(ahead)?;
        for (index, want) in wants.iter().enumerate() {
            self.resolve_passed(*want, wants.get(index + 1), sink)?;
        }
        if let Some(missing) = self
            .parking
            .as_mut()
            .and_then(|parking| parking.l2_missing.as_mut())
        {
            *missing = missing.saturating_sub(1);
        }
        self.check_map_complete(sink)
    }

    /// All L2 tables known: what is parked now is of no use to anybody.
    fn check_map_complete<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if self
            .parking
            .as_ref()
            .is_some_and(|parking| parking.l2_missing == Some(0))
            && let Some(parking) = self.parking.take()
        {
            parking.forget_all(sink)?;
        }
        Ok(())
    }

    fn learn_refcount_table<S: Sink>(&mut self, table: &[u8], sink: &mut S) -> Result<(), S::Error> {
        let mut wants = Refcounts::wanted_blocks(&self.header, table);
        let first_ahead = wants.partition_point(|want| want.host < self.position);
        self.wants.add(wants.split_off(first_ahead))?;
        for want in wants {
            if let Some(parking) = &mut self.parking
                && parking.holds(want.host)
            {
                let block = sink.parked(want.host)?;
                parking.learn_block(&self.header, want.at, &block, sink)?;
            }
        }
        Ok(())
    }

    /// A range that was mapped after it had begun to pass: its clusters are parked, or nobody kept them.
    /// `next` is the want after it: a cluster is let go only when the table has nothing more to say about it.
    fn resolve_passed<S: Sink>(
        &mut self,
        want: Want,
        next: Option<&Want>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let passed = Want {
            length: want.length.min(u32_gap(want.host, self.position)),
            ..want
        };
        let cluster = self.header.cluster_size();
        let mut captured = Pieces::default();
        let mut at = passed.host;
        while at < passed.end() {
            let first = at - at % cluster;
            let end = passed.end().min(first + cluster);
            if want.role != Role::Ignored {
                let bytes = self.parked(first, "a data cluster", sink)?;
                let range = slice_range(at - first, end - first);
                let Some(piece) = bytes.get(range.clone()).map(|_| bytes.slice(range)) else {
                    return Err(Error::Truncated {
                        what: "a data cluster",
                        offset: at,
                        end: self.position,
                    }
                    .into());
                };
                match want.role {
                    Role::Data => sink.data(want.at + (at - want.host), piece)?,
                    _ => captured.push(&piece),
                }
            }
            let again = next.is_some_and(|next| next.host < first + cluster && next.role != Role::Compressed);
            if let Some(parking) = &mut self.parking
                && !again
            {
                parking.reference(&self.header, first, want.role, sink)?;
            }
            at = end;
        }
        self.continue_ahead(want, passed.length, captured, sink)
    }

    /// The part of a passed want that still lies ahead.
    fn continue_ahead<S: Sink>(
        &mut self,
        want: Want,
        passed: u32,
        captured: Pieces,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let active = Active {
            want,
            also: Vec::new(),
            captured,
        };
        if passed == want.length {
            return match want.role {
                Role::Compressed => self.emit_compressed(active, sink),
                _ => Ok(()),
            };
        }
        // `feed` counts from `want.host`, so the whole want goes on.
        self.active.push(active);
        Ok(self.check_captures(want.host)?)
    }

    fn parked<S: Sink>(&self, host: u64, what: &'static str, sink: &mut S) -> Result<Bytes, S::Error> {
        match &self.parking {
            Some(parking) if parking.holds(host) => sink.parked(host),
            _ => Err(Error::RefcountContradiction { what, offset: host }.into()),
        }
    }
}

/// `to - from` as a length; saturates, as no want is longer than 32 bits.
fn u32_gap(from: u64, to: u64) -> u32 {
    u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX)
}

fn slice_range(start: u64, end: u64) -> std::ops::Range<usize> {
    usize::try_from(start).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX)
}
