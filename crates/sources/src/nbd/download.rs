//! Ranges of an export in order, over one connection at a time; continued with the read during which a connection broke.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use datapath::error::{SourceError, SourceErrorKind};
use datapath::zeros::ZEROS;
use tracing::Instrument;

use super::connection::{Connection, Event};
use super::export::Export;
use super::extents::{Plan, Step};
use super::wire::ServerError;
use crate::engine::Remote;
use crate::retry::AttemptFailed;

/// Requests that are on their way at once, when they are small.
const MAX_REQUESTS: usize = 16;

/// Times that the longest read is halved: from 2 MiB to 64 KiB.
const MAX_SHRUNK: u32 = 5;

/// Errors of the server in a row before they are believed.
const MAX_SERVER_ERRORS: u32 = 5;

/// The bytes of some ranges.
pub(super) struct Download<'a, R> {
    export: &'a Export,
    /// Ranges after `todo`.
    ranges: R,
    /// Ranges that were begun; what is left to be handed out of the first one.
    todo: VecDeque<Range<u64>>,
    /// True if block status is worth asking for.
    sparse: bool,
    way: Option<Way>,
    /// Connections that broke before their first read was answered: reads get shorter with each.
    shrunk: u32,
    /// Bytes that a connection had brought before it broke.
    salvaged: VecDeque<Bytes>,
}

/// A connection and what was asked for on it.
struct Way {
    connection: Connection,
    plan: Plan,
    ahead_bytes: u64,
    /// Rest to be asked for of the ranges in `todo`, the first `begun` of which were asked for up to here.
    unasked: Range<u64>,
    begun: usize,
    /// Replies that will come, in order.
    asked: VecDeque<Asked>,
    asked_bytes: u64,
    /// True if a read was answered.
    brought: bool,
}

enum Asked {
    Read(Range<u64>),
    Zeros(Range<u64>),
    Status,
}

impl<'a, R: Iterator<Item = Range<u64>>> Download<'a, R> {
    /// All of `ranges`, none of them empty, over `connection` as long as it holds. Runs of zeros are found out first if
    /// `sparse`.
    pub(super) fn new(export: &'a Export, ranges: R, connection: Option<Connection>, sparse: bool) -> Self {
        Self {
            way: connection.map(|connection| Way::new(export, connection, sparse, 0)),
            shrunk: 0,
            export,
            ranges,
            todo: VecDeque::new(),
            sparse,
            salvaged: VecDeque::new(),
        }
    }

    /// The next bytes; `None` at the end of the last range.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let mut attempts = self.export.network().attempts();
        let mut server_errors = 0;
        loop {
            if let Some(bytes) = self.salvaged.pop_front() {
                return Ok(Some(bytes));
            }
            // Each piece of a reply may take as long as the limit, and bytes are handed out when the reply is complete: all of it
            // has to come while there is patience.
            let attempt = self.attempt(attempts.wait_limit()).instrument(attempts.span());
            let attempt = tokio::time::timeout(attempts.remaining(), attempt);
            let stalled = || {
                let message = "the NBD server sends less than a reply in that time";
                Err(AttemptFailed::transient(SourceErrorKind::Stalled, message).into())
            };
            let failure = match attempt.await.unwrap_or_else(|_| stalled()) {
                Ok(bytes) => return Ok(bytes),
                Err(Trouble::Connection(failure)) => {
                    self.salvage();
                    failure
                }
                Err(Trouble::Refused { what, error }) => {
                    self.begin_again().await;
                    server_errors += 1;
                    refused(&what, &error, server_errors)?
                }
            };
            let place = self.todo.front().map_or(self.export.size, |range| range.start);
            let pause = attempts.failed(failure, &format!("at byte {place}"))?;
            tokio::time::sleep(pause).await;
        }
    }

    /// Takes the replies to all that was asked for, wanted or not. The connection is then free for another download, or
    /// for a goodbye.
    pub(super) async fn finish(self) -> Option<Connection> {
        let mut connection = self.way?.connection;
        let limit = self.export.server.patience().idle_limit();
        connection.drain(limit).await.ok()?;
        Some(connection)
    }

    /// The next bytes over the connection that there is, or over a new one.
    async fn attempt(&mut self, limit: Duration) -> Result<Option<Bytes>, Trouble> {
        if self.todo.is_empty() {
            let Some(range) = self.ranges.next() else {
                return Ok(None);
            };
            self.todo.push_back(range);
        }
        let mut way = match self.way.take() {
            Some(way) => way,
            None => {
                let connection = self.export.reconnect(limit).await?;
                Way::new(self.export, connection, self.sparse, self.shrunk)
            }
        };
        let result = self.advance(&mut way, limit).await;
        self.way = Some(way);
        result
    }

    /// Goes `way` until bytes come.
    async fn advance(&mut self, way: &mut Way, limit: Duration) -> Result<Option<Bytes>, Trouble> {
        loop {
            way.ask(&mut self.todo, &mut self.ranges, limit).await?;
            if let Some((offset, bytes)) = way.next(limit).await?
                && let Some(bytes) = self.hand_out(offset, &bytes, Some(way))
            {
                return Ok(Some(bytes));
            }
        }
    }

    /// The part of `bytes`, which lie at `offset`, that is wanted next: whole blocks were asked for.
    fn hand_out(&mut self, offset: u64, bytes: &Bytes, way: Option<&mut Way>) -> Option<Bytes> {
        let wanted = self.todo.front_mut()?;
        let end = offset + bytes.len() as u64;
        let (from, to) = (offset.max(wanted.start), end.min(wanted.end));
        let index = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
        if from != wanted.start || from >= to {
            return None;
        }
        wanted.start = to;
        if wanted.is_empty() {
            self.todo.pop_front();
            if let Some(way) = way {
                way.begun = way.begun.saturating_sub(1);
            }
        }
        Some(bytes.slice(index(from)..index(to)))
    }

    /// Asks for nothing more on this way, but keeps the connection for a new one: a server that refuses is still there.
    async fn begin_again(&mut self) {
        let limit = self.export.server.patience().idle_limit();
        if let Some(Way { mut connection, .. }) = self.way.take()
            && connection.drain(limit).await.is_ok()
        {
            self.shrunk += 1;
            self.way = Some(Way::new(self.export, connection, self.sparse, self.shrunk));
        }
    }

    /// Gives up the connection, but not the reads that it has already answered.
    fn salvage(&mut self) {
        let Some(mut way) = self.way.take() else { return };
        self.shrunk += u32::from(!way.brought);
        while matches!(way.asked.front(), Some(Asked::Read(_))) {
            match way.connection.ready() {
                Ok(Some(Event::Data(offset, bytes))) => {
                    let wanted = self.hand_out(offset, &bytes, None);
                    self.salvaged.extend(wanted);
                }
                Ok(Some(Event::ReadDone)) => {
                    way.asked.pop_front();
                }
                _ => break,
            }
        }
    }
}

