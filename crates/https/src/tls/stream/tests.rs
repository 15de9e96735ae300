use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::tls::{self, SelfSigned};

const NAME: &str = "a.example";

fn name() -> ServerName<'static> {
    ServerName::try_from(NAME).unwrap()
}

/// Returns configurations that both support the given version, and the given suite if it fits the
/// certificate.
fn configs(is_new: bool, suite: usize) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let server = SelfSigned::generate(NAME).unwrap().server_config().unwrap();
    let mut client = tls::insecure_client_config().unwrap();
    let mut provider = (*program::crypto::crypto_provider()).clone();
    provider
        .cipher_suites
        .retain(|suite| matches!(suite, rustls::SupportedCipherSuite::Tls13(_)) == is_new);
    let chosen = provider.cipher_suites[suite % provider.cipher_suites.len()];
    provider.cipher_suites = vec![chosen];
    let version = if is_new { &version::TLS13 } else { &version::TLS12 };
    let verifier = Arc::new(tls::verify::ServerVerifier {
        trust: tls::verify::ServerTrust::Everyone,
        provider: Arc::new(provider.clone()),
    });
    let built =
        ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(&[version]);
    // A suite that does not fit the signature algorithm of the certificate keeps the default
    // configuration.
    if chosen.usable_for_signature_algorithm(rustls::SignatureAlgorithm::ECDSA) {
        client = built
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
    }
    (Arc::new(client), Arc::new(server))
}

/// Returns both ends of a connection through a pipe of `room` bytes.
async fn connected(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    room: usize,
) -> (Stream<DuplexStream>, Stream<DuplexStream>) {
    let (near, far) = duplex(room);
    let (client, server) = tokio::join!(
        Stream::connect(near, Arc::clone(client), name()),
        Stream::accept(far, Arc::clone(server))
    );
    (client.unwrap(), server.unwrap())
}

/// Sends a key update to the other side.
fn update(stream: &mut Stream<DuplexStream>) {
    let updated = match &mut stream.tls {
        TlsStream::Client(tls) => tls.get_mut().1.refresh_traffic_keys(),
        TlsStream::Server(tls) => tls.get_mut().1.refresh_traffic_keys(),
    };
    updated.unwrap();
}

/// Writes `bytes` in parts of these sizes, closes the write side, and reads everything from the
/// other side in parts.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    bytes: &[u8],
    parts: &[usize],
) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let writing = async {
        let mut rest = bytes;
        for part in parts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, _) = rest.split_at((*part).min(rest.len()));
            let (first, second) = now.split_at(now.len() / 3);
            let slices = [first, &[], second].map(IoSlice::new);
            let written = writer.write_vectored(&slices).await.unwrap();
            if part % 3 == 0 {
                writer.flush().await.unwrap();
            }
            rest = &rest[written..];
        }
        writer.shutdown().await.unwrap();
    };
    let reading = async {
        let mut received = Vec::new();
        let mut buffer = vec![0; 200_000];
        for part in parts.iter().cycle() {
            let part = (*part).clamp(1, buffer.len());
            match reader.read(&mut buffer[..part]).await.unwrap() {
                0 => break,
                length => received.extend_from_slice(&buffer[..length]),
            }
        }
        received
    };
    tokio::join!(writing, reading).1
}

fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), future).await.expect("it hangs")
    })
}

