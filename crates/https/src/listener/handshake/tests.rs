use std::sync::Arc;

use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::tls;

/// Returns a handshake record.
fn record(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[HANDSHAKE, 3, 1][..], &length, payload].concat()
}

/// Returns the first bytes that a rustls client sends.
fn client_hello() -> Vec<u8> {
    let config: ClientConfig = tls::insecure_client_config().unwrap();
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// Splits a ClientHello into records with this number of bytes each.
fn in_records(hello: &[u8], bytes: usize) -> Vec<u8> {
    hello[RECORD_HEADER..].chunks(bytes).flat_map(record).collect()
}

/// Returns the result of reading a ClientHello that begins with `sent`, or `None` if the reader
/// still waits for more.
async fn greeted(sent: &[u8]) -> Option<Result<HelloReader<DuplexStream>, String>> {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    client.write_all(sent).await.unwrap();
    let mut wire = HelloReader::new(server);
    let hello = poll_fn(|cx| wire.poll_hello(cx));
    let ended = tokio::time::timeout(std::time::Duration::from_millis(10), hello).await.ok()?;
    Some(ended.map(|()| wire).map_err(|error| error.to_string()))
}

#[tokio::test(start_paused = true)]
async fn a_hello_is_waited_for_until_it_is_complete() {
    let hello = client_hello();
    for bytes in [hello.len(), 700, 100] {
        let sent = in_records(&hello, bytes);
        for length in (0..sent.len()).step_by(37) {
            assert!(greeted(&sent[..length]).await.is_none(), "{length} of {} bytes", sent.len());
        }
        let mut wire = greeted(&sent).await.unwrap().unwrap();
        let mut given = vec![0; sent.len()];
        wire.read_exact(&mut given).await.unwrap();
        assert!(given == sent, "the bytes are returned unchanged");
        assert_eq!(wire.waiting.capacity(), 0);
    }
}

#[tokio::test]
async fn plain_http_is_recognised_by_its_first_bytes() {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    // Much shorter than the TLS record that these bytes would announce.
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut wire = HelloReader::new(server);
    let is_known = poll_fn(|cx| Poll::Ready(wire.poll_hello(cx).is_ready())).await;
    assert!(is_known && wire.begins_like_http());
}

#[tokio::test(start_paused = true)]
async fn other_messages_and_long_hellos_are_refused() {
    let hello = client_hello();
    let long = [&[CLIENT_HELLO, 0, 0xff, 0xff][..], &[0; 5000]].concat();
    let fit =
        [&[CLIENT_HELLO, 0, 0x0f, 0xf7][..], &[0; HELLO_BYTES - RECORD_HEADER - MESSAGE_HEADER]]
            .concat();
    assert!(greeted(&record(&fit)).await.unwrap().is_ok(), "as long as it may be");
    for (sent, sentence) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), "it is not a ClientHello"),
        (vec![21, 3, 1, 0, 2, 1, 0], "it is not a ClientHello"),
        (record(&[2, 0, 0, 0]), "it is not a ClientHello"),
        ([record(&[1]), vec![23]].concat(), "it is not a ClientHello"),
        (record(&long), "4096 bytes were received, the limit is 4096"),
        (in_records(&record(&long), 1), "it arrived in more than 32 pieces"),
        (record(&[]).repeat(33), "it arrived in more than 32 pieces"),
        (in_records(&hello, 5), "it arrived in more than 32 pieces"),
    ] {
        let refused = greeted(&sent).await.unwrap().map(drop);
        assert_eq!(refused, Err(sentence.to_owned()), "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_after_the_hello_are_returned_by_record_and_limited() {
    let mut wire = greeted(&in_records(&client_hello(), 2000)).await.unwrap().unwrap();
    let mut buffer = vec![0; 4096];
    assert!(wire.read(&mut buffer).await.unwrap() > 0);
    let (mut client, server) = tokio::io::duplex(1 << 16);
    wire.stream = server;
    client.write_all(&record(b"one")).await.unwrap();
    client.write_all(&record(b"two")[..6]).await.unwrap();
    assert_eq!(wire.read(&mut buffer).await.unwrap(), record(b"one").len());
    let part =
        tokio::time::timeout(std::time::Duration::from_millis(10), wire.read(&mut buffer)).await;
    assert!(part.is_err(), "a part of a record");
    assert_eq!(wire.waiting.len(), 6);
    client.write_all(&record(b"two")[6..]).await.unwrap();
    assert_eq!(wire.read(&mut buffer).await.unwrap(), record(b"two").len());
    // A certificate in many records that never ends.
    client.write_all(&record(&[0; 4000]).repeat(3)).await.unwrap();
    let error = loop {
        match wire.read(&mut buffer).await {
            Ok(length) => assert!(length > 0),
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(error, "12288 bytes were received, the limit is 12288");
    // After the handshake the records are not inspected any more.
    wire.is_over = true;
    wire.waiting.clear();
    client.write_all(b"whatever").await.unwrap();
    assert!(wire.read(&mut buffer).await.unwrap() > 0);
}

/// A client may send data at once, without waiting for an answer to the end of its handshake.
#[tokio::test]
async fn data_may_arrive_with_the_end_of_the_handshake() {
    let certificate = tls::SelfSigned::generate("a.example").unwrap();
    let (_, config) = watch::channel(Arc::new(certificate.server_config().unwrap()));
    let client = tokio_rustls::TlsConnector::from(Arc::new(tls::insecure_client_config().unwrap()));
    // The pipe has space for everything that the client sends, so that the client never blocks.
    let (near, far) = tokio::io::duplex(1 << 20);
    let data = vec![7; 100 << 10];
    let talking = async {
        let name = ServerName::try_from("a.example").unwrap();
        let mut stream = client.connect(name, near).await.unwrap();
        stream.write_all(&data).await.unwrap();
        stream.shutdown().await.unwrap();
        stream
    };
    let listening = async {
        let mut stream = accept_tls(far, &config).await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        received
    };
    let (_client, received) = tokio::join!(talking, listening);
    assert!(received == data);
}

proptest! {
    #[test]
    fn random_bytes_hold_little_memory(kind in prop_oneof![Just(HANDSHAKE), any::<u8>()], bytes in prop::collection::vec(any::<u8>(), 0..6000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let sent = [&[kind, 3, 1][..], &bytes].concat();
        if let Some(Ok(wire)) = runtime.block_on(greeted(&sent)) {
            prop_assert!(wire.waiting.capacity() <= HELLO_BYTES);
        }
    }
}
