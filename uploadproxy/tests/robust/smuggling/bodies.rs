//! Probes whose bodies may seem to end at several places.

use super::Outcome::{Either, Passed, Refused};
use super::Probe;

/// Bodies with more than one length, or with an ambiguous one.
pub(super) const LENGTHS: [Probe; 28] = [
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
    ("no length", "POST {P} HTTP/1.1\r\nHost: h\r\n{T}\r\n{H}", Passed("")),
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
