//! Which passed clusters must be kept because a table that has not come yet may refer to them.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::header::Header;
use super::super::pieces::Pieces;
use super::super::refcounts::Refcounts;
use super::super::table::refcounts_per_block;
use super::super::wants::Role;
use super::Sink;

/// The book of a stream whose map is not complete.
#[derive(Default)]
pub(super) struct Parking {
    /// L2 tables that have not come; unknown before the L1 table.
    pub(super) l2_missing: Option<usize>,
    refcounts: Refcounts,
    /// Host offset of every parked cluster, and how often it was referred to.
    parked: BTreeMap<u64, u64>,
    current: Current,
}

/// The cluster that is passing.
#[derive(Default)]
struct Current {
    pieces: Pieces,
    /// Metadata, or mapped as a whole cluster: in a consistent image nothing else refers to it from the active map.
    claimed: bool,
    /// Compressed clusters that begin, end or lie in it.
    references: u64,
}

impl Parking {
    /// The passing cluster is wanted by somebody.
    pub(super) fn note(&mut self, role: Role) {
        match role {
            Role::Compressed => self.current.references += 1,
            _ => self.current.claimed = true,
        }
    }

    /// The next bytes of the passing cluster.
    pub(super) fn pass(&mut self, piece: &Bytes) {
        if !self.current.claimed {
            self.current.pieces.push(piece);
        }
    }

    /// The passing cluster, which began at `host`, is whole: keep it or let it go.
    pub(super) fn settle<S: Sink>(
        &mut self,
        header: &Header,
        host: u64,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let current = std::mem::take(&mut self.current);
        self.refcounts.pass(header, host);
        if current.claimed || host == 0 || self.is_satisfied(header, host, current.references) {
            return Ok(());
        }
        self.parked.insert(host, current.references);
        sink.park(host, &current.pieces.into_list())
    }

    /// True if as many references were seen as the image's refcounts promise.
    fn is_satisfied(&self, header: &Header, host: u64, references: u64) -> bool {
        self.refcounts
            .of(header, host)
            .is_some_and(|refcount| references >= refcount)
    }

    /// True if the cluster at `host` is parked.
    pub(super) fn holds(&self, host: u64) -> bool {
        self.parked.contains_key(&host)
    }

    /// A table that came late refers to the cluster at `host`; lets it go if it was the last to do so.
    pub(super) fn reference<S: Sink>(
        &mut self,
        header: &Header,
        host: u64,
        role: Role,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let Some(references) = self.parked.get_mut(&host) else {
            return Ok(());
        };
        *references += 1;
        let references = *references;
        if role != Role::Compressed || self.is_satisfied(header, host, references) {
            self.parked.remove(&host);
            sink.forget(host)?;
        }
        Ok(())
    }

    /// A refcount block came; lets go of parked clusters that it calls satisfied.
    pub(super) fn learn_block<S: Sink>(
        &mut self,
        header: &Header,
        first: u64,
        block: &[u8],
        sink: &mut S,
    ) -> Result<(), S::Error> {
        self.refcounts.learn_block(first, block);
        let counted = refcounts_per_block(header).saturating_mul(header.cluster_size());
        let satisfied: Vec<u64> = self
            .parked
            .range(first..first.saturating_add(counted))
            .filter(|(host, references)| self.is_satisfied(header, **host, **references))
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
