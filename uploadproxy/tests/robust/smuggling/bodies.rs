//! Probes whose bodies may seem to end at several places.

use super::Outcome::{Either, Passed, Refused};
use super::Probe;

/// Bodies with more than one length, or with an ambiguous one.
pub(super) const LENGTHS: [Probe; 28] = [
    ("a length and chunks", "{S}Content-Length: 5\r\nTransfer-Encoding: chunked{0}", Refused),
    ("chunks and a length", "{S}Transfer-Encoding: chunked\r\nContent-Length: 200{0}", Refused),
    ("two lengths", "{S}Content-Length: 5\r\nContent-Length: 6{5}", Refused),
    ("two lengths in a list", "{S}Content-Length: 5, 6{5}", Refused),
    ("the same length twice", "{S}Content-Length: 5\r\n{L}", Either("hello")),
    ("a length with a plus", "{S}Content-Length: +5{5}", Refused),
    ("a negative length", "{S}Content-Length: -5{5}", Refused),
    ("a hexadecimal length", "{S}Content-Length: 0x5{5}", Refused),
    ("a length with a fraction", "{S}Content-Length: 5.0{5}", Refused),
    ("an empty length", "{S}Content-Length:{5}", Refused),
    ("a length of 2^64", "{S}Content-Length: 18446744073709551616{5}", Refused),
    ("a length with an inner space", "{S}Content-Length: 5 0{5}", Refused),
    ("a space before the colon of a length", "{S}Content-Length : 5{5}", Refused),
    ("a space before the colon of chunks", "{S}Transfer-Encoding : chunked{0}", Refused),
    ("another coding", "{S}Transfer-Encoding: gzip{5}", Refused),
    ("another coding above chunks", "{S}Transfer-Encoding: gzip, chunked{0}", Refused),
    ("another coding below chunks", "{S}Transfer-Encoding: chunked, gzip{0}", Refused),
    ("identity", "{S}Transfer-Encoding: identity\r\n{L}", Refused),
    ("chunks twice", "{S}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked{0}", Refused),
    ("chunks twice in a list", "{S}Transfer-Encoding: chunked, chunked{0}", Refused),
    (
        "chunks, then another coding",
        "{S}Transfer-Encoding: chunked\r\nTransfer-Encoding: x{0}",
        Refused,
    ),
    ("something like chunks", "{S}Transfer-Encoding: xchunked{0}", Refused),
    ("chunks in quotes", "{S}Transfer-Encoding: \"chunked\"{0}", Refused),
    ("a vertical tab before chunks", "{S}Transfer-Encoding: \x0bchunked{0}", Refused),
    ("an empty coding", "{S}Transfer-Encoding:\r\n{L}", Refused),
    (
        "chunks in HTTP/1.0",
        "POST {P} HTTP/1.0\r\nHost: h\r\n{T}Transfer-Encoding: chunked{0}",
        Refused,
    ),
    (
        "chunks in capitals",
        "{S}Transfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n{H}",
        Either("hello"),
    ),
    ("no length", "{S}\r\n{H}", Passed("")),
];

/// Chunks that end elsewhere than their sizes say.
pub(super) const CHUNKS: [Probe; 20] = [
    ("a size of 2^64", "{C}10000000000000005\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a size of 2^68", "{C}100000000000000005\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a size with 0x", "{C}0x5\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a size with a plus", "{C}+5\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a negative size", "{C}-5\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a size with a space before", "{C} 5\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("no size", "{C}\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a size that is no number", "{C}five\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a chunk that is too long", "{C}3\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a chunk without its end", "{C}5\r\nhello0\r\n\r\n{H}", Refused),
    ("a chunk that ends with a bare LF", "{C}5\r\nhello\n0\r\n\r\n{H}", Refused),
    ("a size that ends with a bare LF", "{C}5\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a size that ends with a bare CR", "{C}5\rhello\r\n0\r\n\r\n{H}", Refused),
    ("a bare LF in an extension", "{C}5;a\nb\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("a NUL in a size", "{C}5\0\r\nhello\r\n0\r\n\r\n{H}", Refused),
    ("an extension", "{C}5;name=value\r\nhello\r\n0\r\n\r\n{H}", Either("hello")),
    (
        "trailers that are fields",
        "{C}5\r\nhello\r\n0\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\n{T}\r\n{H}",
        Either("hello"),
    ),
    (
        "two lengths behind a size with many zeros",
        "{C}{Z}2d\r\n\r\n\r\nGET /x HTTP/1.1\r\nContent-Length: 9999\r\n\r\n\r\n0\r\n\r\n{2}0\r\n\r\n{H}",
        Passed("\r\n\r\nGET /x HTTP/1.1\r\nContent-Length: 9999\r\n\r\n"),
    ),
    (
        "two lengths behind a long extension",
        "{C}2d;{Z}\r\n\r\n\r\nGET /x HTTP/1.1\r\nContent-Length: 9999\r\n\r\n\r\n0\r\n\r\n{2}0\r\n\r\n{H}",
        Passed("\r\n\r\nGET /x HTTP/1.1\r\nContent-Length: 9999\r\n\r\n"),
    ),
    (
        "two lengths behind a trailer with a bare LF",
        "{C}5\r\nhello\r\n0\r\nX: y\n\r\nGET /healthz HTTP/1.1\r\nContent-Length: 2000\r\n\r\n{2}0\r\n\r\n{H}",
        Refused,
    ),
];
