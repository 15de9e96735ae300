//! The list of used areas, and reads, on an open disk. Several reads are under way; the fragments
//! of their replies arrive in any order.

use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fetch::retry::{AttemptError, with_time_limit};
use stream::error::SourceErrorKind;

use super::fragment::{self, unpack_fragment};
use super::link::{NfcLink, unknown_error};
use super::wire::{self, FrameHeader, HostError, OpenedFile, ReadFragment};
use super::{NfcEncoding, UsedAreas};
use crate::blocks::transport::{Stream, read_bytes};
use crate::blocks::{
    BlockConnection, BlockStatus, InflightTable, PendingReply, ProtocolViolation, ReadAssembly,
};
use crate::vddk::areas::ChangedAreas;

/// Longest read. VMware speaks of 1 MB for each stream.
pub(super) const READ_BYTES: u64 = 1 << 20;

/// Unit in which used areas are listed.
const CHUNK: usize = 64 << 10;
const CHUNK_BYTES: u64 = CHUNK as u64;

/// Number of bytes that one request for used areas covers. Hosts accept eight times as many.
const LISTED_BYTES: u64 = 4 << 30;

/// A connection with an open disk.
pub struct NfcConnection {
    pub(super) link: NfcLink,
    pub(super) file: OpenedFile,
    /// The host, for messages.
    place: String,
    /// The compression of fragments that reads ask for.
    compression: u32,
    inflight: InflightTable,
    /// Requests to the host that are not answered completely, at most one for each read.
    operations: Vec<NfcOperation>,
    /// Reads of a connection that broke. Parts of them that have arrived are not read again.
    carried: Vec<ReadAssembly>,
    /// True after a read that the host refused. Such a connection is given up, because it is not
    /// confirmed how the reply continues.
    has_failed: bool,
    /// True after an error about used areas, which a reply of zeros may follow.
    may_get_zeros: bool,
    /// The used areas, if they are known.
    pub(super) used: Option<UsedAreas>,
}

/// A request to the host.
struct NfcOperation {
    operation: u32,
    /// The number of the read that it belongs to.
    number: u64,
    range: Range<u64>,
}

impl NfcConnection {
    pub(super) fn new(link: NfcLink, file: OpenedFile, place: String) -> Self {
        Self {
            link,
            file,
            place,
            compression: NfcEncoding::default().compression(),
            inflight: InflightTable::default(),
            operations: Vec::new(),
            carried: Vec::new(),
            has_failed: false,
            may_get_zeros: false,
            used: None,
        }
    }

    /// Begins a session on `stream` and opens the disk in the file `path`. `tag` is the word that
    /// authd was told, and `place` names the host in messages.
    pub async fn open(
        stream: Stream,
        tag: &str,
        path: &str,
        place: String,
        encoding: NfcEncoding,
    ) -> Result<Self, AttemptError> {
        let mut link = NfcLink::new(stream);
        link.begin(tag).await?;
        let file = link.open_file(path).await?;
        Ok(Self { compression: encoding.compression(), ..Self::new(link, file, place) })
    }

    /// Asks for the used areas of the disk, before the first read. Returns the error of a host that
    /// does not list them. Each wait lasts at most `limit`.
    pub async fn list_used(
        &mut self,
        limit: Duration,
    ) -> Result<Result<UsedAreas, String>, AttemptError> {
        let OpenedFile { handle, capacity, .. } = self.file;
        // The end of a disk may be less than a chunk, which the host does not describe.
        let described = capacity - capacity % CHUNK_BYTES;
        let (mut areas, mut start) = (ChangedAreas::default(), 0);
        while start < described {
            let end = described.min(start.saturating_add(LISTED_BYTES));
            let count = (end - start) / CHUNK_BYTES;
            let listing = self.link.list_chunks(handle, CHUNK_BYTES, start, count);
            let listed = with_time_limit(limit, listing).await;
            let bitmap = match listed.map_err(|failure| failure.with_context(&self.place))? {
                Ok(bitmap) => bitmap,
                Err(error) => {
                    self.may_get_zeros = true;
                    return Ok(Err(self.explain(&error)));
                }
            };
            let bits = bitmap.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
            let chunks = (start..end).step_by(CHUNK).zip(bits);
            for (chunk, _) in chunks.filter(|(_, is_used)| *is_used) {
                areas.push_area(chunk..chunk + CHUNK_BYTES);
            }
            start = end;
        }
        if described < capacity {
            areas.push_area(described..capacity);
        }
        let areas = areas.into_changes(capacity).map_err(AttemptError::Final)?;
        Ok(Ok(Arc::clone(areas.ranges())))
    }

    /// Takes over the reads of `broken` that were not handed out, with what has arrived of them.
    pub(super) fn carry_reads(&mut self, broken: Self) {
        self.carried = broken.inflight.into_reads().chain(broken.carried).collect();
    }

    /// Requests the next missing bytes of a read, which is done if there are none.
    async fn request_missing(&mut self, number: u64) -> Result<(), AttemptError> {
        let request = self.inflight.find(number)?;
        let Some(range) = request.assembly_mut()?.first_missing() else {
            request.is_done = true;
            return Ok(());
        };
        // Longer reads are never requested.
        let length = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        let (handle, compression) = (self.file.handle, self.compression);
        let payload = wire::read_payload(handle, compression, range.start, length);
        let operation = self.link.send_frame(wire::READ, &payload, &[]).await?;
        self.operations.push(NfcOperation { operation, number, range });
        Ok(())
    }

