//! Any bytes of a client through the guard below hyper: what it lets pass does not depend on how they arrive, and hyper never takes for
//! a request what the guard takes for a body, or the other way round.

#![no_main]

use std::cell::RefCell;

use fuzz::listener::watched;
use fuzz::{Pieces, Script, runtime, serve};
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use tokio::io::AsyncReadExt;

/// Behind all that the fuzzer sends: a request with two lengths, which the guard must keep from hyper. Whoever is out of step with
/// hyper does not see it.
const LAST: &str =
    "\r\n\r\nPOST /two-lengths HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n";
const LAST_PATH: &str = "/two-lengths";

/// A request that hyper has handed out: its target, and its body if that is whole.
type Handed = (String, Option<Vec<u8>>);

/// What hyper gets to see.
fn seen(pieces: Pieces) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut stream = watched(Script::new(pieces));
    let reading = stream.read_to_end(&mut seen);
    runtime().block_on(reading).expect("a stream in memory");
    seen
}

fn handed_out(pieces: Pieces) -> Vec<Handed> {
    let requests = RefCell::new(Vec::new());
    serve(watched(Script::new(pieces)), async |request| {
        // Before its body: hyper may hang up on a client that has said all before that is read.
        requests.borrow_mut().push((request.uri().to_string(), None));
        if let Ok(body) = request.into_body().collect().await
            && let Some((_, whole)) = requests.borrow_mut().last_mut()
        {
            *whole = Some(body.to_bytes().to_vec());
        }
    });
    requests.into_inner()
}

fuzz_target!(|data: &[u8]| {
    if data.windows(LAST_PATH.len()).any(|bytes| bytes == LAST_PATH.as_bytes()) {
        return;
    }
    let Some(pieces) = Pieces::new(&[data, LAST.as_bytes()].concat()) else {
        return;
    };
    let sent = pieces.rest();
    let seen_of_pieces = seen(pieces.clone());
    assert_eq!(seen_of_pieces, seen(pieces.in_large()), "it matters how bytes arrive");
    assert!(seen_of_pieces.len() <= sent.len());
    let spoiled: Vec<u8> =
        seen_of_pieces.iter().zip(sent).filter(|(seen, sent)| seen != sent).map(|(seen, _)| *seen).collect();
    assert!(spoiled.is_empty() || spoiled == [0], "spoiled with {spoiled:?}");

    let requests = handed_out(pieces.clone());
    assert!(
        requests.iter().all(|(target, _)| !target.contains(LAST_PATH)),
        "hyper and the guard disagree on where requests begin: {requests:?}"
    );
    assert_eq!(requests, handed_out(pieces.in_large()), "it matters to hyper how bytes arrive");
});
