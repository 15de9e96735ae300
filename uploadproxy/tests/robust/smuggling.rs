//! Requests whose ends two servers may see at different places (RFC 9112 §11.2), and malformed
//! ones.
//! Every probe hides a request without a token behind or within one that has a token. An upload
//! server that ever sees the hidden one got it past the proxy.

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

/// After this time without an answer, none will come.
const SILENCE: Duration = Duration::from_millis(300);

/// Text that only the hidden request contains.
const MARK: &str = "smuggled";

/// The permitted outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// A status of 4xx or 5xx or a closed connection, and nothing upstream.
    Refused,
    /// One request upstream, with this body.
    Passed(&'static str),
    /// Either of them, with this body.
    Either(&'static str),
}

use Outcome::{Either, Passed, Refused};

/// A name, the bytes to send, and the permitted outcome. The bytes have placeholders, which
/// [`PLACEHOLDERS`] and [`filled`] replace.
type Probe = (&'static str, &'static str, Outcome);

/// A probe that is displayed by its name.
struct Case(Probe);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.0)
    }
}

/// Short names for bytes that many probes have in common: the usual begin of a head, a head that
/// announces chunks, one that also announces a length, the rest of a head behind its path, and the
/// ends of requests with five bytes and without chunks, each followed by the hidden request.
const PLACEHOLDERS: [(&str, &str); 9] = [
    ("{2}", "{S}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ("{C}", "{S}Transfer-Encoding: chunked\r\n\r\n"),
    ("{S}", "POST {P} HTTP/1.1\r\nHost: h\r\n{T}"),
    ("{R}", " HTTP/1.1\r\nHost: h\r\n{T}{L}"),
    ("{L}", "Content-Length: 5{5}"),
    ("{5}", "\r\n\r\nhello{H}"),
    ("{0}", "\r\n\r\n0\r\n\r\n{H}"),
    ("{P}", PATH),
    ("{T}", "Authorization: {bearer}\r\n"),
];

/// Returns the bytes of a probe with its placeholders replaced; `{H}` is the hidden request, and
/// `{Z}` a hundred zeros.
fn filled(text: &str, bearer: &str) -> Vec<u8> {
    let hidden =
        format!("POST {PATH} HTTP/1.1\r\nHost: h\r\nX-Mark: {MARK}\r\nContent-Length: 0\r\n\r\n");
    let replace = |text: String, (name, bytes): &(&str, &str)| text.replace(name, bytes);
    PLACEHOLDERS
        .iter()
        .fold(text.to_owned(), replace)
        .replace("{bearer}", bearer)
        .replace("{H}", &hidden)
        .replace("{Z}", &"0".repeat(100))
        .into_bytes()
}

/// Returns the status of every answer to a probe, until the connection ends or is silent.
fn answers(mut connection: Connection, bytes: &[u8]) -> Vec<u16> {
    let mut statuses = Vec::new();
    // The server may close the connection while the rest is still being sent.
    if connection.send_until_answered(bytes).is_err() {
        return statuses;
    }
    connection.set_patience(SILENCE).or_fail("a time limit");
    loop {
        match connection.response() {
            Ok(response) => statuses.push(response.status),
            // Malformed HTTP is an error of the kind `Other`. Any other error, such as a reset, is
            // the end.
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
        // Forwarded bytes may still be on their way.
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
        // The proxy still works.
        time_upload(&front);
    });
}

#[test]
fn ambiguous_lengths_hide_no_request() {
    check(&bodies::LENGTHS);
}

#[test]
fn malformed_chunks_hide_no_request() {
    check(&bodies::CHUNKS);
}

#[test]
fn malformed_heads_hide_no_request() {
    check(&heads::HEADS);
}

#[test]
fn odd_targets_lead_to_the_upload_server_or_nowhere() {
    check(&heads::TARGETS);
}
