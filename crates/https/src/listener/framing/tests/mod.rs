//! Tests the guard alone and together with hyper: both must agree where requests begin.

mod beside_hyper;

use proptest::prelude::*;

use super::*;

/// Returns the bytes of `text` that hyper can read if it arrives in pieces of this size.
fn seen(text: &str, piece: usize) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let mut framing = RequestFraming::default();
    let mut seen = Vec::new();
    for piece in bytes.chunks_mut(piece) {
        let length = framing.scan_bytes(piece);
        seen.extend_from_slice(&piece[..length]);
        if let RequestFraming::Lost = framing {
            break;
        }
    }
    seen
}

/// Fails unless `text` is corrupted at this position and cut after it, whatever the size of its
/// pieces.
#[track_caller]
fn assert_spoiled_at(text: &str, position: usize) {
    for piece in 1..=text.len() {
        let expected = [&text.as_bytes()[..position], &[SPOILED]].concat();
        assert_eq!(
            String::from_utf8_lossy(&seen(text, piece)),
            String::from_utf8_lossy(&expected),
            "pieces of {piece}"
        );
    }
}

#[track_caller]
fn assert_passed(text: &str) {
    for piece in 1..=text.len() {
        assert!(seen(text, piece) == text.as_bytes(), "{text:?} in pieces of {piece}");
    }
}

const BOTH: [&str; 4] = [
    "POST /a HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    "POST /a HTTP/1.1\r\nTRANSFER-ENCODING: chunked\r\ncontent-length:0\r\n\r\n",
    "\r\n\r\nPOST /a HTTP/1.1\nTransfer-Encoding: gzip, chunked\nA: b\nContent-Length: x\n\n",
    "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX: y\r\nContent-Length: 99\r\n\n",
];

#[test]
fn a_head_with_both_lengths_is_corrupted() {
    for head in BOTH {
        let text = format!("{head}0\r\n\r\nGET / HTTP/1.1\r\n\r\n");
        assert_spoiled_at(&text, head.len() - 1);
    }
}

#[test]
fn a_head_with_an_unknown_encoding_is_corrupted() {
    let filler = " ".repeat(LINE_BYTES);
    for lines in [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding:",
        &format!("Content-Length:{filler}7"),
    ] {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n");
        assert_spoiled_at(&text, text.len() - 1);
    }
}

#[test]
fn bodies_are_not_mistaken_for_heads() {
    let head = BOTH[0];
    let length = head.len();
    let zeros = "0".repeat(3 * LINE_BYTES);
    for text in [
        format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{head}GET / HTTP/1.1\r\n\r\n"),
        format!(
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{length:X};a=b\r\n{head}\r\n0\r\nA: b\r\n\r\n"
        ),
        format!(
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{zeros}{length:x} \t;a\r\n{head}\r\n0\r\n\r\n"
        ),
        "GET / HTTP/1.1\r\nX-Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            .to_owned(),
    ] {
        assert_passed(&text);
    }
}

#[test]
fn a_second_request_is_checked_as_well() {
    let zeros = "0".repeat(3 * LINE_BYTES);
    let extension = "x".repeat(3 * LINE_BYTES);
    for first in [
        "GET / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\nT: x\r\n\r\n",
        &format!(
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{zeros}5;{extension}\r\nabcde\r\n0\r\n\r\n"
        ),
    ] {
        let text = format!("{first}{}", BOTH[0]);
        assert_spoiled_at(&text, text.len() - 1);
    }
}

#[test]
fn malformed_chunks_are_corrupted_where_they_become_malformed() {
    let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (good, bad) in [
        ("", "z"),
        ("", "+5"),
        ("", ";a"),
        ("5 ", "5"),
        ("5", "\n"),
        ("5;a", "\n"),
        ("5\r", "\r"),
        ("1\r\na", "\n"),
        ("1\r\na\r", "b"),
        ("ffffffffffffffff", "f"),
        ("0\r\n", "\n"),
        ("0\r\nX: y", "\n\r\n"),
        ("0\r\nX: y\r", "z"),
        ("0\r\n\r", "a"),
    ] {
        let text = format!("{head}{good}{bad}{}", BOTH[0]);
        assert_spoiled_at(&text, head.len() + good.len());
    }
}

proptest! {
    #[test]
    fn of_random_bytes_only_a_prefix_passes_unchanged(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1..300_usize) {
        let mut framing = RequestFraming::default();
        let mut copy = bytes.clone();
        for (piece, original) in copy.chunks_mut(piece).zip(bytes.chunks(piece)) {
            let length = framing.scan_bytes(piece);
            let same = piece.iter().zip(original).take_while(|(a, b)| a == b).count();
            prop_assert!(length == piece.len() && same == length || same + 1 >= length);
            if let RequestFraming::Lost = framing {
                break;
            }
        }
    }
}
