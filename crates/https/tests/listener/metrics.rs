//! The metrics endpoint over real TCP and TLS.
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use https::metrics as server;
use https::tls;
use program::metrics::{IMPORT_PROGRESS, MetricsRegistry};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

async fn connect(address: SocketAddr) -> TlsStream<TcpStream> {
    let connector = TlsConnector::from(Arc::new(tls::insecure_client_config().unwrap()));
    let tcp = TcpStream::connect(address).await.unwrap();
    connector.connect(ServerName::try_from("any.example").unwrap(), tcp).await.unwrap()
}

/// Returns the server's answer to `request`, and its certificate.
async fn exchange(address: SocketAddr, request: &str) -> (String, Vec<u8>) {
    let mut stream = connect(address).await;
    let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer, certificate)
}

/// Starts an endpoint and returns its address.
async fn endpoint() -> SocketAddr {
    let stop = CancellationToken::new();
    server::start_endpoint(&[LOOPBACK], MetricsRegistry::default(), stop).await.unwrap()
}

#[tokio::test]
async fn a_scrape_gets_the_progress_on_any_path() {
    let registry = MetricsRegistry::default();
    let progress = registry.add_progress(IMPORT_PROGRESS.0, IMPORT_PROGRESS.1, "uid-1");
    let stop = CancellationToken::new();
    let address = server::start_endpoint(&[LOOPBACK], registry, stop.clone()).await.unwrap();

    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    let (answer, _) = exchange(address, request).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(!answer.contains("kubevirt_cdi_import_progress_total"), "{answer}");

    progress.record_bytes(1, 2);
    for request in [request, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"] {
        let (answer, _) = exchange(address, request).await;
        let line = "\nkubevirt_cdi_import_progress_total{ownerUID=\"uid-1\"} 50.00\n";
        assert!(answer.contains(line), "{answer}");
    }

    stop.cancel();
    // The listener closes when its task notices the token.
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_certificate_names_cloner_target_for_one_year() {
    let address = endpoint().await;
    let (_, der) = exchange(address, "GET / HTTP/1.0\r\n\r\n").await;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
    assert_eq!(certificate.subject().to_string(), "CN=cloner_target");
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    assert_eq!(
        names.value.general_names,
        [x509_parser::prelude::GeneralName::DNSName("cloner_target")]
    );
    let validity = certificate.validity();
    assert!(validity.is_valid());
    let days = (validity.not_after.timestamp() - validity.not_before.timestamp()) / 86_400;
    assert!((365..=367).contains(&days), "{days} days");
}

#[tokio::test]
async fn a_silent_client_is_dropped_after_ten_seconds() {
    let address = endpoint().await;
    let mut before_handshake = TcpStream::connect(address).await.unwrap();
    let mut before_request = connect(address).await;
    before_request.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();

    // From here on, tokio's clock jumps to the next timer whenever nothing else happens.
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    assert_eq!(before_handshake.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(before_request.read(&mut [0]).await.unwrap_or(0), 0);
    let seconds = start.elapsed().as_secs_f64();
    assert!((9.0..=11.0).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn many_clients_are_served_at_once_and_one_beside_silent_and_odd_ones() {
    let address = endpoint().await;
    let request = "GET / HTTP/1.0\r\n\r\n";
    let clients: Vec<_> = (0..24).map(|_| tokio::spawn(exchange(address, request))).collect();
    for client in clients {
        assert!(client.await.unwrap().0.starts_with("HTTP/1.0 200 OK\r\n"));
    }
    let (mut silent, mut open) = (Vec::new(), Vec::new());
    for index in 0..200 {
        let mut plain = TcpStream::connect(address).await.unwrap();
        match index % 4 {
            // Some complete their handshakes, and then send nothing.
            0 => open.push(connect(address).await),
            // Some do not speak TLS, and leave.
            1 => plain.write_all(request.as_bytes()).await.unwrap(),
            _ => silent.push(plain),
        }
    }
    let (answer, _) = exchange(address, request).await;
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn a_busy_port_falls_back_to_the_next_address_or_to_none() {
    let busy = TcpListener::bind(LOOPBACK).await.unwrap();
    let taken = busy.local_addr().unwrap();
    let stop = CancellationToken::new();
    assert_eq!(
        server::start_endpoint(&[taken], MetricsRegistry::default(), stop.clone()).await,
        None
    );
    let address =
        server::start_endpoint(&[taken, LOOPBACK], MetricsRegistry::default(), stop).await.unwrap();
    assert_ne!(address, taken);
}
