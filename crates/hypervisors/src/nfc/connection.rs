//! Reads and lists of used blocks on an open disk. Several requests are under way; the fragments
//! of their replies arrive in any order.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::Duration;

use fetch::retry::{AttemptError, with_time_limit};
use stream::error::SourceErrorKind;
use tokio::io::AsyncReadExt;

use super::fragment::{self, unpack_fragment};
use super::link::{NfcDialect, NfcLink, unknown_error};
use super::wire::{self, FrameHeader, HostError, OpenedFile, ReadFragment};
use super::{NfcEncoding, UsedAreas};
use crate::blocks::transport::{Stream, connection_error, read_bytes};
use crate::blocks::{
    BlockConnection, BlockStatus, InflightTable, PendingReply, ProtocolViolation, ReadAssembly,
    ReplyEvent,
};

/// Longest read. VMware speaks of 1 MB for each stream.
pub(super) const READ_BYTES: u64 = 1 << 20;

/// Most requests that a host gets before it has answered them. VMware advises against more than 32
/// at one host, over all connections.
const MAX_OPERATIONS: usize = 16;

/// Unit in which used blocks are listed.
const CHUNK: u32 = 64 << 10;
const CHUNK_BYTES: u64 = CHUNK as u64;

/// A connection with an open disk.
pub struct NfcConnection {
    pub(super) link: NfcLink,
    pub(super) file: OpenedFile,
    /// The host, for messages.
    place: String,
    inflight: InflightTable,
    /// Requests to the host that are not answered, or not completely.
    operations: Vec<NfcOperation>,
    /// Parts of reads that were not sent yet, with the numbers of their requests.
    waiting: VecDeque<(u64, Range<u64>)>,
    incoming: Option<IncomingFragment>,
    /// Reads of a connection that broke. Parts of them that have arrived are not read again.
    carried: Vec<ReadAssembly>,
    /// True after a read that the host refused. Such a connection is given up, because it is not
    /// confirmed how the reply continues.
    has_failed: bool,
    /// The used areas, if the host need not be asked for them.
    pub(super) used: Option<UsedAreas>,
}

/// A request to the host.
struct NfcOperation {
    operation: u32,
    /// The number of the request that it belongs to.
    number: u64,
    range: Range<u64>,
    left_bytes: u64,
    /// True after an error. A reply may still follow, which is dropped.
    is_refused: bool,
}

/// A fragment of which some bytes have arrived.
struct IncomingFragment {
    number: u64,
    part: Range<u64>,
    left: Range<u64>,
}

