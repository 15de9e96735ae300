//! A connection in the transmission phase: requests go out, their replies come back in any order.
//!
//! It has one owner and no task of its own: a task that waits for a reply takes in what comes until it is there.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

use super::agreement::Agreement;
use super::assembly::Assembly;
use super::extents::{Extent, Status};
use super::stream::{Stream, broken};
use super::wire;
use super::wire::{Chunk, Fields, MAX_STRING_BYTES, ServerError, Violation};
use crate::retry::{AttemptFailed, within};

/// Bytes of the buffer for the heads of replies; data is read past it.
const READ_AHEAD_BYTES: usize = 4 << 10;

/// Longest payload of an error: number, length, message, offset.
const MAX_ERROR_BYTES: usize = 4 + 2 + MAX_STRING_BYTES + 8;

/// Descriptors in one answer ("a server SHOULD NOT send more than 2^20").
const MAX_DESCRIPTORS: u32 = 1 << 20;

/// Errors in the reply to one request: a server may name each sector of it, and no more.
const MAX_ERRORS: usize = 4096;

/// A descriptor of block status: length and flags.
const DESCRIPTOR_BYTES: u32 = 8;

/// An open export.
pub(super) struct Connection {
    stream: BufReader<Stream>,
    agreement: Agreement,
    /// Requests that were not taken off yet, oldest first.
    flights: VecDeque<Flight>,
    incoming: Option<Incoming>,
    last_cookie: u64,
}

/// A request and what has come back of its reply.
struct Flight {
    cookie: u64,
    answer: Answer,
    is_done: bool,
    /// The first one is the cause of the others.
    error: Option<ServerError>,
    errors: usize,
}

enum Answer {
    Read(Assembly),
    Status(Status),
}

/// Data of the flight with this cookie that is being received.
struct Incoming {
    cookie: u64,
    left: Range<u64>,
    last: bool,
}

/// News of the oldest request.
pub(super) enum Event {
    /// The next bytes of a read, and their offset.
    Data(u64, Bytes),
    /// All of a read was handed out.
    ReadDone,
    /// The answer to a question for block status from this offset on.
    Status(u64, Vec<Extent>),
    /// The server could not do it.
    Refused { what: String, error: ServerError },
}

impl Flight {
    /// The event to be reported now. Data that came before an error is not valid (specification, "NBD_CMD_READ"): a read is
    /// handed out when its reply is complete, not before.
    fn event(&mut self) -> Option<Result<Event, Violation>> {
        if !self.is_done {
            return None;
        }
        if let Some(error) = self.error.take() {
            let what = self.what();
            return Some(Ok(Event::Refused { what, error }));
        }
        Some(match &mut self.answer {
            Answer::Read(assembly) if assembly.is_complete() => Ok(match assembly.pop() {
                Some((offset, bytes)) => Event::Data(offset, bytes),
                None => Event::ReadDone,
            }),
            Answer::Read(_) => Err(Violation(format!("bytes are missing in the {}", self.what()))),
            Answer::Status(status) => {
                let from = status.range().start;
                let status = std::mem::replace(status, Status::new(0..0));
                status.finish().map(|extents| Event::Status(from, extents))
            }
        })
    }

    fn what(&self) -> String {
        let (verb, range) = match &self.answer {
            Answer::Read(assembly) => ("read", assembly.range()),
            Answer::Status(status) => ("question for block status", status.range()),
        };
        format!(
            "{verb} of {} bytes at offset {}",
            range.end - range.start,
            range.start
        )
    }

    fn assembly(&mut self) -> Result<&mut Assembly, Violation> {
        match &mut self.answer {
            Answer::Read(assembly) => Ok(assembly),
            Answer::Status(status) => Err(Violation(format!(
                "data in answer to a question for block status at offset {}",
                status.range().start
            ))),
        }
    }
}

impl Connection {
    /// Takes over the connection on which `agreement` was reached.
    pub(super) fn new(stream: Stream, agreement: Agreement) -> Self {
        Self {
            stream: BufReader::with_capacity(READ_AHEAD_BYTES, stream),
            agreement,
            flights: VecDeque::new(),
            incoming: None,
            last_cookie: 0,
        }
    }

    pub(super) fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Asks for the bytes of `range`.
    pub(super) async fn read(&mut self, range: Range<u64>, limit: Duration) -> Result<(), AttemptFailed> {
        let answer = Answer::Read(Assembly::new(range.clone()));
        self.ask(wire::CMD_READ, range, answer, limit).await
    }

    /// Asks which parts of `range` are zeros.
    pub(super) async fn status(&mut self, range: Range<u64>, limit: Duration) -> Result<(), AttemptFailed> {
        let answer = Answer::Status(Status::new(range.clone()));
        self.ask(wire::CMD_BLOCK_STATUS, range, answer, limit).await
    }