impl Way {
    /// Reads are halved `shrunk` times: connections that do not last for a long one get somewhere, and what is readable
    /// around a broken spot is read.
    fn new(export: &Export, connection: Connection, sparse: bool, shrunk: u32) -> Self {
        let agreement = connection.agreement();
        let asks = sparse && agreement.allocation.is_some();
        let longest_read =
            (export.read_bytes() >> shrunk.min(MAX_SHRUNK)).min(agreement.block_sizes.maximum.into());
        Self {
            plan: Plan::new(export.size, agreement.block_sizes.minimum, longest_read, asks),
            ahead_bytes: export.ahead_bytes(),
            unasked: 0..0,
            begun: 0,
            asked: VecDeque::new(),
            asked_bytes: 0,
            brought: false,
            connection,
        }
    }

    /// Asks for as much as may be on its way of `todo`, which goes on with `ranges`.
    async fn ask(
        &mut self,
        todo: &mut VecDeque<Range<u64>>,
        ranges: &mut impl Iterator<Item = Range<u64>>,
        limit: Duration,
    ) -> Result<(), AttemptFailed> {
        while self.asked.len() < MAX_REQUESTS
            && self.asked_bytes < self.ahead_bytes
            && !matches!(self.asked.back(), Some(Asked::Status))
        {
            if self.unasked.is_empty() {
                if self.begun == todo.len() {
                    todo.extend(ranges.next());
                }
                let Some(range) = todo.get(self.begun) else { break };
                self.unasked = range.clone();
                self.begun += 1;
            }
            self.ask_once(limit).await?;
        }
        Ok(())
    }

    async fn ask_once(&mut self, limit: Duration) -> Result<(), AttemptFailed> {
        match self.plan.step(&self.unasked) {
            Step::Read(range) => {
                self.connection.read(self.plan.aligned(&range), limit).await?;
                self.unasked.start = range.end;
                self.asked_bytes += range.end - range.start;
                self.asked.push_back(Asked::Read(range));
            }
            Step::Zeros(range) => {
                self.unasked.start = range.end;
                self.asked.push_back(Asked::Zeros(range));
            }
            Step::Ask(range) => {
                self.connection.status(range, limit).await?;
                self.asked.push_back(Asked::Status);
            }
        }
        Ok(())
    }

    /// The next bytes, and their offset; nothing if something else came.
    async fn next(&mut self, limit: Duration) -> Result<Option<(u64, Bytes)>, Trouble> {
        if let Some(Asked::Zeros(range)) = self.asked.front_mut() {
            let offset = range.start;
            let length = (range.end - offset).min(ZEROS.len() as u64);
            range.start += length;
            if range.is_empty() {
                self.asked.pop_front();
            }
            let length = usize::try_from(length).unwrap_or(ZEROS.len());
            return Ok(Some((offset, Bytes::from_static(&ZEROS[..length]))));
        }
        match self.connection.event(limit).await? {
            Event::Data(offset, bytes) => {
                self.brought = true;
                return Ok(Some((offset, bytes)));
            }
            Event::ReadDone => {
                if let Some(Asked::Read(range)) = self.asked.pop_front() {
                    self.asked_bytes -= range.end - range.start;
                }
            }
            Event::Status(from, extents) => {
                self.asked.pop_front();
                self.plan.learn(from, extents);
            }
            // Block status only saves reading: without it the export is read as a whole.
            Event::Refused { what, error } if matches!(self.asked.front(), Some(Asked::Status)) => {
                tracing::info!("the NBD server answers the {what} with {error}: reading all of it");
                self.asked.pop_front();
                self.plan.stop_asking();
            }
            Event::Refused { what, error } => return Err(Trouble::Refused { what, error }),
        }
        Ok(None)
    }
}

/// Judges an error of the server, the `times`th in a row.
fn refused(what: &str, error: &ServerError, times: u32) -> Result<AttemptFailed, SourceError> {
    let text = format!("the NBD server answers the {what} with {error}");
    if times == MAX_SERVER_ERRORS {
        let message = format!("{text}, {times} times in a row");
        return Err(SourceError::new(SourceErrorKind::Io, message));
    }
    Ok(AttemptFailed::transient(SourceErrorKind::Io, text))
}

/// The reason why an attempt brought nothing.
enum Trouble {
    Connection(AttemptFailed),
    Refused { what: String, error: ServerError },
}

impl From<AttemptFailed> for Trouble {
    fn from(failure: AttemptFailed) -> Self {
        Self::Connection(failure)
    }
}
