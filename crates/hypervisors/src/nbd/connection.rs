//! A connection in the transmission phase: requests are sent, and their replies arrive in any
//! order.
//!
//! A connection has one owner and no task of its own. A task that waits for a reply receives
//! everything that arrives before it.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fetch::retry::{AttemptError, with_time_limit};
use tokio::io::{AsyncReadExt, BufReader};

use super::assembly::ReadAssembly;
use super::extents::{BlockStatus, NbdExtent};
use super::transport::{Stream, connection_error, read_bytes, write_bytes};
use super::wire;
use super::wire::{BlockSizes, MAX_STRING_BYTES, NbdViolation, ReplyChunkHeader, ServerError};

/// Size of the buffer for the headers of replies. Data is read directly, not through this buffer.
const READ_AHEAD_BYTES: usize = 4 << 10;

/// Longest payload of an error: number, length, message, offset.
const MAX_ERROR_BYTES: usize = 4 + 2 + MAX_STRING_BYTES + 8;

/// Maximum number of descriptors in one reply ("a server SHOULD NOT send more than 2^20").
const MAX_DESCRIPTORS: u32 = 1 << 20;

/// Maximum number of errors in the reply to one request. A server may report each sector of the
/// request, but not more.
const MAX_ERRORS: usize = 4096;

/// Size of a descriptor of block status: length and flags.
const DESCRIPTOR_BYTES: u32 = 8;

/// The parameters that were negotiated with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NbdAgreement {
    /// Size of the export in bytes.
    pub size: u64,
    /// True if all connections to the export see the same bytes.
    pub multi_conn: bool,
    pub block_sizes: BlockSizes,
    /// True if replies are structured: they arrive in chunks, and holes are sent without their
    /// zeros.
    pub structured: bool,
    /// The number of the context `base:allocation` in replies, if block status is available.
    pub allocation: Option<u32>,
}

/// A connection to an open export.
pub struct NbdConnection {
    stream: BufReader<Stream>,
    agreement: NbdAgreement,
    /// Requests whose events have not all been taken yet, oldest first.
    flights: VecDeque<InflightRequest>,
    incoming: Option<IncomingRange>,
    last_cookie: u64,
}

/// A request and the part of its reply that has arrived.
struct InflightRequest {
    cookie: u64,
    range: Range<u64>,
    answer: PendingReply,
    is_done: bool,
    /// The first error, which is the cause of the others.
    error: Option<ServerError>,
    errors: usize,
}

enum PendingReply {
    Read(ReadAssembly),
    Status(BlockStatus),
}

/// Data that is being received for the request with this cookie.
struct IncomingRange {
    cookie: u64,
    left: Range<u64>,
    last: bool,
}

/// An event of the oldest request.
pub enum ReplyEvent {
    /// The next bytes of a read, with their offset.
    Data(u64, Bytes),
    /// All bytes of a read have been handed out.
    ReadDone,
    /// The reply to a request for block status, beginning at this offset.
    Status(u64, Vec<NbdExtent>),
    /// The server could not process the request.
    Refused { what: String, error: ServerError },
}

impl InflightRequest {
    /// Returns the event to report now. Data that arrived before an error is not valid
    /// (specification, "NBD_CMD_READ"), so a read is handed out only when its reply is complete.
    fn take_event(&mut self) -> Option<Result<ReplyEvent, NbdViolation>> {
        if !self.is_done {
            return None;
        }
        if let Some(error) = self.error.take() {
            let what = self.request_text();
            return Some(Ok(ReplyEvent::Refused { what, error }));
        }
        Some(match &mut self.answer {
            PendingReply::Read(assembly) if assembly.is_complete() => {
                Ok(match assembly.pop_chunk() {
                    Some((offset, bytes)) => ReplyEvent::Data(offset, bytes),
                    None => ReplyEvent::ReadDone,
                })
            }
            PendingReply::Read(_) => {
                Err(NbdViolation(format!("bytes are missing in the {}", self.request_text())))
            }
            PendingReply::Status(status) => {
                let status = std::mem::replace(status, BlockStatus::new(0..0));
                status.into_extents().map(|extents| ReplyEvent::Status(self.range.start, extents))
            }
        })
    }

