//! Checksums that the client sends with the body.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use testkit::cases::check_all;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::framing::chunked;
use testkit::https::Request;

use crate::contract::failures::assert_usable;
use crate::contract::{MIB, pod};

/// A checksum of the body, sent as a header or as a trailer.
struct Checksum {
    header: &'static str,
    value: String,
    trailer: bool,
    matches: bool,
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, value, .. } = self;
        write!(f, "{header}: {value}")?;
        f.write_str(if self.trailer { " as a trailer" } else { "" })
    }
}

/// Returns the headers that state the SHA-256 of `bytes`, with their values.
fn digests(bytes: &[u8]) -> [(&'static str, String); 4] {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(bytes);
    let base64 = STANDARD.encode(digest);
    [
        ("x-cdi-checksum", format!("sha256:{}", hex::encode(digest))),
        ("Digest", format!("SHA-256={base64}")),
        ("Content-Digest", format!("sha-256=:{base64}:")),
        ("Repr-Digest", format!("unixsum=1, sha-256=:{base64}:")),
    ]
}

#[test]
fn a_checksum_is_verified_in_every_header_and_trailer() {
    let content = disk::content(1, 3 * MIB);
    let mut cases = Vec::new();
    for matches in [true, false] {
        let digested: &[u8] = if matches { &content } else { b"something else" };
        for (header, value) in digests(digested) {
            cases.extend([true, false].map(|trailer| Checksum {
                header,
                value: value.clone(),
                trailer,
                matches,
            }));
        }
    }
    check_all(cases, |case| {
        let pod = pod(&[]);
        let server = pod.start();
        let request = Request::post("/v1beta1/upload").chunked();
        let response = if case.trailer {
            let body = chunked(&content, 64 << 10, &[(case.header, &case.value)]);
            server.exchange(&request.header("Trailer", case.header), &body)
        } else {
            let body = chunked(&content, 64 << 10, &[]);
            server.exchange(&request.header(case.header, &case.value), &body)
        };
        if case.matches {
            response.assert_uploaded();
            server.wait().assert_success("upload");
            assert!(std::fs::read(pod.disk()).or_fail("the disk") == content);
        } else {
            assert_eq!(response.status, 400, "{response:?}");
            assert!(response.text().contains("checksum"), "{response:?}");
            assert_eq!(pod.data_names(), [""; 0]);
            assert_usable(&pod, server);
        }
    });
}

#[test]
fn a_malformed_checksum_is_refused_at_once() {
    let pod = pod(&[]);
    let server = pod.start();
    for (header, value) in [
        ("x-cdi-checksum", "sha256"),
        ("x-cdi-checksum", "sha256:0123"),
        ("x-cdi-checksum", "crc:00000000"),
        ("Digest", "sha-256=!"),
        ("Content-Digest", "sha-256=:AAAA:"),
    ] {
        let mut connection = server.connect();
        let request = Request::post("/v1beta1/upload").length(1 << 30).header(header, value);
        connection.begin(&request).unwrap();
        // The answer must come before any of the body is sent.
        let response = connection.response().unwrap();
        assert_eq!(response.status, 400, "{header}: {value}: {response:?}");
    }
    assert_usable(&pod, server);
}
