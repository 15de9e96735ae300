//! Sends a client's bytes through the guard below hyper: what the guard passes on does not depend
//! on how the bytes arrive, and hyper and the guard agree on where requests and bodies begin.

use std::cell::RefCell;

use http_body_util::BodyExt;
use https::listener::framing::FramingGuard;
use tokio::io::AsyncReadExt;

use crate::{Pieces, Script, runtime, serve};

/// Appended to the fuzzer's bytes: a request with two lengths, which the guard must hide from
/// hyper. If the guard loses track of the requests, hyper sees it.
const LAST: &str = "\r\n\r\nPOST /two-lengths HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n";
const LAST_PATH: &str = "/two-lengths";

/// A request that hyper has handed out: its target, and its body if it is complete.
type Handed = (String, Option<Vec<u8>>);

/// Returns the bytes that hyper gets to see.
fn seen(pieces: Pieces) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut stream = FramingGuard::new(Script::new(pieces));
    let reading = stream.read_to_end(&mut seen);
    runtime().block_on(reading).expect("a stream in memory");
    seen
}

fn handed_out(pieces: Pieces) -> Vec<Handed> {
    let requests = RefCell::new(Vec::new());
    serve(FramingGuard::new(Script::new(pieces)), async |request| {
        // Recorded before its body is read: hyper may close a connection whose client has finished
        // sending.
        requests.borrow_mut().push((request.uri().to_string(), None));
        if let Ok(body) = request.into_body().collect().await
            && let Some((_, whole)) = requests.borrow_mut().last_mut()
        {
            *whole = Some(body.to_bytes().to_vec());
        }
    });
    requests.into_inner()
}

pub fn run(data: &[u8]) {
    if data.windows(LAST_PATH.len()).any(|bytes| bytes == LAST_PATH.as_bytes()) {
        return;
    }
    let Some(pieces) = Pieces::new(&[data, LAST.as_bytes()].concat()) else {
        return;
    };
    let sent = pieces.rest();
    let seen_of_pieces = seen(pieces.clone());
    assert_eq!(
        seen_of_pieces,
        seen(pieces.in_large()),
        "the guard's output depends on how the bytes arrive"
    );
    assert!(seen_of_pieces.len() <= sent.len());
    let spoiled: Vec<u8> = seen_of_pieces
        .iter()
        .zip(sent)
        .filter(|(seen, sent)| seen != sent)
        .map(|(seen, _)| *seen)
        .collect();
    assert!(spoiled.is_empty() || spoiled == [0], "the guard changed bytes to {spoiled:?}");

    let requests = handed_out(pieces.clone());
    assert!(
        requests.iter().all(|(target, _)| !target.contains(LAST_PATH)),
        "hyper and the guard disagree on where requests begin: {requests:?}"
    );
    assert_eq!(
        requests,
        handed_out(pieces.in_large()),
        "hyper's requests depend on how the bytes arrive"
    );
}
