//! Several connections at once, for servers and networks that limit what one of them gets.
//!
//! The object is cut into segments; so many of them are on their way at once as there are connections, and they are
//! handed over in order. What waits for its turn is bounded.
//!
//! One connection is the default: on a fast network more of them only cost requests. Where each is limited to 50 MB/s, four
//! are 2.6 times as fast.

use std::collections::VecDeque;
use std::iter;
use std::ops::Range;
use std::sync::Arc;

use datapath::bridge;
use datapath::buffer::Pool;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::pack::{Packed, Packer};
use reqwest::Response;
use tokio_util::task::AbortOnDropHandle;

use super::body::Surroundings;
use super::download::{Download, Object};
use super::pump::send_zeros;
use super::regions::{Piece, Regions};

/// Bytes of all segments that are on their way.
const AHEAD_BYTES: u64 = 16 << 20;

/// Longest segment: from here on the round trip of a request does not show.
const MAX_SEGMENT_BYTES: u64 = 4 << 20;

/// What comes next, when it is its turn.
enum Turn {
    /// A segment that is on its way.
    Fetch(AbortOnDropHandle<Result<Vec<Packed>, SourceError>>),
    /// So many zeros.
    Zeros(u64),
}

/// What is left of an object, to be read over several connections.
pub(super) struct Segments {
    object: Arc<Object>,
    pool: Pool,
    connections: usize,
    regions: Regions,
    next: u64,
    end: u64,
    turns: VecDeque<Turn>,
}

impl Segments {
    /// Unless one connection is all that is wanted, or all that works.
    pub(super) fn new(surroundings: &Surroundings, position: u64, is_ranged: bool) -> Option<Self> {
        let connections = surroundings.connections.get();
        let end = surroundings.object.identity.length()?;
        (connections > 1 && is_ranged).then(|| Self {
            object: Arc::clone(&surroundings.object),
            pool: surroundings.pool.clone(),
            connections,
            // What is not known to be zero is data.
            regions: surroundings
                .regions
                .clone()
                .unwrap_or_else(|| Regions::new(iter::once(0..end))),
            next: position,
            end,
            turns: VecDeque::new(),
        })
    }

    /// Reads it. `first`, if given, is a fresh response for all of the object.
    pub(super) async fn pump(
        mut self,
        mut first: Option<Response>,
        sender: bridge::Sender,
    ) -> Result<(), SourceError> {
        loop {
            while self.fetching() < self.connections && self.start(&mut first) {}
            let fetch = match self.turns.pop_front() {
                None => return Ok(()),
                Some(Turn::Fetch(fetch)) => fetch,
                Some(Turn::Zeros(length)) => {
                    if send_zeros(length, &sender).await.is_err() {
                        return Ok(());
                    }
                    continue;
                }
            };
            let packed = fetch.await.map_err(|error| {
                let message = format!("the task that reads a segment failed: {error}");
                SourceError::new(SourceErrorKind::Io, message)
            })??;
            for Packed { bytes, held } in packed {
                if sender.send(bytes, held).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    fn fetching(&self) -> usize {
        let is_fetch = |turn: &&Turn| matches!(turn, Turn::Fetch(_));
        self.turns.iter().filter(is_fetch).count()
    }

    /// Begins with what comes next; false at the end. `first` is for the segment that the object begins with.
    fn start(&mut self, first: &mut Option<Response>) -> bool {
        let connections = u64::try_from(self.connections).unwrap_or(u64::MAX);
        let most = (AHEAD_BYTES / connections).clamp(1, MAX_SEGMENT_BYTES);
        let turn = match self.regions.piece(self.next, self.end, most) {
            None => return false,
            Some(Piece::Zeros(length)) => {
                self.next += length;
                Turn::Zeros(length)
            }
            Some(Piece::Data(range)) => {
                self.next = range.end;
                let first = first.take().filter(|_| range.start == 0);
                let fetching = fetch(Arc::clone(&self.object), range, first, self.pool.clone());
                Turn::Fetch(AbortOnDropHandle::new(tokio::spawn(fetching)))
            }
        };
        self.turns.push_back(turn);
        true
    }
}

/// One segment; from the beginning of `response`, if it is given.
async fn fetch(
    object: Arc<Object>,
    range: Range<u64>,
    response: Option<Response>,
    pool: Pool,
) -> Result<Vec<Packed>, SourceError> {
    let mut packer = Packer::new(pool, range.start);
    let mut download = match response {
        Some(response) => Download::from(&object, range.start, Some(response)),
        None => Download::within(&object, range.clone()),
    };
    let mut left = range.end - range.start;
    while left > 0
        && let Some(chunk) = download.next().await?
    {
        // The first response goes on behind the segment.
        let wanted = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
        packer.push(&chunk[..wanted]);
        left -= wanted as u64;
    }
    packer.flush();
    Ok(std::iter::from_fn(|| packer.pop()).collect())
}
