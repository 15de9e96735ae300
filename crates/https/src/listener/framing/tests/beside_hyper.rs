//! Runs hyper behind the guard, with streams of requests that contain many kinds of errors.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::{FramingGuard, RequestFraming};

/// Building blocks of streams: whole lines and parts of lines. Each `N` is replaced by a unique
/// number.
const PIECES: [&str; 36] = [
    "POST /N HTTP/1.1\r\n",
    "GET /N HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /N HTTP/1.0\r\n",
    "CONNECT /N HTTP/1.1\r\n",
    "Host: a\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 5\n",
    "content-length: 30\r\n",
    "Content-Length: 0\r\n",
    "Content-Length:",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding:chunked\n",
    "Transfer-Encoding: x, chunked\r\n",
    "Transfer-Encoding: chunked\r\n\r\n",
    "Expect: 100-continue\r\n",
    "Upgrade: h2c\r\nConnection: upgrade\r\n",
    "X: y\r\n",
    "X: y\n",
    " folded\r\n",
    "\r\n",
    "\n",
    "\r",
    "5\r\n",
    "1E\r\n",
    "0\r\n\r\n",
    "0\r\n",
    "hello",
    "hello\r\n",
    ";name=value",
    " ",
    "\t",
    "ZEROS",
    "LONG",
    "\0",
    "ffffffffffffffff",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

/// A complete request with a body of each kind, split into pieces.
const WHOLE: [&[&str]; 7] = [
    &["GET /N HTTP/1.1\r\n", "Host: a\r\n", "\r\n"],
    &["POST /N HTTP/1.1\r\n", "Host: a\r\n", "Content-Length: 5\r\n", "\r\n", "hello"],
    &[
        "POST /N HTTP/1.1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "5\r\n",
        "hello\r\n",
        "0\r\n",
        "\r\n",
    ],
    &[
        "POST /N HTTP/1.1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "ZEROS",
        "5",
        ";LONG",
        "\r\n",
        "hello\r\n",
        "0\r\n\r\n",
    ],
    &[
        "POST /N HTTP/1.1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "5\r\n",
        "hello\r\n",
        "0\r\n",
        "X: y\r\n",
        "Y: z",
        "\r\n",
        "\r\n",
    ],
    // The body looks like a request.
    &[
        "POST /N HTTP/1.1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "1a",
        "\r\n",
        "GET /inside HTTP/1.1\r\nX:",
        "\r\n",
        "\r\n",
        "\r\n",
        "0\r\n",
        "\r\n",
    ],
    &[
        "POST /N HTTP/1.1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\n",
        "\r\n",
        "0\r\n",
        "\r\n",
    ],
];

/// A change of one piece.
#[derive(Debug, Clone)]
enum Edit {
    Remove,
    Replace(usize),
    Insert(usize),
    /// Replaces the byte at this position of the piece.
    Byte(usize, u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        Just(Edit::Remove),
        (0..PIECES.len()).prop_map(Edit::Replace),
        (0..PIECES.len()).prop_map(Edit::Insert),
        (any::<usize>(), prop::sample::select(b"\r\n 05;:\0x".to_vec()))
            .prop_map(|(at, byte)| Edit::Byte(at, byte)),
    ]
}

/// The bytes of a stream, shown as text in failures.
#[derive(Clone)]
struct Sent(Vec<u8>);

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A few requests in sequence with a few edits, followed by a request with two lengths. A guard
/// that is out of step does not detect that last request.
fn stream() -> impl Strategy<Value = Sent> {
    let requests = prop::collection::vec(0..WHOLE.len(), 1..4);
    let edits = prop::collection::vec((any::<prop::sample::Index>(), edit()), 0..4);
    (requests, edits).prop_map(|(requests, edits)| {
        let mut pieces: Vec<String> = requests
            .into_iter()
            .flat_map(|which| WHOLE[which])
            .map(|piece| (*piece).to_owned())
            .collect();
        for (at, edit) in edits {
            let at = at.index(pieces.len());
            match edit {
                Edit::Remove if pieces.len() > 1 => drop(pieces.remove(at)),
                Edit::Remove => {}
                Edit::Replace(piece) => PIECES[piece].clone_into(&mut pieces[at]),
                Edit::Insert(piece) => pieces.insert(at, PIECES[piece].to_owned()),
                Edit::Byte(place, byte) => {
                    let mut bytes = std::mem::take(&mut pieces[at]).into_bytes();
                    let place = place % bytes.len().max(1);
                    if let Some(old) = bytes.get_mut(place) {
                        *old = byte;
                    }
                    pieces[at] = String::from_utf8(bytes).unwrap();
                }
            }
        }
        pieces.extend(WHOLE[6].iter().map(|piece| piece.replace("/N", "/both-N")));
        let mut number = 0;
        for piece in &mut pieces {
            *piece = piece.replace("ZEROS", &"0".repeat(80)).replace("LONG", &"x".repeat(80));
            if piece.contains("N HTTP") {
                number += 1;
                *piece = piece.replace("N HTTP", &format!("{number} HTTP"));
            }
        }
        Sent(pieces.concat().into_bytes())
    })
}

/// Returns the targets of the requests that hyper, behind the guard, passes to its service.
fn handed_out(sent: &[u8], piece: usize) -> Vec<String> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let noted = Arc::clone(&seen);
        let service = service_fn(move |request: Request<Incoming>| {
            noted.lock().unwrap().push(request.uri().to_string());
            async move {
                // An incomplete body ends the connection, which is not an error in this test.
                request.into_body().collect().await.ok();
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
            }
        });
        let serving = http1::Builder::new()
            .serve_connection(TokioIo::new(FramingGuard::new(server)), service);
        let talking = async {
            for piece in sent.chunks(piece) {
                // The server may have closed the connection already.
                client.write_all(piece).await.ok();
                tokio::task::yield_now().await;
            }
            client.shutdown().await.ok();
            client.read_to_end(&mut Vec::new()).await.ok();
        };
        let both = async { tokio::join!(serving, talking) };
        tokio::time::timeout(Duration::from_secs(10), both).await.unwrap().0.ok();
    });
    let seen = seen.lock().unwrap();
    seen.clone()
}

