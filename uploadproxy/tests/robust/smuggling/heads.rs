//! Probes with malformed or unusual heads.

use super::Outcome::{Either, Passed, Refused};
use super::Probe;

/// Heads that some servers accept and others do not.
pub(super) const HEADS: [Probe; 19] = [
    ("a folded field", "{S}X: a\r\n b\r\n{L}", Refused),
    ("a folded length", "{S}Content-Length:\r\n 5{5}", Refused),
    ("folded chunks", "{S}Transfer-Encoding:\r\n chunked{0}", Refused),
    (
        "a field that begins with a space",
        "POST {P} HTTP/1.1\r\n Transfer-Encoding: chunked\r\nHost: h\r\n{T}{L}",
        Refused,
    ),
    (
        "bare LFs",
        "POST {P} HTTP/1.1\nHost: h\nAuthorization: {bearer}\nContent-Length: 5\n\nhello{H}",
        Either("hello"),
    ),
    ("a bare CR in a value", "{S}X: a\rContent-Length: 0\r\n{L}", Refused),
    ("a NUL in a value", "{S}X: a\0b\r\n{L}", Refused),
    ("a NUL in a name", "{S}X\0: a\r\n{L}", Refused),
    ("a field without a name", "{S}: a\r\n{L}", Refused),
    ("a line without a colon", "{S}nonsense\r\n{L}", Refused),
    ("a name with a parenthesis", "{S}Content(-Length: 5\r\n\r\n{H}", Refused),
    ("HTTP/0.9", "GET {P}\r\n\r\n{H}", Refused),
    ("HTTP/2.0", "POST {P} HTTP/2.0\r\nHost: h\r\n{T}{L}", Refused),
    ("HTTP/1.10", "POST {P} HTTP/1.10\r\nHost: h\r\n{T}{L}", Refused),
    ("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{H}", Refused),
    ("two spaces in the request line", "POST  {P}{R}", Refused),
    ("a method with a control character", "PO\x01ST {P}{R}", Refused),
    ("an empty line before the request", "\r\n{S}{L}", Either("hello")),
    ("the handshake of TLS", "\x16\x03\x01\x02\r\n\r\n{H}", Refused),
];

/// Targets and hosts that lead to other servers.
pub(super) const TARGETS: [Probe; 20] = [
    ("a URL of another host", "POST http://evil.example{P}{R}", Either("hello")),
    ("a URL of a file", "POST file:///etc/passwd{R}", Refused),
    ("two slashes", "POST //evil.example{P}{R}", Refused),
    ("a user", "POST @evil.example{P}{R}", Refused),
    ("dots", "POST /v1beta1/x/../upload-archive{R}", Refused),
    ("encoded dots", "POST {P}/%2e%2e/upload-archive{R}", Refused),
    ("encoded slashes", "POST {P}/..%2fupload-archive{R}", Refused),
    ("backslashes", "POST {P}\\..\\upload-archive{R}", Refused),
    ("parameters", "POST {P};x=y{R}", Refused),
    ("a fragment", "POST {P}#x{R}", Either("hello")),
    ("an encoded end of line", "POST {P}%0d%0aX:%20y{R}", Refused),
    ("a target of a star", "OPTIONS * HTTP/1.1\r\nHost: h\r\n{T}\r\n{H}", Refused),
    (
        "a tunnel",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n{T}\r\n{H}",
        Refused,
    ),
    ("a tunnel by a path", "CONNECT {P} HTTP/1.1\r\nHost: h\r\n{T}\r\n{H}", Refused),
    ("no host", "POST {P} HTTP/1.1\r\n{T}{L}", Refused),
    ("two hosts", "POST {P} HTTP/1.1\r\nHost: h\r\nHost: evil.example\r\n{T}{L}", Refused),
    ("a host that is none", "POST {P} HTTP/1.1\r\nHost: h/evil?x\r\n{T}{L}", Refused),
    (
        "an upgrade to HTTP/2",
        "{S}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAAQAAP__\r\n{L}",
        Passed("hello"),
    ),
    ("a length that is one of the hop", "{S}Connection: content-length\r\n{L}", Either("hello")),
    (
        "chunks that are one of the hop",
        "{S}Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\n\r\n{H}",
        Either("hello"),
    ),
];
