//! Unfinished TLS handshakes.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::fail::OrFail;

/// Wraps `payload` in a handshake record (RFC 8446 §5.1).
fn record(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).or_fail("a short payload").to_be_bytes();
    [&[22, 3, 1][..], &length, payload].concat()
}

/// The start of a ClientHello that claims to be 65,024 bytes long, with this number of them.
fn part_of_long(bytes: usize) -> Vec<u8> {
    [&[1, 0, 0xfe, 0][..], &vec![0; bytes]].concat()
}

/// The complete ClientHello of a client with this configuration.
pub fn whole(config: &Arc<ClientConfig>) -> Vec<u8> {
    let name = ServerName::try_from("localhost").or_fail("a name");
    let mut client = ClientConnection::new(Arc::clone(config), name).or_fail("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).or_fail("a hello");
    hello
}

/// Returns five unfinished handshakes: nothing, most of a long ClientHello in a few records, a
/// shorter part of it in many records, a real ClientHello without its last byte, and a complete
/// one that nothing follows.
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