/// Returns the request targets at the positions where the guard expects requests: the second word
/// after each position.
fn followed(sent: &[u8]) -> Vec<String> {
    let mut framing = RequestFraming::default();
    let mut found = Vec::new();
    let mut is_between = true;
    for (at, byte) in sent.iter().enumerate() {
        if is_between && !matches!(byte, b'\r' | b'\n') {
            let mut parts = sent[at..].split(|byte| *byte == b' ');
            let target = parts.nth(1).unwrap_or_default();
            found.push(String::from_utf8_lossy(target).into_owned());
        }
        framing.scan_bytes(&mut [*byte]);
        is_between = match &framing {
            RequestFraming::Head(head) => !head.has_begun && !head.is_line_filled,
            RequestFraming::Length(left) => *left == 0,
            RequestFraming::Chunked(_) => false,
            RequestFraming::Lost => break,
        };
    }
    found
}

#[track_caller]
fn compare(sent: &[u8], piece: usize) -> Result<(), TestCaseError> {
    let (handed_out, followed) = (handed_out(sent, piece), followed(sent));
    prop_assert!(
        followed.starts_with(&handed_out),
        "hyper: {:?}, guard: {:?}",
        handed_out,
        followed
    );
    prop_assert!(!handed_out.iter().any(|target| target.starts_with("/both")), "{:?}", handed_out);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn guard_and_hyper_agree_where_requests_begin(sent in stream(), piece in 1..200_usize) {
        compare(&sent.0, piece)?;
    }
}

/// Streams for which guard and hyper once disagreed.
#[test]
fn streams_that_were_read_in_two_ways_are_read_in_one() {
    let chunked = "POST /1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let both =
        "POST /both HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n";
    let zeros = "0".repeat(64);
    let inner = "GET /inside HTTP/1.1\r\nContent-Length: 1000\r\n\r\n";
    for sent in [
        // The value of the size appears only after its 64th digit.
        format!("{chunked}{zeros}5\r\nhello\r\n0\r\n\r\n{both}"),
        // A trailer that hyper reads as one line and other servers as two.
        format!("{chunked}0\r\nX: y\n\r\n{inner}{both}"),
    ] {
        for piece in [1, 7, 1000] {
            compare(sent.as_bytes(), piece).unwrap();
        }
    }
}

/// All requests with a single interpretation must reach the service.
#[test]
fn unambiguous_requests_all_reach_the_service() {
    let all: String = WHOLE[..5].iter().flat_map(|request| request.iter().copied()).collect();
    let all = all.replace("ZEROS", &"0".repeat(80)).replace("LONG", &"x".repeat(80));
    for piece in [1, 10, 10_000] {
        assert_eq!(handed_out(all.as_bytes(), piece), ["/N"; 5], "pieces of {piece}");
    }
}
