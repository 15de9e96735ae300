//! Reads ranges of a disk in order, over one connection at a time. After a connection breaks,
//! it resumes with the read that was interrupted.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use fetch::retry::AttemptError;
use stream::error::{SourceError, SourceErrorKind};
use stream::zeros::ZEROS;
use tracing::Instrument;

use super::extents::{ReadPlan, ReadStep};
use super::{BlockConnection, BlockServer, ReadLimits, ReplyEvent};

/// Maximum number of requests in flight on one connection, if they are small.
pub(crate) const MAX_REQUESTS: usize = 16;

/// Number of consecutive errors of the server that end the download.
const MAX_SERVER_ERRORS: u32 = 5;

/// Downloads the bytes of some ranges.
pub(super) struct BlockDownload<'a, S: BlockServer, R> {
    server: &'a S,
    /// Number of connections that read at the same time, this one among them.
    connections: usize,
    /// Ranges that follow the ranges in `todo`.
    ranges: R,
    /// Ranges that have been started. The first one shrinks as its bytes are handed out.
    todo: VecDeque<Range<u64>>,
    /// True if block status is worth requesting.
    sparse: bool,
    way: Option<BlockPipeline<S::Connection>>,
    /// The last connection, if it broke.
    broken: Option<S::Connection>,
    /// Number of connections that broke before their first read was answered, and of errors of the
    /// server. Reads become shorter after them.
    shrunk: u32,
}

/// A connection and the requests that were sent on it.
struct BlockPipeline<C> {
    connection: C,
    plan: ReadPlan,
    limits: ReadLimits,
    /// The part of the last started range that has not been requested yet. The first `begun`
    /// ranges of `todo` have been started.
    unasked: Range<u64>,
    begun: usize,
    /// Replies that are expected, in order.
    asked: VecDeque<QueuedRequest>,
    asked_bytes: u64,
    /// True if a read was answered on this connection.
    brought: bool,
    /// Why no more requests can be sent. Replies to earlier ones are still received.
    failure: Option<AttemptError>,
}

enum QueuedRequest {
    Read(Range<u64>),
    Zeros(Range<u64>),
    Status,
}

impl<'a, S: BlockServer, R: Iterator<Item = Range<u64>>> BlockDownload<'a, S, R> {
    /// Reads all of `ranges`, none of which may be empty, over `connection` as long as it works.
    /// If `sparse` is true, runs of zeros are looked up first.
    pub(super) fn new(
        server: &'a S,
        connections: usize,
        ranges: R,
        connection: Option<S::Connection>,
        sparse: bool,
    ) -> Self {
        let mut download = Self {
            way: None,
            broken: None,
            shrunk: 0,
            server,
            connections,
            ranges,
            todo: VecDeque::new(),
            sparse,
        };
        download.way = connection.map(|connection| download.pipeline_over(connection));
        download
    }

