//! A connection in the transmission phase: requests are sent, and their replies arrive in any
//! order.
//!
//! A connection has one owner and no task of its own. A task that waits for a reply receives
//! everything that arrives before it.

use std::io;
use std::ops::Range;
use std::time::Duration;

use bytes::Buf;
use fetch::retry::{AttemptError, with_time_limit};
use tokio::io::{AsyncReadExt, BufReader};

use super::wire;
use super::wire::{BlockSizes, MAX_STRING_BYTES, ReplyChunkHeader, ServerError};
use crate::blocks::transport::{Stream, connection_error, read_bytes, write_bytes};
use crate::blocks::{
    BlockConnection, BlockStatus, InflightRequest, InflightTable, PendingReply, ProtocolViolation,
    ReadAssembly,
};

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
    inflight: InflightTable,
    incoming: Option<IncomingRange>,
}

/// Data that is being received for the request with this cookie.
struct IncomingRange {
    cookie: u64,
    left: Range<u64>,
    last: bool,
}

impl BlockConnection for NbdConnection {
    fn block_bytes(&self) -> u32 {
        self.agreement.block_sizes.minimum
    }

    fn max_read_bytes(&self) -> u64 {
        self.agreement.block_sizes.maximum.into()
    }

    fn has_allocation(&self) -> bool {
        self.agreement.allocation.is_some()
    }

    fn inflight(&mut self) -> &mut InflightTable {
        &mut self.inflight
    }

    async fn request_read(
        &mut self,
        range: Range<u64>,
        limit: Duration,
    ) -> Result<(), AttemptError> {
        let answer = PendingReply::Read(ReadAssembly::new(range.clone()));
        self.send_request(wire::CMD_READ, range, answer, limit).await
    }

    async fn request_block_status(
        &mut self,
        range: Range<u64>,
        limit: Duration,
    ) -> Result<(), AttemptError> {
        let answer = PendingReply::Status(BlockStatus::new(range.clone()));
        self.send_request(wire::CMD_BLOCK_STATUS, range, answer, limit).await
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

    async fn close(mut self, limit: Duration) {
        let request = wire::encode_request(wire::CMD_DISC, 0, 0, 0);
        if with_time_limit(limit, write_bytes(&mut self.stream, &request)).await.is_err() {
            tracing::debug!("the NBD server was gone before the disconnect");
        }
    }
}

impl NbdConnection {
    /// Takes over the connection on which `agreement` was negotiated.
    pub fn new(stream: Stream, agreement: NbdAgreement) -> Self {
        Self {
            stream: BufReader::with_capacity(READ_AHEAD_BYTES, stream),
            agreement,
            inflight: InflightTable::default(),
            incoming: None,
        }
    }

    pub(super) fn agreement(&self) -> &NbdAgreement {
        &self.agreement
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
        let start = range.start;
        let cookie = self.inflight.push(range, answer);
        let request = wire::encode_request(command, cookie, start, length);
        with_time_limit(limit, write_bytes(&mut self.stream, &request)).await
    }

    async fn receive_simple(&mut self) -> Result<(), AttemptError> {
        let mut head = [0; 12];
        read_bytes(&mut self.stream, &mut head).await?;
        let (errno, cookie) = wire::parse_simple(&head);
        let flight = self.find_request(cookie)?;
        if errno != 0 {
            flight.error = Some(ServerError { errno, message: String::new() }.to_string());
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
            // A hole without this flag may contain any data.
            status.add_run(length, flags & wire::STATE_ZERO != 0)?;
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
        flight.error.get_or_insert_with(|| error.to_string());
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
        let assembly = self.inflight.find(cookie).and_then(InflightRequest::assembly_mut)?;
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

    fn finish_reply(&mut self, cookie: u64, last: bool) -> Result<(), ProtocolViolation> {
        self.find_request(cookie)?.is_done |= last;
        Ok(())
    }

    fn find_request(&mut self, cookie: u64) -> Result<&mut InflightRequest, ProtocolViolation> {
        self.inflight.find(cookie)
    }
}

fn violation_error(text: String) -> AttemptError {
    ProtocolViolation(text).into()
}
