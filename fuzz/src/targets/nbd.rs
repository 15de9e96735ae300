//! Parses anything that an NBD server may reply to some requests: the result does not depend on
//! how the bytes arrive, lies within the requested ranges, and is complete or an error. Handshake
//! messages respect their limits.

use std::ops::Range;

use crate::source::nbd::{Reply, ask, handshake};
use crate::{Pieces, Script, assert_sentence, runtime};

/// The requested ranges. If block status is supported, it is requested first, so the reads have
/// the cookies 2 and 3, otherwise 1 and 2.
const STATUS: Range<u64> = 0..1024;
const READS: [Range<u64>; 2] = [0..256, 256..1024];

/// Returns all replies, and the error that ended them.
fn talk(pieces: Pieces, is_structured: bool) -> (Vec<Reply>, Result<(), String>) {
    let talking = ask(Script::new(pieces), is_structured, STATUS, &READS);
    let (replies, outcome) = runtime().block_on(talking);
    (replies, outcome.map_err(|error| error.to_string()))
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
                let ends = extents.iter().map(|(end, _)| *end);
                let is_ascending =
                    ends.clone().zip(ends.clone().skip(1)).all(|(before, end)| before < end);
                assert!(is_ascending && ends.clone().all(|end| end > *from && end <= STATUS.end));
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
    for sentence in handshake(pieces.rest()) {
        assert_sentence(&sentence);
    }
}