    fn request_text(&self) -> String {
        let verb = match &self.answer {
            PendingReply::Read(_) => "read",
            PendingReply::Status(_) => "block status request",
        };
        let Range { start, end } = self.range;
        format!("{verb} of {} bytes at offset {start}", end - start)
    }

    fn assembly_mut(&mut self) -> Result<&mut ReadAssembly, NbdViolation> {
        match &mut self.answer {
            PendingReply::Read(assembly) => Ok(assembly),
            PendingReply::Status(_) => Err(NbdViolation(format!(
                "data in answer to a block status request at offset {}",
                self.range.start
            ))),
        }
    }
}

impl NbdConnection {
    /// Takes over the connection on which `agreement` was negotiated.
    pub fn new(stream: Stream, agreement: NbdAgreement) -> Self {
        Self {
            stream: BufReader::with_capacity(READ_AHEAD_BYTES, stream),
            agreement,
            flights: VecDeque::new(),
            incoming: None,
            last_cookie: 0,
        }
    }

    pub(super) fn agreement(&self) -> &NbdAgreement {
        &self.agreement
    }

    /// Requests the bytes of `range`.
    pub async fn request_read(
        &mut self,
        range: Range<u64>,
        limit: Duration,
    ) -> Result<(), AttemptError> {
        let answer = PendingReply::Read(ReadAssembly::new(range.clone()));
        self.send_request(wire::CMD_READ, range, answer, limit).await
    }

    /// Requests the block status of `range`, which distinguishes its zeros from its data.
    pub async fn request_block_status(
        &mut self,
        range: Range<u64>,
        limit: Duration,
    ) -> Result<(), AttemptError> {
        let answer = PendingReply::Status(BlockStatus::new(range.clone()));
        self.send_request(wire::CMD_BLOCK_STATUS, range, answer, limit).await
    }

    async fn send_request(
        &mut self,
        command: u16,
        range: Range<u64>,
        answer: PendingReply,
        limit: Duration,
    ) -> Result<(), AttemptError> {
        // All requests that are made here fit into 32 bits.
        let length = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        self.last_cookie += 1;
        let request = wire::encode_request(command, self.last_cookie, range.start, length);
        self.flights.push_back(InflightRequest {
            cookie: self.last_cookie,
            range,
            answer,
            is_done: false,
            error: None,
            errors: 0,
        });
        with_time_limit(limit, write_bytes(&mut self.stream, &request)).await
    }

    /// Waits for the replies to all requests, whatever they contain. The connection can then be
    /// used like a new one.
    pub(super) async fn drain_replies(&mut self, limit: Duration) -> Result<(), AttemptError> {
        while !self.flights.is_empty() {
            self.next_event(limit).await?;
        }
        Ok(())
    }

    /// Sends a disconnect request. The server may be gone already, so failures are only logged.
    pub(super) async fn close(mut self, limit: Duration) {
        let request = wire::encode_request(wire::CMD_DISC, 0, 0, 0);
        if with_time_limit(limit, write_bytes(&mut self.stream, &request)).await.is_err() {
            tracing::debug!("the NBD server was gone before the disconnect");
        }
    }

    /// Returns the next event of the oldest request. Each wait for the server lasts at most
    /// `limit`.
    pub async fn next_event(&mut self, limit: Duration) -> Result<ReplyEvent, AttemptError> {
        loop {
            match self.take_ready_event()? {
                Some(event) => return Ok(event),
                None => with_time_limit(limit, self.receive_next()).await?,
            }
        }
    }

    /// Returns the next event of the oldest request, if it has arrived already.
    pub(super) fn take_ready_event(&mut self) -> Result<Option<ReplyEvent>, NbdViolation> {
        let event = self.flights.front_mut().and_then(InflightRequest::take_event).transpose()?;
        if !matches!(event, None | Some(ReplyEvent::Data(..))) {
            self.flights.pop_front();
        }
        Ok(event)
    }