impl NfcConnection {
    pub(super) fn new(link: NfcLink, file: OpenedFile, place: String) -> Self {
        Self {
            link,
            file,
            place,
            inflight: InflightTable::default(),
            operations: Vec::new(),
            waiting: VecDeque::new(),
            incoming: None,
            carried: Vec::new(),
            has_failed: false,
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
        let mut link = NfcLink::new(stream, NfcDialect::for_encoding(encoding));
        link.begin(tag).await?;
        let file = link.open_file(path).await?;
        Ok(Self::new(link, file, place))
    }

    /// Asks for the use of the first chunk. Returns the error of a host that does not tell it.
    pub(super) async fn try_used(
        &mut self,
        limit: Duration,
    ) -> Result<Option<String>, AttemptError> {
        if self.file.capacity < CHUNK_BYTES {
            return Ok(None);
        }
        self.request_block_status(0..CHUNK_BYTES, limit).await?;
        Ok(match self.next_event(limit).await? {
            ReplyEvent::Refused { error, .. } => Some(error),
            _ => None,
        })
    }

    /// Takes over the reads of `broken` that were not handed out, with what has arrived of them.
    pub(super) fn carry_reads(&mut self, broken: Self) {
        self.carried = broken.inflight.into_reads().chain(broken.carried).collect();
    }

    /// Sends as many waiting parts as the host may get.
    async fn send_waiting(&mut self) -> Result<(), AttemptError> {
        while self.operations.len() < MAX_OPERATIONS
            && let Some((number, part)) = self.waiting.pop_front()
        {
            self.send_read(number, part).await?;
        }
        Ok(())
    }

    async fn send_read(&mut self, number: u64, range: Range<u64>) -> Result<(), AttemptError> {
        // Longer reads are never requested.
        let length = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        let compression = self.link.dialect.compression;
        let payload = wire::read_payload(self.file.handle, compression, range.start, length);
        let operation = self.link.send_frame(wire::READ, &payload, &[]).await?;
        self.await_reply(operation, number, range);
        Ok(())
    }

    fn await_reply(&mut self, operation: u32, number: u64, range: Range<u64>) {
        let left_bytes = range.end - range.start;
        let is_refused = false;
        self.operations.push(NfcOperation { operation, number, range, left_bytes, is_refused });
    }

    fn find_operation(&mut self, operation: u32) -> Result<&mut NfcOperation, ProtocolViolation> {
        let found = self.operations.iter_mut().find(|open| open.operation == operation);
        found.ok_or_else(|| {
            ProtocolViolation(format!("a reply to operation {operation}, which is not open"))
        })
    }

    async fn receive_piece(&mut self) -> Result<(), AttemptError> {
        if self.incoming.is_some() {
            return self.receive_data().await;
        }
        self.send_waiting().await?;
        let header = self.link.read_header().await?;
        match header.kind {
            wire::READ => self.receive_fragment(header).await,
            wire::USED_BLOCKS => self.receive_used(header).await,
            wire::ERROR => {
                let error = self.link.read_error(header).await?;
                self.refuse(header.operation, &error).map_err(AttemptError::from)
            }
            other => Err(unknown_error(other)),
        }
    }

    async fn receive_fragment(&mut self, header: FrameHeader) -> Result<(), AttemptError> {
        let fragment = ReadFragment::parse(&self.link.read_payload(header).await?);
        let open = self.find_operation(header.operation)?;
        if fragment.status != 0 {
            let error = HostError { code: fragment.status, text: String::new() };
            return self.refuse(header.operation, &error).map_err(AttemptError::from);
        }
        let part = fragment.locate(&open.range)?;
        let (number, length) = (open.number, part.end - part.start);
        open.left_bytes = open.left_bytes.saturating_sub(length);
        if open.left_bytes == 0 {
            self.operations.retain(|open| open.operation != header.operation);
        }
        let assembly = self.inflight.find(number)?.assembly_mut()?;
        assembly.check_part(part.start, length)?;
        if fragment.compression == fragment::NONE {
            self.incoming = Some(IncomingFragment { number, left: part.clone(), part });
            return Ok(());
        }
        // Both lengths are at most the length of the read.
        let mut data = vec![0; usize::try_from(fragment.data_bytes).unwrap_or_default()];
        read_bytes(&mut self.link.stream, &mut data).await?;
        let length = usize::try_from(fragment.length).unwrap_or_default();
        match unpack_fragment(fragment.compression, &data, length)? {
            Some(bytes) => assembly.fill_part(&part, &bytes),
            None => assembly.zero_part(&part),
        }
        self.finish_part(number, part).map_err(AttemptError::from)
    }

    /// Reads some of the announced data into the buffer of its request.
    async fn receive_data(&mut self) -> Result<(), AttemptError> {
        let Some(IncomingFragment { number, part, left }) = &mut self.incoming else {
            return Ok(());
        };
        let room = self.inflight.find(*number)?.assembly_mut()?.part_buffer(left);
        left.start += match self.link.stream.read(room).await {
            Ok(0) => return Err(connection_error(&io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => count as u64,
            Err(error) => return Err(connection_error(&error)),
        };
        if left.is_empty() {
            // Only whole fragments count, because what is missing is requested again in whole
            // sectors.
            let (number, part) = (*number, part.clone());
            self.incoming = None;
            self.finish_part(number, part)?;
        }
        Ok(())
    }

    fn finish_part(&mut self, number: u64, part: Range<u64>) -> Result<(), ProtocolViolation> {
        let request = self.inflight.find(number)?;
        let assembly = request.assembly_mut()?;
        assembly.mark_received(part)?;
        request.is_done = assembly.is_complete();
        Ok(())
    }

    async fn receive_used(&mut self, header: FrameHeader) -> Result<(), AttemptError> {
        let payload = self.link.read_payload(header).await?;
        let open = self.find_operation(header.operation)?;
        let (number, is_refused) = (open.number, open.is_refused);
        let chunks = (open.range.end - open.range.start) / CHUNK_BYTES;
        self.operations.retain(|open| open.operation != header.operation);
        // The reply that follows an error is all zeros.
        let asked = if is_refused { 0 } else { chunks };
        let mut bitmap = vec![0; wire::parse_used(&payload, asked)?];
        read_bytes(&mut self.link.stream, &mut bitmap).await?;
        if is_refused {
            return Ok(());
        }
        let request = self.inflight.find(number)?;
        let PendingReply::Status(status) = &mut request.answer else {
            return Err(ProtocolViolation("used blocks in answer to a read".into()).into());
        };
        let bits = bitmap.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
        for is_used in bits.take(usize::try_from(chunks).unwrap_or(usize::MAX)) {
            status.add_run(CHUNK, !is_used)?;
        }
        request.is_done = true;
        Ok(())
    }

    /// Ends the request with the error of the host.
    fn refuse(&mut self, operation: u32, error: &HostError) -> Result<(), ProtocolViolation> {
        let open = self.find_operation(operation)?;
        open.is_refused = true;
        let number = open.number;
        let request = self.inflight.find(number)?;
        self.has_failed |= matches!(request.answer, PendingReply::Read(_));
        request.error = Some(format!("{error} ({})", self.place));
        request.is_done = true;
        Ok(())
    }
}

/// Cuts `range` of a disk with these used areas into runs: their lengths, and which are holes.
fn runs_of(used: &[Range<u64>], range: &Range<u64>) -> Vec<(u32, bool)> {
    let first = used.partition_point(|area| area.end <= range.start);
    let areas = used[first..].iter().take_while(|area| area.start < range.end);
    let ends = areas.flat_map(|area| [(area.start, true), (area.end, false)]);
    let mut at = range.start;
    let runs = ends.chain([(range.end, true)]).map(|(end, is_hole)| {
        let end = end.clamp(at, range.end);
        // Longer ranges are never requested.
        let length = u32::try_from(end - at).unwrap_or(u32::MAX);
        at = end;
        (length, is_hole)
    });
    runs.filter(|(length, _)| *length > 0).collect()
}

impl BlockConnection for NfcConnection {
    fn block_bytes(&self) -> u32 {
        self.file.sector_bytes
    }

    fn max_read_bytes(&self) -> u64 {
        READ_BYTES
    }

    fn has_allocation(&self) -> bool {
        true
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
        let missing = assembly.missing_ranges();
        let number = self.inflight.push(range, PendingReply::Read(assembly));
        if missing.is_empty() {
            self.inflight.find(number)?.is_done = true;
        }
        self.waiting.extend(missing.into_iter().map(|part| (number, part)));
        with_time_limit(limit, self.send_waiting()).await
    }

    async fn request_block_status(
        &mut self,
        range: Range<u64>,
        limit: Duration,
    ) -> Result<(), AttemptError> {
        if let Some(used) = &self.used {
            let mut status = BlockStatus::new(range.clone());
            for (length, is_hole) in runs_of(used, &range) {
                status.add_run(length, is_hole)?;
            }
            let number = self.inflight.push(range, PendingReply::Status(status));
            self.inflight.find(number)?.is_done = true;
            return Ok(());
        }
        let start = range.start - range.start % CHUNK_BYTES;
        let end = range.end - range.end % CHUNK_BYTES;
        if end <= start {
            // The end of the disk is less than a chunk, which the host does not describe.
            let mut status = BlockStatus::new(start..range.end);
            status.add_run(CHUNK, false)?;
            let number = self.inflight.push(start..range.end, PendingReply::Status(status));
            self.inflight.find(number)?.is_done = true;
            return Ok(());
        }
        // Not confirmed: whether a host takes this request while reads are under way.
        while !self.operations.is_empty() && !self.has_failed {
            with_time_limit(limit, self.receive_next()).await?;
        }
        let status = PendingReply::Status(BlockStatus::new(start..end));
        let number = self.inflight.push(start..end, status);
        let count = (end - start) / CHUNK_BYTES;
        let payload = wire::used_payload(self.file.handle, CHUNK_BYTES, start, count);
        let sending = self.link.send_frame(wire::USED_BLOCKS, &payload, &[]);
        let operation = with_time_limit(limit, sending).await?;
        self.await_reply(operation, number, start..end);
        Ok(())
    }

    async fn receive_next(&mut self) -> Result<(), AttemptError> {
        let received = self.receive_piece().await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_the_ends_of_used_areas() {
        let used = [10..20, 20..30, 50..60];
        for (range, expected) in [
            (
                0..70,
                &[(10, true), (10, false), (10, false), (20, true), (10, false), (10, true)][..],
            ),
            (15..25, &[(5, false), (5, false)]),
            (30..50, &[(20, true)]),
            (55..58, &[(3, false)]),
            (60..61, &[(1, true)]),
        ] {
            assert_eq!(runs_of(&used, &range), expected, "{range:?}");
        }
    }
}