    /// Returns the next bytes; `None` at the end of the last range.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let mut attempts = self.server.network().retry_attempts();
        let mut server_errors = 0;
        loop {
            // Each piece of a reply may take as long as the limit, and bytes are handed out only
            // when the reply is complete. The whole reply therefore has to arrive within the
            // remaining time.
            let attempt = self.try_next(attempts.wait_limit()).instrument(attempts.tracing_span());
            let attempt = tokio::time::timeout(attempts.remaining_time(), attempt);
            let stalled = || {
                let message = format!("{} sends less than a reply in that time", S::TITLE);
                Err(AttemptError::new_transient(SourceErrorKind::Stalled, message).into())
            };
            let failure = match attempt.await.unwrap_or_else(|_| stalled()) {
                Ok(bytes) => return Ok(bytes),
                Err(BlockDownloadError::Connection(failure)) => {
                    let way = self.way.take();
                    self.shrunk += u32::from(way.as_ref().is_some_and(|way| !way.brought));
                    if let Some(way) = way {
                        self.broken = Some(way.connection);
                    }
                    failure
                }
                Err(BlockDownloadError::Refused { what, error }) => {
                    self.begin_again().await;
                    server_errors += 1;
                    judge_server_error(S::TITLE, &what, &error, server_errors)?
                }
            };
            let place = self.todo.front().map_or(self.server.disk_bytes(), |range| range.start);
            let pause = attempts.record_failure(failure, &format!("at byte {place}"))?;
            tokio::time::sleep(pause).await;
        }
    }

    /// Receives the replies to all requests, wanted or not, and returns the connection. It is then
    /// free for another download, or to be closed.
    pub(super) async fn into_connection(self) -> Option<S::Connection> {
        let mut connection = self.way?.connection;
        let limit = self.server.network().retry_policy.idle_limit();
        connection.drain_replies(limit).await.ok()?;
        Some(connection)
    }

    /// Returns the next bytes, over the current connection or over a new one.
    async fn try_next(&mut self, limit: Duration) -> Result<Option<Bytes>, BlockDownloadError> {
        if self.todo.is_empty() {
            let Some(range) = self.ranges.next() else {
                return Ok(None);
            };
            self.todo.push_back(range);
        }
        let mut way = match self.way.take() {
            Some(way) => way,
            None => {
                let connection = self.server.reconnect(&mut self.broken, limit).await?;
                self.pipeline_over(connection)
            }
        };
        let result = self.advance_pipeline(&mut way, limit).await;
        self.way = Some(way);
        result
    }

    /// Sends requests and receives replies until bytes arrive.
    async fn advance_pipeline(
        &mut self,
        way: &mut BlockPipeline<S::Connection>,
        limit: Duration,
    ) -> Result<Option<Bytes>, BlockDownloadError> {
        loop {
            if way.failure.is_none() {
                let sent = way.send_requests(&mut self.todo, &mut self.ranges, limit).await;
                way.failure = sent.err();
            }
            if let Some((offset, bytes)) = way.next_chunk(limit).await?
                && let Some(bytes) = self.hand_out(offset, &bytes, way)
            {
                return Ok(Some(bytes));
            }
        }
    }

    /// Returns the part of `bytes`, which begin at `offset`, that is wanted next. The rest is
    /// surplus, because whole blocks were requested.
    fn hand_out(
        &mut self,
        offset: u64,
        bytes: &Bytes,
        way: &mut BlockPipeline<S::Connection>,
    ) -> Option<Bytes> {
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
            way.begun = way.begun.saturating_sub(1);
        }
        Some(bytes.slice(index(from)..index(to)))
    }

    /// Abandons the current requests, but keeps the connection for new ones: a server that reports
    /// an error is still available.
    async fn begin_again(&mut self) {
        let limit = self.server.network().retry_policy.idle_limit();
        if let Some(BlockPipeline { mut connection, .. }) = self.way.take()
            && connection.drain_replies(limit).await.is_ok()
        {
            self.shrunk += 1;
            self.way = Some(self.pipeline_over(connection));
        }
    }

    fn pipeline_over(&self, connection: S::Connection) -> BlockPipeline<S::Connection> {
        let mut limits = self.server.read_limits(self.connections, self.shrunk);
        limits.read_bytes = limits.read_bytes.min(connection.max_read_bytes());
        let asks = self.sparse && connection.has_allocation();
        let (size, block) = (self.server.disk_bytes(), connection.block_bytes());
        BlockPipeline {
            plan: ReadPlan::new(size, block, limits.read_bytes, asks),
            limits,
            unasked: 0..0,
            begun: 0,
            asked: VecDeque::new(),
            asked_bytes: 0,
            brought: false,
            failure: None,
            connection,
        }
    }
}