    async fn ask(
        &mut self,
        command: u16,
        range: Range<u64>,
        answer: Answer,
        limit: Duration,
    ) -> Result<(), AttemptFailed> {
        // No request that is made here is longer.
        let length = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        self.last_cookie += 1;
        self.flights.push_back(Flight {
            cookie: self.last_cookie,
            answer,
            is_done: false,
            error: None,
            errors: 0,
        });
        let request = wire::request(command, self.last_cookie, range.start, length);
        within(limit, self.send(&request)).await
    }

    /// Waits for the replies to all that was asked for, whatever they say. The connection is then as new.
    pub(super) async fn drain(&mut self, limit: Duration) -> Result<(), AttemptFailed> {
        while !self.flights.is_empty() {
            self.event(limit).await?;
        }
        Ok(())
    }

    /// Says goodbye, as far as anybody still listens.
    pub(super) async fn close(mut self, limit: Duration) {
        let request = wire::request(wire::CMD_DISC, 0, 0, 0);
        if within(limit, self.send(&request)).await.is_err() {
            tracing::debug!("the NBD server did not wait for the end");
        }
    }

    /// The next event of the oldest request. Waits for the server up to `limit` at a time.
    pub(super) async fn event(&mut self, limit: Duration) -> Result<Event, AttemptFailed> {
        loop {
            match self.ready()? {
                Some(event) => return Ok(event),
                None => within(limit, self.receive()).await?,
            }
        }
    }

    /// The next event of the oldest request, if it has come already.
    pub(super) fn ready(&mut self) -> Result<Option<Event>, Violation> {
        let event = self.flights.front_mut().and_then(Flight::event).transpose()?;
        if !matches!(event, None | Some(Event::Data(..))) {
            self.flights.pop_front();
        }
        Ok(event)
    }

    /// Takes in the next piece: the head of a reply with all but its data, or some of its data.
    async fn receive(&mut self) -> Result<(), AttemptFailed> {
        if self.incoming.is_some() {
            return self.receive_data().await;
        }
        let mut magic = [0; 4];
        self.take(&mut magic).await?;
        match u32::from_be_bytes(magic) {
            wire::SIMPLE_REPLY_MAGIC => self.receive_simple().await,
            wire::STRUCTURED_REPLY_MAGIC if self.agreement.structured => self.receive_chunk().await,
            other => Err(unexpected(format!("a reply begins with {other:#010x}"))),
        }
    }

    async fn receive_simple(&mut self) -> Result<(), AttemptFailed> {
        let mut head = [0; 12];
        self.take(&mut head).await?;
        let (errno, cookie) = wire::parse_simple(&head);
        let flight = self.flight(cookie)?;
        if errno != 0 {
            flight.error = Some(ServerError {
                errno,
                message: String::new(),
            });
            flight.is_done = true;
            return Ok(());
        }
        let assembly = flight.assembly()?;
        let asked = assembly.range().clone();
        let part = assembly.part(asked.start, asked.end - asked.start);
        self.incoming = Some(Incoming {
            cookie,
            left: part?,
            last: true,
        });
        Ok(())
    }

    async fn receive_chunk(&mut self) -> Result<(), AttemptFailed> {
        let mut head = [0; 16];
        self.take(&mut head).await?;
        let chunk = Chunk::parse(&head);
        self.flight(chunk.cookie)?;
        match chunk.kind {
            wire::REPLY_TYPE_OFFSET_DATA => return self.begin_data(chunk).await,
            wire::REPLY_TYPE_OFFSET_HOLE => self.receive_hole(chunk).await?,
            wire::REPLY_TYPE_BLOCK_STATUS => self.receive_status(chunk).await?,
            wire::REPLY_TYPE_NONE if chunk.length == 0 && chunk.done => {}
            kind if kind & wire::REPLY_FLAG_ERROR != 0 => self.receive_error(chunk).await?,
            kind => {
                return Err(unexpected(format!(
                    "a chunk of type {kind} and {} bytes",
                    chunk.length
                )));
            }
        }
        self.finish(chunk.cookie, chunk.done).map_err(AttemptFailed::from)
    }

    /// Offset (u64), data.
    async fn begin_data(&mut self, chunk: Chunk) -> Result<(), AttemptFailed> {
        let Some(length) = chunk.length.checked_sub(8) else {
            return Err(unexpected(format!("a chunk of data of {} bytes", chunk.length)));
        };
        let mut offset = [0; 8];
        self.take(&mut offset).await?;
        let assembly = self.flight(chunk.cookie).and_then(Flight::assembly)?;
        let part = assembly.part(u64::from_be_bytes(offset), length.into());
        self.incoming = Some(Incoming {
            cookie: chunk.cookie,
            left: part?,
            last: chunk.done,
        });
        Ok(())
    }