fn noise(seed: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| {
            u8::try_from((at.wrapping_mul(31) ^ seed.wrapping_mul(7) ^ (at >> 8)) % 256).unwrap()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    #[ignore = "slow: waits 4 s"]
    fn written_bytes_are_read_whatever_their_sizes_and_the_peer(
        (is_new, suite) in (any::<bool>(), 0usize..8),
        lengths in (0usize..400_000, 0usize..400_000),
        parts in prop::collection::vec(prop_oneof![1usize..300, 1000usize..150_000], 1..6),
        room in prop_oneof![64usize..2000, Just(1 << 20)],
        who in 0u8..3,
    ) {
        let (client, server) = configs(is_new, suite);
        let (first, second) = (noise(1, lengths.0), noise(2, lengths.1));
        let (near, far) = duplex(room);
        let at_server = async {
            if who == 1 {
                let acceptor = tokio_rustls::TlsAcceptor::from(server);
                talk(acceptor.accept(far).await.unwrap(), &second, &parts).await
            } else {
                talk(Stream::accept(far, Arc::clone(&server)).await.unwrap(), &second, &parts).await
            }
        };
        let at_client = async {
            if who == 2 {
                let connector = tokio_rustls::TlsConnector::from(client);
                talk(connector.connect(name(), near).await.unwrap(), &first, &parts).await
            } else {
                talk(Stream::connect(near, Arc::clone(&client), name()).await.unwrap(), &first, &parts).await
            }
        };
        let (received_by_client, received_by_server) = run(async { tokio::join!(at_client, at_server) });
        prop_assert!(received_by_client == second && received_by_server == first);
    }

    #[test]
    fn changed_or_truncated_bytes_are_never_returned_as_data(at in 0usize..60_000, bit in 0u8..9, is_new in any::<bool>()) {
        let (client, server) = configs(is_new, 0);
        let sent = noise(3, 50_000);
        let (received, ended) = run(async {
            let (near, far) = duplex(1 << 20);
            let (mut taps, to_server) = duplex(1 << 20);
            let (client, server) = tokio::join!(
                Stream::connect(near, Arc::clone(&client), name()),
                // The handshake passes through unchanged.
                async {
                    let mut far = far;
                    let accepting = Stream::accept(to_server, Arc::clone(&server));
                    tokio::pin!(accepting);
                    let mut bytes = vec![0; 1 << 16];
                    let mut back = vec![0; 1 << 16];
                    let server = loop {
                        tokio::select! {
                            biased;
                            stream = &mut accepting => break stream.unwrap(),
                            length = far.read(&mut bytes) => taps.write_all(&bytes[..length.unwrap()]).await.unwrap(),
                            length = taps.read(&mut back) => far.write_all(&back[..length.unwrap()]).await.unwrap(),
                        }
                    };
                    // The last messages of the server's handshake.
                    while let Ok(length) = tokio::time::timeout(Duration::from_millis(1), taps.read(&mut back)).await {
                        far.write_all(&back[..length.unwrap()]).await.unwrap();
                    }
                    (server, far, taps)
                }
            );
            let (mut client, (mut server, mut far, mut taps)) = (client.unwrap(), server);
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
            drop(client);
            let mut wire = Vec::new();
            far.read_to_end(&mut wire).await.unwrap();
            let at = at % wire.len();
            if bit == 8 {
                wire.truncate(at);
            } else {
                wire[at] ^= 1 << bit;
            }
            taps.write_all(&wire).await.unwrap();
            taps.shutdown().await.unwrap();
            let mut received = Vec::new();
            let ended = server.read_to_end(&mut received).await;
            // An error must be returned again by later reads.
            assert!(ended.is_ok() || server.read(&mut [0; 10]).await.is_err());
            (received, ended)
        });
        prop_assert!(sent.starts_with(&received));
        prop_assert!(ended.is_err(), "{} bytes, and an end", received.len());
    }
}

/// Copies bytes in both directions until one side ends, after `change` had the chance to modify
/// them.
async fn pass(
    mut left: DuplexStream,
    mut right: DuplexStream,
    mut change: impl FnMut(bool, &mut Vec<u8>),
) {
    let (mut there, mut back) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let (is_there, length) = tokio::select! {
            length = left.read(&mut there) => (true, length),
            length = right.read(&mut back) => (false, length),
        };
        let (from, to) = if is_there { (&there, &mut right) } else { (&back, &mut left) };
        let mut bytes = from[..length.unwrap_or_default()].to_vec();
        if bytes.is_empty() {
            return;
        }
        change(is_there, &mut bytes);
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_handshake_with_any_bytes_changed_ends_without_a_panic(
        (is_new, is_there) in (any::<bool>(), any::<bool>()),
        at in 0usize..1500,
        change in prop_oneof![
            (0u8..8).prop_map(|bit| vec![1 << bit]),
            prop::collection::vec(any::<u8>(), 1..80),
        ],
    ) {
        let (client, server) = configs(is_new, 0);
        run(async {
            let (near, from_client) = duplex(1 << 16);
            let (to_server, far) = duplex(1 << 16);
            let mut seen = 0;
            let middle = pass(from_client, to_server, |there, bytes| {
                if there == is_there {
                    for (offset, change) in change.iter().enumerate() {
                        if let Some(byte) = (at + offset).checked_sub(seen).and_then(|at| bytes.get_mut(at)) {
                            *byte ^= change;
                        }
                    }
                    seen += bytes.len();
                }
            });
            let shaking = async {
                let client = async { Stream::connect(near, Arc::clone(&client), name()).await.err().map(|error| error.to_string()) };
                let server = async { Stream::accept(far, Arc::clone(&server)).await.err().map(|error| error.to_string()) };
                // A length that was increased makes a side wait for bytes that never arrive.
                tokio::time::timeout(Duration::from_millis(20), async { tokio::join!(client, server) }).await
            };
            tokio::select! {
                _ = shaking => {}
                () = middle => {}
            }
        });
    }
}

#[test]
fn a_peer_that_does_not_speak_tls_gets_an_alert() {
    let (client, server) = configs(true, 0);
    let garbage = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    for is_server in [false, true] {
        run(async {
            let (near, mut far) = duplex(1 << 16);
            far.write_all(garbage).await.unwrap();
            let ended = if is_server {
                Stream::accept(near, Arc::clone(&server)).await.err()
            } else {
                Stream::connect(near, Arc::clone(&client), name()).await.err()
            };
            let error = ended.unwrap().to_string();
            assert!(error.contains("InvalidContentType"), "{error}");
            let mut received = Vec::new();
            far.read_to_end(&mut received).await.unwrap();
            // A fatal alert in a record of its own, unencrypted (RFC 8446 §6).
            assert!(matches!(received.as_slice(), [.., 21, 3, _, 0, 2, 2, _]), "{received:?}");
        });
    }
}

#[test]
fn new_keys_are_used_after_a_key_update() {
    for is_mine in [true, false] {
        let (client, server) = configs(true, 0);
        let data = noise(4, 1 << 20);
        run(async {
            let (mut client, mut server) = connected(&client, &server, 1 << 22).await;
            let mut buffer = vec![0; data.len()];
            for _ in 0..3 {
                update(if is_mine { &mut client } else { &mut server });
                client.write_all(&data).await.unwrap();
                client.flush().await.unwrap();
                server.read_exact(&mut buffer).await.unwrap();
                assert!(buffer == data);
                server.write_all(&data).await.unwrap();
                server.flush().await.unwrap();
                client.read_exact(&mut buffer).await.unwrap();
                assert!(buffer == data);
            }
        });
    }
}

#[test]
fn a_peer_that_requests_endless_key_updates_is_disconnected() {
    let (client, server) = configs(true, 0);
    run(async {
        let (mut client, mut server) = connected(&client, &server, 1 << 20).await;
        for _ in 0..40 {
            update(&mut client);
        }
        client.flush().await.unwrap();
        let error = server.read(&mut [0; 10]).await.unwrap_err().to_string();
        assert!(error.contains("TooManyKeyUpdateRequests"), "{error}");
        // rustls sends no alert for this error, so the peer sees the connection close.
        drop(server);
        assert!(client.read(&mut [0; 10]).await.is_err());
    });
}

#[test]
fn only_an_announced_end_is_an_end_and_leaves_the_other_direction_open() {
    let (client, server) = configs(true, 0);
    run(async {
        let (mut client, mut server) = connected(&client, &server, 1 << 20).await;
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut question = Vec::new();
        server.read_to_end(&mut question).await.unwrap();
        assert_eq!(question, b"question");
        assert_eq!(server.read(&mut [0; 10]).await.unwrap(), 0, "the end is permanent");
        assert!(client.write_all(b"more").await.is_err());
    });
    run(async {
        let (mut client, mut server) = connected(&client, &server, 1 << 20).await;
        client.write_all(b"question").await.unwrap();
        client.flush().await.unwrap();
        drop(client);
        let mut question = Vec::new();
        let error = server.read_to_end(&mut question).await.unwrap_err();
        assert_eq!((error.kind(), &question[..]), (io::ErrorKind::UnexpectedEof, &b"question"[..]));
    });
}

#[test]
fn waiting_data_is_limited_and_an_idle_stream_holds_no_buffer() {
    let (client, server) = configs(true, 0);
    run(async {
        let (mut client, mut server) = connected(&client, &server, 100_000).await;
        let mut written = 0;
        let writing = async {
            loop {
                written += client.write(&[7; 1000]).await.unwrap();
            }
        };
        let writing = tokio::time::timeout(Duration::from_millis(200), writing).await;
        assert!(writing.is_err(), "the peer does not read");
        assert!(written < 100_000 + MAX_WRITE_BYTES + (40 << 10), "{written}");
        let mut buffer = vec![0; 1000];
        server.read_exact(&mut buffer).await.unwrap();
        drop(client);
        while server.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
        assert!(!server.tls.get_ref().0.has_memory());
    });
}