impl<C: BlockConnection> BlockPipeline<C> {
    /// Sends requests for `todo`, which is continued with `ranges`, until the limit of bytes in
    /// flight is reached.
    async fn send_requests(
        &mut self,
        todo: &mut VecDeque<Range<u64>>,
        ranges: &mut impl Iterator<Item = Range<u64>>,
        limit: Duration,
    ) -> Result<(), AttemptError> {
        let is_read = |asked: &&QueuedRequest| matches!(asked, QueuedRequest::Read(_));
        // Nothing is sent after a request for block status: its reply decides what to read next.
        while self.asked.len() < MAX_REQUESTS
            && self.asked.iter().filter(is_read).count() < self.limits.reads
            && self.asked_bytes < self.limits.ahead_bytes
            && !matches!(self.asked.back(), Some(QueuedRequest::Status))
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

    async fn ask_once(&mut self, limit: Duration) -> Result<(), AttemptError> {
        match self.plan.next_step(&self.unasked) {
            ReadStep::Read(range) => {
                self.connection.request_read(self.plan.align_range(&range), limit).await?;
                self.unasked.start = range.end;
                self.asked_bytes += range.end - range.start;
                self.asked.push_back(QueuedRequest::Read(range));
            }
            ReadStep::Zeros(range) => {
                self.unasked.start = range.end;
                self.asked.push_back(QueuedRequest::Zeros(range));
            }
            ReadStep::Ask(range) => {
                self.connection.request_block_status(range, limit).await?;
                self.asked.push_back(QueuedRequest::Status);
            }
        }
        Ok(())
    }

    /// Returns the next bytes, with their offset; `None` if another event arrived.
    async fn next_chunk(
        &mut self,
        limit: Duration,
    ) -> Result<Option<(u64, Bytes)>, BlockDownloadError> {
        if let Some(QueuedRequest::Zeros(range)) = self.asked.front_mut() {
            let offset = range.start;
            let length = (range.end - offset).min(ZEROS.len() as u64);
            range.start += length;
            if range.is_empty() {
                self.asked.pop_front();
            }
            let length = usize::try_from(length).unwrap_or(ZEROS.len());
            return Ok(Some((offset, Bytes::from_static(&ZEROS[..length]))));
        }
        let ready = self.connection.inflight().take_ready_event().map_err(AttemptError::from)?;
        if self.asked.is_empty()
            && let Some(failure) = self.failure.take()
        {
            return Err(failure.into());
        }
        let event = match ready {
            Some(event) => Ok(event),
            None => self.connection.next_event(limit).await,
        };
        // Many bytes may have been on their way when a request could not be sent.
        let event = event.map_err(|error| self.failure.take().unwrap_or(error))?;
        match event {
            ReplyEvent::Data(offset, bytes) => {
                self.brought = true;
                return Ok(Some((offset, bytes)));
            }
            ReplyEvent::ReadDone => {
                if let Some(QueuedRequest::Read(range)) = self.asked.pop_front() {
                    self.asked_bytes -= range.end - range.start;
                }
            }
            ReplyEvent::Status(from, extents) => {
                self.asked.pop_front();
                self.plan.record_extents(from, extents);
            }
            // Block status only saves reading, so without it the disk is read as a whole.
            ReplyEvent::Refused { what, error }
                if matches!(self.asked.front(), Some(QueuedRequest::Status)) =>
            {
                tracing::info!("the {what} is answered with {error}: reading everything");
                self.asked.pop_front();
                self.plan.stop_asking();
            }
            ReplyEvent::Refused { what, error } => {
                return Err(BlockDownloadError::Refused { what, error });
            }
        }
        Ok(None)
    }
}

/// Judges an error of the server, the `times`th in a row. It is transient until there are too
/// many.
fn judge_server_error(
    title: &str,
    what: &str,
    error: &str,
    times: u32,
) -> Result<AttemptError, SourceError> {
    let text = format!("{title} answers the {what} with {error}");
    if times == MAX_SERVER_ERRORS {
        let message = format!("{text}, {times} times in a row");
        return Err(SourceError::new(SourceErrorKind::Io, message));
    }
    Ok(AttemptError::new_transient(SourceErrorKind::Io, text))
}

/// The reason why an attempt returned no bytes.
enum BlockDownloadError {
    Connection(AttemptError),
    Refused { what: String, error: String },
}

impl From<AttemptError> for BlockDownloadError {
    fn from(failure: AttemptError) -> Self {
        Self::Connection(failure)
    }
}
