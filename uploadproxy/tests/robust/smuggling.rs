//! Requests whose ends two servers may see at different places (RFC 9112 §11.2), and others that are none.
//!
//! Every probe hides a request without a token behind or within one that has a token. An upload server that ever sees the
//! hidden one got it past the proxy.

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

/// A name, what is sent and what comes of it. `{T}` stands for the field with the token, `{H}` for the hidden request.
type Probe = (&'static str, &'static str, Outcome);

/// Bodies with more than one length, or none that is sure.
const LENGTHS: [Probe; 28] = [
    (
        "a length and chunks",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "chunks and a length",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: chunked\r\nContent-Length: 200\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "two lengths",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "two lengths in a list",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5, 6\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "the same length twice",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello{H}",
        Either("hello"),
    ),
    (
        "a length with a plus",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: +5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a negative length",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: -5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a hexadecimal length",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 0x5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a length with a fraction",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5.0\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "an empty length",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length:\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a length of 2^64",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 18446744073709551616\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a length with an inner space",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5 0\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a space before the colon of a length",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length : 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a space before the colon of chunks",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "another coding",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: gzip\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "another coding above chunks",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "another coding below chunks",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "identity",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "chunks twice",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "chunks twice in a list",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "chunks, then another coding",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "something like chunks",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "chunks in quotes",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "a vertical tab before chunks",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "an empty coding",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding:\r\nContent-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "chunks in HTTP/1.0",
        "POST {P} HTTP/1.0\r\nHost: h\r\n{T}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "chunks in capitals",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n{H}",
        Either("hello"),
    ),
    (
        "no length",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}\r\n{H}",
        Passed(""),
    ),
];

/// Chunks that end elsewhere than they say.
const CHUNKS: [Probe; 17] = [
    (
        "a size of 2^64",
        "{C}10000000000000005\r\nhello\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "a size of 2^68",
        "{C}100000000000000005\r\nhello\r\n0\r\n\r\n{H}",
        Refused,
    ),
    ("a size with 0x", "{C}0x5\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a size with a plus", "{C}+5\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a negative size", "{C}-5\r\nhello\r\n0\r\n\r\n{H}", Refused),
    (
        "a size with a space before",
        "{C} 5\r\nhello\r\n0\r\n\r\n{H}",
        Refused,
    ),
    ("no size", "{C}\r\nhello\r\n0\r\n\r\n{H}", Refused),
    (
        "a size that is no number",
        "{C}five\r\nhello\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "a chunk that is too long",
        "{C}3\r\nhello\r\n0\r\n\r\n{H}",
        Refused,
    ),
    ("a chunk without its end", "{C}5\r\nhello0\r\n\r\n{H}", Refused),
    (
        "a chunk that ends with a bare LF",
        "{C}5\r\nhello\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "a size that ends with a bare LF",
        "{C}5\nhello\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "a size that ends with a bare CR",
        "{C}5\rhello\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "a bare LF in an extension",
        "{C}5;a\nb\r\nhello\r\n0\r\n\r\n{H}",
        Refused,
    ),
    ("a NUL in a size", "{C}5\0\r\nhello\r\n0\r\n\r\n{H}", Refused),
    (
        "an extension",
        "{C}5;name=value\r\nhello\r\n0\r\n\r\n{H}",
        Either("hello"),
    ),
    (
        "trailers that are fields",
        "{C}5\r\nhello\r\n0\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\n{T}\r\n{H}",
        Either("hello"),
    ),
];

/// Heads that one server reads and another one does not.
const HEADS: [Probe; 19] = [
    (
        "a folded field",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}X: a\r\n b\r\nContent-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a folded length",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length:\r\n 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "folded chunks",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n{H}",
        Refused,
    ),
    (
        "a field that begins with a space",
        "POST {P} HTTP/1.1\r\n Transfer-Encoding: chunked\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "bare LFs",
        "POST {P} HTTP/1.1\nHost: h\n{TLF}Content-Length: 5\n\nhello{H}",
        Either("hello"),
    ),
    (
        "a bare CR in a value",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}X: a\rContent-Length: 0\r\nContent-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a NUL in a value",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}X: a\0b\r\nContent-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a NUL in a name",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}X\0: a\r\nContent-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a field without a name",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}: a\r\nContent-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a line without a colon",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}nonsense\r\nContent-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a name with a parenthesis",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Content(-Length: 5\r\n\r\n{H}",
        Refused,
    ),
    ("HTTP/0.9", "GET {P}\r\n\r\n{H}", Refused),
    (
        "HTTP/2.0",
        "POST {P} HTTP/2.0\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "HTTP/1.10",
        "POST {P} HTTP/1.10\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "the preface of HTTP/2",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{H}",
        Refused,
    ),
    (
        "two spaces in the request line",
        "POST  {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a method with a control character",
        "PO\x01ST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "an empty line before the request",
        "\r\nPOST {P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Either("hello"),
    ),
    ("the handshake of TLS", "\x16\x03\x01\x02\r\n\r\n{H}", Refused),
];

/// Targets and hosts that lead elsewhere.
const TARGETS: [Probe; 20] = [
    (
        "a URL of another host",
        "POST http://evil.example{P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Either("hello"),
    ),
    (
        "a URL of a file",
        "POST file:///etc/passwd HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "two slashes",
        "POST //evil.example{P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a user",
        "POST @evil.example{P} HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "dots",
        "POST /v1beta1/x/../upload-archive HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "encoded dots",
        "POST {P}/%2e%2e/upload-archive HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "encoded slashes",
        "POST {P}/..%2fupload-archive HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "backslashes",
        "POST {P}\\..\\upload-archive HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "parameters",
        "POST {P};x=y HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a fragment",
        "POST {P}#x HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Either("hello"),
    ),
    (
        "an encoded end of line",
        "POST {P}%0d%0aX:%20y HTTP/1.1\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a target of a star",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n{T}\r\n{H}",
        Refused,
    ),
    (
        "a tunnel",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n{T}\r\n{H}",
        Refused,
    ),
    (
        "a tunnel by a path",
        "CONNECT {P} HTTP/1.1\r\nHost: h\r\n{T}\r\n{H}",
        Refused,
    ),
    (
        "no host",
        "POST {P} HTTP/1.1\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "two hosts",
        "POST {P} HTTP/1.1\r\nHost: h\r\nHost: evil.example\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "a host that is none",
        "POST {P} HTTP/1.1\r\nHost: h/evil?x\r\n{T}Content-Length: 5\r\n\r\nhello{H}",
        Refused,
    ),
    (
        "an upgrade to HTTP/2",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 5\r\n\r\nhello{H}",
        Passed("hello"),
    ),
    (
        "a length that is one of the hop",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Connection: content-length\r\nContent-Length: 5\r\n\r\nhello{H}",
        Either("hello"),
    ),
    (
        "chunks that are one of the hop",
        "POST {P} HTTP/1.1\r\nHost: h\r\n{T}Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\n\r\n{H}",
        Either("hello"),
    ),
];

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
    text.replace("{C}", chunked)
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
    check(&LENGTHS);
}

#[test]
fn chunks_are_what_they_say_or_refused() {
    check(&CHUNKS);
}

#[test]
fn heads_are_http_or_refused() {
    check(&HEADS);
}

#[test]
fn targets_lead_to_the_upload_server_or_nowhere() {
    check(&TARGETS);
}
