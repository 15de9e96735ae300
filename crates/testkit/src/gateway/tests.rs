//! Tests of a gateway in front of an origin, with handwritten requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::*;
use crate::origin::{Framing, Origin, Script};
use crate::wait;

const BODY: &[u8] = b"0123456789";

fn origin(framing: Framing) -> Origin {
    Origin::start(Script { framing, ..Script::new(BODY) }).unwrap()
}

fn gateway(origin: &Origin, faults: Vec<Fault>) -> Gateway {
    Gateway::start(origin.address(), Plan::of(faults)).unwrap()
}

/// Sends `requests`, closes the sending side and returns everything received until the gateway
/// closes the connection.
fn talk(gateway: &Gateway, requests: &str) -> String {
    let mut stream = TcpStream::connect(gateway.address()).unwrap();
    stream.write_all(requests.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(gateway: &Gateway) -> String {
    talk(gateway, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[test]
fn faults_come_in_order_and_then_everything_passes() {
    let origin = origin(Framing::Length);
    let refusal = vec![("retry-after", "7".to_owned())];
    let gateway = gateway(
        &origin,
        vec![
            Fault::Cut(4),
            Fault::Status(503, refusal),
            Fault::Corrupt(9),
            Fault::None,
            Fault::Short(3),
            Fault::Answer(403, Vec::new(), "no".to_owned()),
        ],
    );
    let cut = get(&gateway);
    assert!(cut.contains("Content-Length: 10\r\n") && cut.ends_with("\r\n\r\n0123"), "{cut}");
    let refused = get(&gateway);
    assert!(
        refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 7\r\n"),
        "{refused}"
    );
    assert!(get(&gateway).ends_with("\r\n\r\n0123456788"));
    assert!(get(&gateway).ends_with("\r\n\r\n0123456789"));
    let short = get(&gateway);
    assert!(short.contains("content-length: 3\r\n") && short.ends_with("\r\n\r\n012"), "{short}");
    assert!(get(&gateway).ends_with("content-length: 2\r\n\r\nno"));
    assert!(get(&gateway).ends_with("\r\n\r\n0123456789"));
    let seen: Vec<_> = gateway.requests().iter().map(|r| (r.status, r.body_bytes)).collect();
    assert_eq!(seen, [(200, 4), (503, 0), (200, 10), (200, 10), (200, 3), (403, 0), (200, 10)]);
    assert_eq!(gateway.body_bytes(), 37);
    assert_eq!(origin.requests().len(), 5, "a status does not come from the server");
}

#[test]
fn every_framing_passes_and_keeps_the_connection_where_it_can() {
    for framing in [Framing::Length, Framing::Chunked, Framing::UntilClose] {
        let origin = origin(framing);
        let answers = talk(
            &gateway(&origin, Vec::new()),
            "HEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nrange: bytes=2-3\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        );
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 3, "{answers}");
        assert!(answers.contains("\r\n\r\n23HTTP/1.1 200 OK\r\n"), "{answers}");
        let end = match framing {
            Framing::Chunked => "a\r\n0123456789\r\n0\r\n\r\n",
            _ => "\r\n\r\n0123456789",
        };
        assert!(answers.ends_with(end), "{answers}");
    }
}

#[test]
fn a_chunked_body_can_be_cut_and_shortened() {
    let origin = origin(Framing::Chunked);
    let gateway = gateway(&origin, vec![Fault::Cut(4), Fault::Short(4)]);
    assert!(get(&gateway).ends_with("4\r\n0123\r\n"));
    assert!(get(&gateway).ends_with("4\r\n0123\r\n0\r\n\r\n"));
}

#[test]
fn only_matching_requests_get_faults() {
    let origin = origin(Framing::Length);
    let plan = Plan {
        matching: |request| request.path() == "/b",
        ..Plan::of(vec![Fault::Status(500, Vec::new())])
    };
    let gateway = Gateway::start(origin.address(), plan).unwrap();
    for (path, status) in [("/a", 200), ("/b", 500), ("/b", 200)] {
        let answer = talk(&gateway, &format!("GET {path} HTTP/1.1\r\n\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[test]
fn bodies_of_requests_are_passed_on() {
    let origin = origin(Framing::Length);
    let gateway = gateway(&origin, Vec::new());
    let answers =
        talk(&gateway, "POST / HTTP/1.1\r\ncontent-length: 18\r\n\r\nPUT / HTTP/1.1\r\n\r\n");
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    // The origin does not read bodies: it parses this one as the next request.
    let complaint = || format!("two requests: {:?}", origin.requests().len());
    wait::until(complaint, || origin.requests().len() >= 2);
    let methods: Vec<_> = origin.requests().into_iter().map(|r| r.request.method).collect();
    assert_eq!(methods, ["POST", "PUT"]);
}

#[test]
fn bodies_do_not_exceed_the_rate_limit() {
    let origin = Origin::start(Script::new(vec![7; 300_000])).unwrap();
    let plan = Plan { bytes_per_second: Some(1_000_000), ..Plan::default() };
    let gateway = Gateway::start(origin.address(), plan).unwrap();
    let started = Instant::now();
    assert!(get(&gateway).len() > 300_000);
    // Real time: tokio cannot pause the clock for sockets.
    assert!(started.elapsed() >= Duration::from_millis(300));
}
