//! The requests of a connection whose replies have not all been handed out.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use super::ProtocolViolation;
use super::assembly::ReadAssembly;
use super::extents::{BlockExtent, BlockStatus};

/// An event of the oldest request.
pub enum ReplyEvent {
    /// The next bytes of a read, with their offset.
    Data(u64, Bytes),
    /// All bytes of a read have been handed out.
    ReadDone,
    /// The reply to a request for block status, beginning at this offset.
    Status(u64, Vec<BlockExtent>),
    /// The server could not process the request.
    Refused { what: String, error: String },
}

/// A request and the part of its reply that has arrived.
pub(crate) struct InflightRequest {
    number: u64,
    pub(crate) range: Range<u64>,
    pub(crate) answer: PendingReply,
    pub(crate) is_done: bool,
    /// The first error, which is the cause of the others.
    pub(crate) error: Option<String>,
    pub(crate) errors: usize,
}

pub(crate) enum PendingReply {
    Read(ReadAssembly),
    Status(BlockStatus),
}

impl InflightRequest {
    /// Returns the event to report now. Data that arrived before an error is not valid (NBD
    /// specification, "NBD_CMD_READ"), so a read is handed out only when its reply is complete.
    fn take_event(&mut self) -> Option<Result<ReplyEvent, ProtocolViolation>> {
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
                Err(ProtocolViolation(format!("bytes are missing in the {}", self.request_text())))
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

    pub(crate) fn assembly_mut(&mut self) -> Result<&mut ReadAssembly, ProtocolViolation> {
        match &mut self.answer {
            PendingReply::Read(assembly) => Ok(assembly),
            PendingReply::Status(_) => Err(ProtocolViolation(format!(
                "data in answer to a block status request at offset {}",
                self.range.start
            ))),
        }
    }
}

/// Requests whose events have not all been taken yet, oldest first.
#[derive(Default)]
pub struct InflightTable {
    requests: VecDeque<InflightRequest>,
    last_number: u64,
}

impl InflightTable {
    /// Adds a request and returns its number. The first one has the number 1.
    pub(crate) fn push(&mut self, range: Range<u64>, answer: PendingReply) -> u64 {
        self.last_number += 1;
        self.requests.push_back(InflightRequest {
            number: self.last_number,
            range,
            answer,
            is_done: false,
            error: None,
            errors: 0,
        });
        self.last_number
    }

    /// Returns the open request with this number.
    pub(crate) fn find(&mut self, number: u64) -> Result<&mut InflightRequest, ProtocolViolation> {
        let mut open = self.requests.iter_mut().filter(|request| !request.is_done);
        open.find(|request| request.number == number).ok_or_else(|| {
            ProtocolViolation(format!(
                "a reply with cookie {number}, which belongs to no open request"
            ))
        })
    }

    /// Returns the reads without errors that were not handed out, oldest first.
    pub(crate) fn into_reads(self) -> impl Iterator<Item = ReadAssembly> {
        self.requests.into_iter().filter(|request| request.error.is_none()).filter_map(|request| {
            match request.answer {
                PendingReply::Read(assembly) => Some(assembly),
                PendingReply::Status(_) => None,
            }
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the next event of the oldest request, if it has arrived already.
    pub(crate) fn take_ready_event(&mut self) -> Result<Option<ReplyEvent>, ProtocolViolation> {
        let event = self.requests.front_mut().and_then(InflightRequest::take_event).transpose()?;
        if !matches!(event, None | Some(ReplyEvent::Data(..))) {
            self.requests.pop_front();
        }
        Ok(event)
    }
}
