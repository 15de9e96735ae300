//! Clients that connect and send nothing, or send slowly.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::fail::OrFail;
use testkit::https::Connection;
use testkit::upload_proxy::Scripted;
use testkit::upstream::{End, Script};
use testkit::wait;

use crate::{BINARY, PATH, time_upload};

/// How soon an upload must succeed, whatever other clients do.
const SOON: Duration = Duration::from_secs(1);

/// A connection whose handshake or header is not complete must stay open for so long. The proxy
/// ends it after ten seconds by its own clock.
const HEADER_TIME: Duration = Duration::from_secs(9);

/// How long a look takes at a connection that is open.
const LOOK: Duration = Duration::from_millis(50);

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
#[ignore = "slow: waits 11 s"]
fn an_incomplete_handshake_or_header_is_ended_but_a_slow_body_is_waited_for() {
    let front = front();
    let head = front.request("POST", PATH).length(5).bytes();
    let mut body = front.server.connect();
    body.begin(&front.request("POST", PATH).length(head.len())).or_fail("send");
    let started = Instant::now();
    let mut handshake = TcpStream::connect(front.server.address()).or_fail("connect");
    let mut connections = [(); 4].map(|()| front.server.connect());
    // One client sends nothing, one sends half, and two continue byte by byte.
    connections[1].send(&head[..head.len() / 2]).or_fail("send");
    let mut sent = 0;
    for byte in head.chunks(1) {
        body.send(b"x").or_fail("a byte");
        sent += 1;
        for slow in &mut connections[2..] {
            // A failure shows below.
            slow.send(byte).ok();
        }
        let is_closed = |client: &mut Connection| client.is_closed_within(LOOK).or_fail("a look");
        let closed = connections.iter_mut().map(is_closed).filter(|is_closed| *is_closed).count();
        assert!(closed == 0 || started.elapsed() > HEADER_TIME, "{:?}", started.elapsed());
        if closed == connections.len() {
            break;
        }
        assert!(started.elapsed() < wait::PATIENCE, "{closed} were closed");
    }
    handshake.set_read_timeout(Some(wait::PATIENCE)).or_fail("a time limit");
    let read = std::io::Read::read(&mut handshake, &mut [0; 100]);
    assert!(read.is_ok_and(|length| length < 100), "the handshake still waits");
    assert!(started.elapsed() > HEADER_TIME, "{:?}", started.elapsed());
    body.send(&vec![b'x'; head.len() - sent]).or_fail("the rest");
    body.response().or_fail("an answer").assert(200, "");
    let seen = front.upstream.only();
    assert_eq!((seen.body_bytes(), seen.end()), (head.len() as u64, Some(End::Complete)));
}
