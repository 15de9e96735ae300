//! Probes with malformed or unusual heads.

use super::Outcome::{Either, Passed, Refused};
use super::Probe;

/// Heads that some servers accept and others do not.
pub(super) const HEADS: [Probe; 19] = [
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
    ("bare LFs", "POST {P} HTTP/1.1\nHost: h\n{TLF}Content-Length: 5\n\nhello{H}", Either("hello")),
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
    ("HTTP/2.0", "POST {P} HTTP/2.0\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}", Refused),
    ("HTTP/1.10", "POST {P} HTTP/1.10\r\nHost: h\r\n{T}Content-Length: 5\r\n\r\nhello{H}", Refused),
    ("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{H}", Refused),
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

/// Targets and hosts that lead to other servers.
pub(super) const TARGETS: [Probe; 20] = [
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
    ("a target of a star", "OPTIONS * HTTP/1.1\r\nHost: h\r\n{T}\r\n{H}", Refused),
    (
        "a tunnel",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n{T}\r\n{H}",
        Refused,
    ),
    ("a tunnel by a path", "CONNECT {P} HTTP/1.1\r\nHost: h\r\n{T}\r\n{H}", Refused),
    ("no host", "POST {P} HTTP/1.1\r\n{T}Content-Length: 5\r\n\r\nhello{H}", Refused),
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