    fn find_operation(&mut self, operation: u32) -> Result<&mut NfcOperation, ProtocolViolation> {
        let found = self.operations.iter_mut().find(|open| open.operation == operation);
        found.ok_or_else(|| {
            ProtocolViolation(format!("a reply to operation {operation}, which is not open"))
        })
    }

    async fn receive_frame(&mut self) -> Result<(), AttemptError> {
        let header = self.link.read_header().await?;
        match header.kind {
            wire::READ => self.receive_fragment(header).await,
            wire::USED_BLOCKS if mem::take(&mut self.may_get_zeros) => {
                let payload = self.link.read_payload(header).await?;
                Ok(wire::parse_used(&payload, 0).map(drop)?)
            }
            wire::ERROR => {
                let error = self.link.read_error(header).await?;
                self.refuse_read(header.operation, &error).map_err(AttemptError::from)
            }
            other => Err(unknown_error(other)),
        }
    }

    async fn receive_fragment(&mut self, header: FrameHeader) -> Result<(), AttemptError> {
        let payload = self.link.read_payload(header).await?;
        if let Err(error) = HostError::check_status(&payload) {
            return self.refuse_read(header.operation, &error).map_err(AttemptError::from);
        }
        let open = self.find_operation(header.operation)?;
        let ReadFragment { part, compression, data_bytes } =
            ReadFragment::parse(&payload, &open.range)?;
        let (number, end, length) = (open.number, open.range.end, part.end - part.start);
        let assembly = self.inflight.find(number)?.assembly_mut()?;
        assembly.check_part(part.start, length)?;
        if compression == fragment::NONE {
            for room in assembly.part_buffers(&part) {
                read_bytes(&mut self.link.stream, room).await?;
            }
        } else {
            // Both lengths are at most the length of the read.
            let mut data = vec![0; data_bytes];
            read_bytes(&mut self.link.stream, &mut data).await?;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            assembly.zero_part(&part);
            unpack_fragment(compression, &data, length, |offset, bytes| {
                let start = part.start + offset as u64;
                assembly.fill_part(&(start..start + bytes.len() as u64), bytes);
            })?;
        }
        // Only whole fragments count, because what is missing is requested again in whole sectors.
        assembly.mark_received(part)?;
        if assembly.first_missing().is_some_and(|missing| missing.start < end) {
            return Ok(());
        }
        self.operations.retain(|open| open.operation != header.operation);
        self.request_missing(number).await
    }

    /// Ends a read with the error of the host.
    fn refuse_read(&mut self, operation: u32, error: &HostError) -> Result<(), ProtocolViolation> {
        let (number, error) = (self.find_operation(operation)?.number, self.explain(error));
        let request = self.inflight.find(number)?;
        (request.error, request.is_done) = (Some(error), true);
        self.has_failed = true;
        Ok(())
    }

    fn explain(&self, error: &HostError) -> String {
        format!("{error} ({})", self.place)
    }
}

impl BlockConnection for NfcConnection {
    fn block_bytes(&self) -> u32 {
        self.file.sector_bytes
    }

    fn has_allocation(&self) -> bool {
        self.used.is_some()
    }

    fn inflight(&mut self) -> &mut InflightTable {
        &mut self.inflight
    }

    async fn request_read(
        &mut self,
        range: Range<u64>,
        limit: Duration,
    ) -> Result<(), AttemptError> {
        let same = self.carried.iter().position(|read| *read.range() == range);
        let assembly = match same {
            Some(index) => self.carried.swap_remove(index),
            None => ReadAssembly::new(range.clone()),
        };
        // Reads are requested in order, so these will not be.
        self.carried.retain(|read| read.range().start >= range.end);
        let number = self.inflight.push(range, PendingReply::Read(assembly));
        with_time_limit(limit, self.request_missing(number)).await
    }

    async fn request_block_status(
        &mut self,
        range: Range<u64>,
        _limit: Duration,
    ) -> Result<(), AttemptError> {
        let mut status = BlockStatus::new(range.clone());
        status.add_areas(self.used.as_deref().unwrap_or_default());
        let number = self.inflight.push(range, PendingReply::Status(status));
        self.inflight.find(number)?.is_done = true;
        Ok(())
    }

    async fn receive_next(&mut self) -> Result<(), AttemptError> {
        let received = self.receive_frame().await;
        received.map_err(|failure| failure.with_context(&self.place))
    }

    async fn drain_replies(&mut self, limit: Duration) -> Result<(), AttemptError> {
        while !self.inflight.is_empty() && !self.has_failed {
            self.next_event(limit).await?;
        }
        if !self.has_failed {
            return Ok(());
        }
        let message = "the host has refused a read on this connection";
        Err(AttemptError::new_transient(SourceErrorKind::Io, message))
    }

    async fn close(mut self, limit: Duration) {
        if with_time_limit(limit, self.link.end(self.file.handle)).await.is_err() {
            tracing::debug!("the host was gone before the end of the session");
        }
    }
}
