//! Parses anything that an NBD server may reply to some requests: the result does not depend on
//! how the bytes arrive, lies within the requested ranges, and is complete or an error. Handshake
//! messages respect their limits.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use fetch::retry::AttemptError;
use hypervisors::blocks::{BlockConnection, ReplyEvent};
use hypervisors::nbd::connection::{NbdAgreement, NbdConnection};
use hypervisors::nbd::wire::{self, BlockSizes, OptionReply, ServerError};

use crate::{Pieces, Script, assert_sentence, runtime};

/// The requested ranges. If block status is supported, it is requested first, so the reads have
/// the cookies 2 and 3, otherwise 1 and 2.
const STATUS: Range<u64> = 0..1024;
const READS: [Range<u64>; 2] = [0..256, 256..1024];

/// Time limit for a reply. The scripted server never waits.
const LIMIT: Duration = Duration::from_secs(10);

/// A reply to a request.
#[derive(PartialEq, Eq)]
enum Reply {
    /// Bytes at an offset.
    Data(u64, Bytes),
    /// Ends of extents after an offset, and whether each reads as zeros.
    Extents(u64, Vec<(u64, bool)>),
    /// An error message.
    Refused(String),
}

/// Sends all requests without waiting. Returns the replies in order of arrival, and the error that
/// ended them.
fn talk(pieces: Pieces, is_structured: bool) -> (Vec<Reply>, Result<(), String>) {
    let mut replies = Vec::new();
    let outcome = runtime().block_on(receive(pieces, is_structured, &mut replies));
    (replies, outcome.map_err(|error| error.into_error().to_string()))
}

async fn receive(
    pieces: Pieces,
    is_structured: bool,
    replies: &mut Vec<Reply>,
) -> Result<(), AttemptError> {
    let agreement = NbdAgreement {
        size: STATUS.end,
        multi_conn: false,
        block_sizes: BlockSizes::default(),
        structured: is_structured,
        allocation: is_structured.then_some(7),
    };
    let mut connection = NbdConnection::new(Box::new(Script::new(pieces)), agreement);
    let mut left = READS.len();
    if is_structured {
        connection.request_block_status(STATUS, LIMIT).await?;
        left += 1;
    }
    for range in READS {
        connection.request_read(range, LIMIT).await?;
    }
    while left > 0 {
        match connection.next_event(LIMIT).await? {
            ReplyEvent::Data(offset, bytes) => {
                replies.push(Reply::Data(offset, bytes));
                continue;
            }
            ReplyEvent::ReadDone => {}
            ReplyEvent::Status(from, extents) => {
                let extents = extents.iter().map(|extent| (extent.end, extent.zero));
                replies.push(Reply::Extents(from, extents.collect()));
            }
            ReplyEvent::Refused { what, error } => {
                replies.push(Reply::Refused(format!("{what}: {error}")));
            }
        }
        left -= 1;
    }
    Ok(())
}

fn check(replies: &[Reply], is_complete: bool) {
    let (mut bytes, mut refusals) = (0, 0);
    for reply in replies {
        match reply {
            Reply::Data(offset, data) => {
                let end = offset + data.len() as u64;
                assert!(READS.iter().any(|read| read.start <= *offset && end <= read.end));
                bytes += data.len() as u64;
            }
            Reply::Extents(from, extents) => {
                assert!(*from == STATUS.start && !extents.is_empty());
                assert!(extents.is_sorted_by(|before, after| before.0 < after.0));
                assert!(extents.iter().all(|(end, _)| end > from && *end <= STATUS.end));
                assert!(extents.windows(2).all(|pair| pair[0].1 != pair[1].1));
            }
            Reply::Refused(sentence) => {
                assert_sentence(sentence);
                refusals += 1;
            }
        }
    }
    assert!(bytes <= STATUS.end);
    assert!(!is_complete || refusals > 0 || bytes == STATUS.end, "bytes are missing");
}

/// Parses `bytes` as each kind of handshake message.
fn check_handshake(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk::<{ OptionReply::BYTES }>()
        && let Err(violation) = OptionReply::parse(wire::OPT_GO, head)
    {
        assert_sentence(&violation.0);
    }
    match wire::parse_export(bytes) {
        Ok((size, _)) => assert!(i64::try_from(size).is_ok()),
        Err(violation) => assert_sentence(&violation.0),
    }
    match BlockSizes::parse(bytes) {
        Ok(BlockSizes { minimum, maximum }) => {
            assert!(minimum.is_power_of_two() && maximum >= minimum && maximum % minimum == 0);
        }
        Err(violation) => assert_sentence(&violation.0),
    }
    let error = ServerError::parse(bytes);
    assert_sentence(&error.map_or_else(|violation| violation.0, |error| error.to_string()));
}

pub fn run(data: &[u8]) {
    let Some((kind, input)) = data.split_first() else {
        return;
    };
    let Some(pieces) = Pieces::new(input) else { return };
    let is_structured = kind & 1 == 1;
    let (replies, outcome) = talk(pieces.clone(), is_structured);
    check(&replies, outcome.is_ok());
    if let Err(sentence) = &outcome {
        assert_sentence(sentence);
    }
    assert!(
        (replies, outcome) == talk(pieces.in_large(), is_structured),
        "the result depends on how the bytes arrive"
    );
    check_handshake(pieces.rest());
}