    /// Receives the next piece: the header of a reply with everything but its data, or some of its
    /// data.
    async fn receive_next(&mut self) -> Result<(), AttemptError> {
        if self.incoming.is_some() {
            return self.receive_data().await;
        }
        let mut magic = [0; 4];
        read_bytes(&mut self.stream, &mut magic).await?;
        match u32::from_be_bytes(magic) {
            wire::SIMPLE_REPLY_MAGIC => self.receive_simple().await,
            wire::STRUCTURED_REPLY_MAGIC if self.agreement.structured => self.receive_chunk().await,
            other => Err(violation_error(format!("a reply begins with {other:#010x}"))),
        }
    }

    async fn receive_simple(&mut self) -> Result<(), AttemptError> {
        let mut head = [0; 12];
        read_bytes(&mut self.stream, &mut head).await?;
        let (errno, cookie) = wire::parse_simple(&head);
        let flight = self.find_request(cookie)?;
        if errno != 0 {
            flight.error = Some(ServerError { errno, message: String::new() });
            flight.is_done = true;
            return Ok(());
        }
        let Range { start, end } = flight.range;
        let part = flight.assembly_mut()?.check_part(start, end - start);
        self.incoming = Some(IncomingRange { cookie, left: part?, last: true });
        Ok(())
    }

    async fn receive_chunk(&mut self) -> Result<(), AttemptError> {
        let mut head = [0; 16];
        read_bytes(&mut self.stream, &mut head).await?;
        let chunk = ReplyChunkHeader::parse(&head);
        self.find_request(chunk.cookie)?;
        match chunk.kind {
            wire::REPLY_TYPE_OFFSET_DATA => return self.begin_data(chunk).await,
            wire::REPLY_TYPE_OFFSET_HOLE => self.receive_hole(chunk).await?,
            wire::REPLY_TYPE_BLOCK_STATUS => self.receive_status(chunk).await?,
            wire::REPLY_TYPE_NONE if chunk.length == 0 && chunk.done => {}
            kind if kind & wire::REPLY_FLAG_ERROR != 0 => self.receive_error(chunk).await?,
            kind => {
                return Err(violation_error(format!(
                    "a chunk of type {kind} and {} bytes",
                    chunk.length
                )));
            }
        }
        self.finish_reply(chunk.cookie, chunk.done).map_err(AttemptError::from)
    }

    /// Begins a chunk of data: offset (u64), data.
    async fn begin_data(&mut self, chunk: ReplyChunkHeader) -> Result<(), AttemptError> {
        let Some(length) = chunk.length.checked_sub(8) else {
            return Err(violation_error(format!("a data chunk of {} bytes", chunk.length)));
        };
        let mut offset = [0; 8];
        read_bytes(&mut self.stream, &mut offset).await?;
        let assembly = self.find_request(chunk.cookie).and_then(InflightRequest::assembly_mut)?;
        let part = assembly.check_part(u64::from_be_bytes(offset), length.into());
        self.incoming = Some(IncomingRange { cookie: chunk.cookie, left: part?, last: chunk.done });
        Ok(())
    }

    /// Receives a chunk for a hole: offset (u64), length (u32).
    async fn receive_hole(&mut self, chunk: ReplyChunkHeader) -> Result<(), AttemptError> {
        if chunk.length != 12 {
            return Err(violation_error(format!(
                "a hole chunk of {} bytes, expected 12",
                chunk.length
            )));
        }
        let mut payload = [0; 12];
        read_bytes(&mut self.stream, &mut payload).await?;
        let mut fields = &payload[..];
        let (offset, length) = (fields.get_u64(), fields.get_u32());
        let assembly = self.find_request(chunk.cookie).and_then(InflightRequest::assembly_mut)?;
        let hole = assembly.check_part(offset, length.into())?;
        assembly.mark_received(hole).map_err(AttemptError::from)
    }

