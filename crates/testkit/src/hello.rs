//! Beginnings of TLS handshakes that have no end.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::fail::OrFail;

/// A handshake record (RFC 8446 §5.1).
fn record(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).or_fail("a short payload").to_be_bytes();
    [&[22, 3, 1][..], &length, payload].concat()
}

/// A ClientHello that says that it is 65,024 bytes long, as far as this number of them.
fn part_of_long(bytes: usize) -> Vec<u8> {
    [&[1, 0, 0xfe, 0][..], &vec![0; bytes]].concat()
}

/// The first bytes of a client of `config`.
pub fn whole(config: &Arc<ClientConfig>) -> Vec<u8> {
    let name = ServerName::try_from("localhost").or_fail("a name");
    let mut client = ClientConnection::new(Arc::clone(config), name).or_fail("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).or_fail("a hello");
    hello
}

/// Nothing, most of a long ClientHello in few records, a shorter part of it in many, most of a real one, and a real one with nothing
/// behind it.
pub fn kinds(config: &Arc<ClientConfig>) -> [Vec<u8>; 5] {
    let whole = whole(config);
    [
        Vec::new(),
        part_of_long(61_000).chunks(16_000).flat_map(record).collect(),
        part_of_long(670).chunks(1).flat_map(record).collect(),
        whole[..whole.len() - 1].to_vec(),
        whole,
    ]
}
