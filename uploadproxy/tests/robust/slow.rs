//! Clients that connect and send nothing, or send slowly.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::fail::OrFail;
use testkit::https::Connection;
use testkit::upload_proxy::Scripted;
use testkit::upstream::{End, Script};

use crate::{BINARY, PATH, time_upload};

/// How soon an upload must succeed, whatever other clients do.
const SOON: Duration = Duration::from_secs(1);

/// When a connection must end whose handshake or header is not complete.
const HEADER_TIME: std::ops::Range<Duration> = Duration::from_secs(8)..Duration::from_secs(14);

/// PVCs of the uploads that hang; one PVC may have 32 at a time.
const PVCS: usize = 11;

fn front() -> Scripted {
    Scripted::start_for(BINARY, PVCS, vec![Script::status(200, "")])
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn silent_clients_do_not_delay_an_upload() {
    let front = front();
    let address = front.server.address();
    let handshakes: Vec<_> =
        (0..200).map(|_| TcpStream::connect(address).or_fail("connect")).collect();
    let head = front.request("POST", PATH).length(1000).bytes();
    let heads: Vec<_> = (0..200)
        .map(|index| {
            let mut connection = front.server.connect();
            connection.send(&head[..index % head.len()]).or_fail("send");
            connection
        })
        .collect();
    let bodies: Vec<_> = (0..200)
        .map(|index| {
            let pvc = &front.pvcs[1 + index % (PVCS - 1)];
            let head = front.request_for(pvc, "POST", PATH).length(1000).bytes();
            let mut connection = front.server.connect();
            connection.send(&head).or_fail("send");
            connection
        })
        .collect();
    let took = time_upload(&front);
    assert!(took < SOON, "{took:?}");
    drop((handshakes, heads, bodies));
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn an_incomplete_handshake_or_header_is_ended() {
    let front = front();
    let started = Instant::now();
    let mut handshake = TcpStream::connect(front.server.address()).or_fail("connect");
    let head = front.request("POST", PATH).length(5).bytes();
    let mut connections: Vec<Connection> = (0..4).map(|_| front.server.connect()).collect();
    // One client sends nothing, one sends half, and two continue byte by byte.
    connections[1].send(&head[..head.len() / 2]).or_fail("send");
    let mut ends: Vec<Option<Duration>> = vec![None; connections.len()];
    for byte in head.chunks(1).take(60) {
        for slow in &mut connections[2..] {
            // A failure shows below.
            slow.send(byte).ok();
        }
        for (connection, end) in connections.iter_mut().zip(&mut ends) {
            if end.is_none()
                && connection.is_closed_within(Duration::from_millis(50)).or_fail("a look")
            {
                *end = Some(started.elapsed());
            }
        }
        if ends.iter().all(Option::is_some) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    for end in &ends {
        let end = end.or_fail(format!("ends: {ends:?}"));
        assert!(HEADER_TIME.contains(&end), "ends: {ends:?}");
    }
    handshake.set_read_timeout(Some(Duration::from_secs(10))).or_fail("a time limit");
    let read = std::io::Read::read(&mut handshake, &mut [0; 100]);
    assert!(read.is_ok_and(|length| length < 100), "the handshake still waits");
    assert!(started.elapsed() < HEADER_TIME.end, "{:?}", started.elapsed());
    assert_eq!(front.upstream.seen().len(), 0);
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn a_body_may_take_any_time() {
    let front = front();
    let mut connection = front.server.connect();
    connection.begin(&front.request("POST", PATH).length(16)).or_fail("send");
    for _ in 0..16 {
        connection.send(b"x").or_fail("send");
        // Altogether longer than the proxy waits for a header.
        std::thread::sleep(Duration::from_millis(900));
    }
    connection.response().or_fail("an answer").assert(200, "");
    let seen = front.upstream.only();
    assert_eq!((seen.body_bytes(), seen.end()), (16, Some(End::Complete)));
}