    /// Offset (u64), length (u32).
    async fn receive_hole(&mut self, chunk: Chunk) -> Result<(), AttemptFailed> {
        if chunk.length != 12 {
            return Err(unexpected(format!(
                "a chunk for a hole of {} bytes instead of 12",
                chunk.length
            )));
        }
        let mut payload = [0; 12];
        self.take(&mut payload).await?;
        let mut fields = Fields(&payload);
        let (offset, length) = (fields.u64().unwrap_or_default(), fields.u32().unwrap_or_default());
        let assembly = self.flight(chunk.cookie).and_then(Flight::assembly)?;
        let hole = assembly.part(offset, length.into())?;
        assembly.arrived(hole).map_err(AttemptFailed::from)
    }

    /// Number of the context (u32), then descriptors: length (u32), flags (u32).
    async fn receive_status(&mut self, chunk: Chunk) -> Result<(), AttemptFailed> {
        let descriptors = chunk
            .length
            .checked_sub(4)
            .filter(|bytes| bytes % DESCRIPTOR_BYTES == 0)
            .map(|bytes| bytes / DESCRIPTOR_BYTES)
            .filter(|count| (1..=MAX_DESCRIPTORS).contains(count));
        let Some(descriptors) = descriptors else {
            return Err(unexpected(format!("block status in {} bytes", chunk.length)));
        };
        let mut context = [0; 4];
        self.take(&mut context).await?;
        if Some(u32::from_be_bytes(context)) != self.agreement.allocation {
            return Err(unexpected(
                "block status of a context that was not asked for".into(),
            ));
        }
        // "A successful reply MUST contain exactly one chunk per negotiated context", of which there is one.
        if matches!(&self.flight(chunk.cookie)?.answer, Answer::Status(status) if status.has_begun()) {
            return Err(unexpected("block status twice in one reply".into()));
        }
        for _ in 0..descriptors {
            let mut bytes = [0; DESCRIPTOR_BYTES as usize];
            self.take(&mut bytes).await?;
            let mut fields = Fields(&bytes);
            let (length, flags) = (fields.u32().unwrap_or_default(), fields.u32().unwrap_or_default());
            let Answer::Status(status) = &mut self.flight(chunk.cookie)?.answer else {
                return Err(unexpected("block status in answer to a read".into()));
            };
            status.descriptor(length, flags)?;
        }
        Ok(())
    }

    async fn receive_error(&mut self, chunk: Chunk) -> Result<(), AttemptFailed> {
        let length = usize::try_from(chunk.length).unwrap_or(usize::MAX);
        if length > MAX_ERROR_BYTES {
            return Err(unexpected(format!("an error of {length} bytes")));
        }
        let mut payload = vec![0; length];
        self.take(&mut payload).await?;
        let error = ServerError::parse(&payload)?;
        let flight = self.flight(chunk.cookie)?;
        flight.error.get_or_insert(error);
        flight.errors += 1;
        if flight.errors > MAX_ERRORS {
            return Err(unexpected(format!(
                "more than {MAX_ERRORS} errors in the reply to one request"
            )));
        }
        Ok(())
    }

    /// Reads some of the announced data to where it belongs.
    async fn receive_data(&mut self) -> Result<(), AttemptFailed> {
        let Some(Incoming { cookie, left, last }) = &mut self.incoming else {
            return Ok(());
        };
        let (cookie, last) = (*cookie, *last);
        let assembly = find(&mut self.flights, cookie).and_then(Flight::assembly)?;
        let room = assembly.room(left);
        let count = match self.stream.read(room).await {
            Ok(0) => return Err(broken(&io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => count as u64,
            Err(error) => return Err(broken(&error)),
        };
        assembly.arrived(left.start..left.start + count)?;
        left.start += count;
        if left.is_empty() {
            self.incoming = None;
            self.finish(cookie, last)?;
        }
        Ok(())
    }

    fn finish(&mut self, cookie: u64, last: bool) -> Result<(), Violation> {
        self.flight(cookie)?.is_done |= last;
        Ok(())
    }

    fn flight(&mut self, cookie: u64) -> Result<&mut Flight, Violation> {
        find(&mut self.flights, cookie)
    }

    async fn take(&mut self, bytes: &mut [u8]) -> Result<(), AttemptFailed> {
        let result = self.stream.read_exact(bytes).await;
        result.map(|_| ()).map_err(|error| broken(&error))
    }

    async fn send(&mut self, request: &[u8]) -> Result<(), AttemptFailed> {
        let sending = async {
            self.stream.write_all(request).await?;
            self.stream.flush().await
        };
        sending.await.map_err(|error| broken(&error))
    }
}

/// The request that waits for a reply with this cookie.
fn find(flights: &mut VecDeque<Flight>, cookie: u64) -> Result<&mut Flight, Violation> {
    flights
        .iter_mut()
        .find(|flight| flight.cookie == cookie && !flight.is_done)
        .ok_or_else(|| Violation(format!("a reply with cookie {cookie}, which no open request has")))
}

fn unexpected(text: String) -> AttemptFailed {
    Violation(text).into()
}
