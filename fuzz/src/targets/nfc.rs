//! Parses anything that an ESXi host may send in a session: the result does not depend on how the
//! bytes arrive, lies within the requested ranges, and is complete or an error. Fragments and
//! greetings are parsed or refused.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use fetch::retry::AttemptError;
use hypervisors::blocks::{BlockConnection, ReplyEvent};
use hypervisors::nfc::NfcEncoding;
use hypervisors::nfc::authd::has_capabilities;
use hypervisors::nfc::connection::NfcConnection;
use hypervisors::nfc::fragment::{SKIP_ZEROS, ZLIB, unpack_fragment};

use crate::{Pieces, Script, assert_sentence, runtime};

/// The requested ranges, with the operations 5 and 6, after 4 for the used areas.
const READS: [Range<u64>; 2] = [0..4096, 4096..8192];

/// Time limit for a reply. The scripted host never waits.
const LIMIT: Duration = Duration::from_secs(10);

/// Length of the fragments that the input is taken for.
const FRAGMENT_BYTES: usize = 2048;

/// A part of the result.
#[derive(PartialEq, Eq)]
enum Part {
    Data(u64, Bytes),
    /// The used areas.
    Used(Vec<Range<u64>>),
    Refused(String),
}

fn talk(pieces: Pieces) -> (Vec<Part>, Result<(), String>) {
    let mut parts = Vec::new();
    let outcome = runtime().block_on(receive(pieces, &mut parts));
    (parts, outcome.map_err(|error| error.into_error().to_string()))
}

async fn receive(pieces: Pieces, parts: &mut Vec<Part>) -> Result<(), AttemptError> {
    let stream = Box::new(Script::new(pieces));
    let place = "host".to_owned();
    let encoding = NfcEncoding::default();
    let mut host = NfcConnection::open(stream, "tag", "[a] b.vmdk", place, encoding).await?;
    parts.push(match host.list_used(LIMIT).await? {
        Ok(used) => Part::Used(used.to_vec()),
        Err(error) => Part::Refused(error),
    });
    for read in READS {
        host.request_read(read, LIMIT).await?;
    }
    let mut left = READS.len();
    while left > 0 {
        match host.next_event(LIMIT).await? {
            ReplyEvent::Data(offset, bytes) => {
                parts.push(Part::Data(offset, bytes));
                continue;
            }
            ReplyEvent::ReadDone | ReplyEvent::Status(..) => {}
            ReplyEvent::Refused { what, error } => {
                parts.push(Part::Refused(format!("{what}: {error}")));
            }
        }
        left -= 1;
    }
    Ok(())
}

fn check(parts: &[Part], is_complete: bool) {
    let (mut bytes, mut refusals) = (0, 0);
    for part in parts {
        match part {
            Part::Data(offset, data) => {
                let end = offset + data.len() as u64;
                assert!(READS.iter().any(|read| read.start <= *offset && end <= read.end));
                bytes += data.len() as u64;
            }
            Part::Used(areas) => {
                assert!(areas.is_sorted_by(|before, after| before.end < after.start));
                assert!(areas.iter().all(|area| !area.is_empty()));
            }
            Part::Refused(sentence) => {
                assert_sentence(sentence);
                refusals += 1;
            }
        }
    }
    assert!(bytes <= READS[1].end);
    assert!(!is_complete || refusals > 0 || bytes == READS[1].end, "bytes are missing");
}

pub fn run(data: &[u8]) {
    let Some(pieces) = Pieces::new(data) else { return };
    let (parts, outcome) = talk(pieces.clone());
    check(&parts, outcome.is_ok());
    if let Err(sentence) = &outcome {
        assert_sentence(sentence);
    }
    assert!((parts, outcome) == talk(pieces.in_large()), "it depends on how the bytes arrive");
    let rest = pieces.rest();
    has_capabilities(&String::from_utf8_lossy(rest));
    for compression in [ZLIB, SKIP_ZEROS] {
        let mut end = 0;
        let unpacked = unpack_fragment(compression, rest, FRAGMENT_BYTES, |offset, bytes| {
            assert!(offset >= end, "runs overlap");
            end = offset + bytes.len();
        });
        assert!(end <= FRAGMENT_BYTES, "a run outside");
        if let Err(violation) = unpacked {
            assert_sentence(&violation.0);
        }
    }
}