    /// Receives a chunk of block status: number of the context (u32), then descriptors, each with
    /// length (u32) and flags (u32).
    async fn receive_status(&mut self, chunk: ReplyChunkHeader) -> Result<(), AttemptError> {
        let descriptors = chunk
            .length
            .checked_sub(4)
            .filter(|bytes| bytes % DESCRIPTOR_BYTES == 0)
            .map(|bytes| bytes / DESCRIPTOR_BYTES)
            .filter(|count| (1..=MAX_DESCRIPTORS).contains(count));
        let Some(descriptors) = descriptors else {
            return Err(violation_error(format!("block status in {} bytes", chunk.length)));
        };
        let mut context = [0; 4];
        read_bytes(&mut self.stream, &mut context).await?;
        if Some(u32::from_be_bytes(context)) != self.agreement.allocation {
            return Err(violation_error("block status of a context that was not requested".into()));
        }
        // "A successful reply MUST contain exactly one chunk per negotiated context", and only one
        // is negotiated.
        if matches!(&self.find_request(chunk.cookie)?.answer, PendingReply::Status(status) if status.has_begun())
        {
            return Err(violation_error("block status twice in one reply".into()));
        }
        for _ in 0..descriptors {
            let mut bytes = [0; DESCRIPTOR_BYTES as usize];
            read_bytes(&mut self.stream, &mut bytes).await?;
            let mut fields = &bytes[..];
            let (length, flags) = (fields.get_u32(), fields.get_u32());
            let PendingReply::Status(status) = &mut self.find_request(chunk.cookie)?.answer else {
                return Err(violation_error("block status in answer to a read".into()));
            };
            status.add_descriptor(length, flags)?;
        }
        Ok(())
    }

    async fn receive_error(&mut self, chunk: ReplyChunkHeader) -> Result<(), AttemptError> {
        let length = usize::try_from(chunk.length).unwrap_or(usize::MAX);
        if length > MAX_ERROR_BYTES {
            return Err(violation_error(format!("an error of {length} bytes")));
        }
        let mut payload = vec![0; length];
        read_bytes(&mut self.stream, &mut payload).await?;
        let error = ServerError::parse(&payload)?;
        let flight = self.find_request(chunk.cookie)?;
        flight.error.get_or_insert(error);
        flight.errors += 1;
        if flight.errors > MAX_ERRORS {
            return Err(violation_error(format!(
                "more than {MAX_ERRORS} errors in the reply to one request"
            )));
        }
        Ok(())
    }

    /// Reads some of the announced data into the buffer of its request.
    async fn receive_data(&mut self) -> Result<(), AttemptError> {
        let Some(IncomingRange { cookie, left, last }) = &mut self.incoming else {
            return Ok(());
        };
        let (cookie, last) = (*cookie, *last);
        let assembly =
            find_inflight(&mut self.flights, cookie).and_then(InflightRequest::assembly_mut)?;
        let room = assembly.part_buffer(left);
        let count = match self.stream.read(room).await {
            Ok(0) => return Err(connection_error(&io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => count as u64,
            Err(error) => return Err(connection_error(&error)),
        };
        assembly.mark_received(left.start..left.start + count)?;
        left.start += count;
        if left.is_empty() {
            self.incoming = None;
            self.finish_reply(cookie, last)?;
        }
        Ok(())
    }

    fn finish_reply(&mut self, cookie: u64, last: bool) -> Result<(), NbdViolation> {
        self.find_request(cookie)?.is_done |= last;
        Ok(())
    }

    fn find_request(&mut self, cookie: u64) -> Result<&mut InflightRequest, NbdViolation> {
        find_inflight(&mut self.flights, cookie)
    }
}

/// Returns the open request with this cookie.
fn find_inflight(
    flights: &mut VecDeque<InflightRequest>,
    cookie: u64,
) -> Result<&mut InflightRequest, NbdViolation> {
    flights.iter_mut().find(|flight| flight.cookie == cookie && !flight.is_done).ok_or_else(|| {
        NbdViolation(format!("a reply with cookie {cookie}, which belongs to no open request"))
    })
}

fn violation_error(text: String) -> AttemptError {
    NbdViolation(text).into()
}
