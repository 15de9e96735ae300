//! Requests whose ends two servers may see at different places (RFC 9112 §11.2), and others that are none.
//!
//! Every probe hides a request without a token behind or within one that has a token. An upload server that ever sees the
//! hidden one got it past the proxy.

mod bodies;
mod heads;

use std::fmt;
use std::io;
use std::time::Duration;

use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::https::Connection;
use testkit::upload_proxy::{PVC, Scripted};
use testkit::upstream::{End, Script};

use crate::{BINARY, PATH, time_upload};

/// After so long without an answer none is going to come.
const SILENCE: Duration = Duration::from_millis(300);

/// Stands in the hidden request.
const MARK: &str = "smuggled";

/// What may come of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// A status of 4xx or 5xx or a closed connection, and nothing upstream.
    Refused,
    /// One request upstream, with this body.
    Passed(&'static str),
    /// Either, with this body.
    Either(&'static str),
}

use Outcome::{Either, Passed, Refused};

/// A name, what is sent and what comes of it. `{T}` stands for the field with the token, `{H}` for the hidden request, `{C}` for a head
/// of a body in chunks, `{2}` for one with two lengths and `{Z}` for a hundred zeros.
type Probe = (&'static str, &'static str, Outcome);

/// A probe with its name as it is shown.
struct Case(Probe);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.0)
    }
}

/// A probe with all its places filled in.
fn filled(text: &str, bearer: &str) -> Vec<u8> {
    let hidden = format!("POST {PATH} HTTP/1.1\r\nHost: h\r\nX-Mark: {MARK}\r\nContent-Length: 0\r\n\r\n");
    let chunked = "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: chunked\r\n\r\n";
    let two = "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
    text.replace("{C}", chunked)
        .replace("{2}", two)
        .replace("{Z}", &"0".repeat(100))
        .replace("{P}", PATH)
        .replace("{TLF}", &format!("Authorization: {bearer}\n"))
        .replace("{T}", &format!("Authorization: {bearer}\r\n"))
        .replace("{H}", &hidden)
        .into_bytes()
}

/// The status of every answer to a probe, until the connection ends or nothing comes for a while.
fn answers(mut connection: Connection, bytes: &[u8]) -> Vec<u16> {
    let mut statuses = Vec::new();
    // A server that has seen enough may close while the rest is still being sent.
    if connection.send_until_answered(bytes).is_err() {
        return statuses;
    }
    connection.set_patience(SILENCE).or_fail("a time limit");
    loop {
        match connection.response() {
            Ok(response) => statuses.push(response.status),
            // What is no HTTP is an error of another kind. A reset is an end as well.
            Err(error) if error.kind() != io::ErrorKind::Other => return statuses,
            Err(error) => panic!("{error}"),
        }
    }
}

fn check(probes: &[Probe]) {
    check_all(probes.iter().copied().map(Case), |Case((_, text, outcome))| {
        let front = Scripted::start(BINARY, vec![Script::status(200, "taken")]);
        let bytes = filled(text, &front.proxy.bearer(PVC));
        let statuses = answers(front.server.connect(), &bytes);
        // What was sent on may still be on its way.
        std::thread::sleep(Duration::from_millis(20));
        let seen = front.upstream.seen();
        let marked = seen.iter().any(|seen| seen.head.contains(MARK));
        assert!(!marked, "a request got through: {seen:?}");
        let is_complete = seen.iter().any(|seen| seen.end() == Some(End::Complete));
        let refused = !is_complete && statuses.first().is_none_or(|status| *status >= 400);
        let passed = |body: &str| {
            matches!(seen.as_slice(), [only] if only.body() == body.as_bytes())
                && statuses.first() == Some(&200)
                && statuses.iter().skip(1).all(|status| *status >= 400)
        };
        let is_fine = match outcome {
            Refused => refused,
            Passed(body) => passed(body),
            Either(body) => refused || passed(body),
        };
        assert!(is_fine, "{statuses:?} instead of {outcome:?}, upstream {seen:?}");
        // The proxy is as it was.
        time_upload(&front);
    });
}

#[test]
fn lengths_are_sure_or_refused() {
    check(&bodies::LENGTHS);
}

#[test]
fn chunks_are_what_they_say_or_refused() {
    check(&bodies::CHUNKS);
}

#[test]
fn heads_are_http_or_refused() {
    check(&heads::HEADS);
}

#[test]
fn targets_lead_to_the_upload_server_or_nowhere() {
    check(&heads::TARGETS);
}
