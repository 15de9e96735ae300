//! Thousands of connections without a request.

use std::net::Ipv4Addr;
use std::time::Duration;

use testkit::fail::OrFail;
use testkit::hello;
use testkit::storm::{Crowd, Storm, allow_files, source};
use testkit::upload_proxy::Scripted;
use testkit::upstream::Script;
use testkit::wait;

use crate::{BINARY, memory, time_upload};

const CONNECTIONS: usize = 10_000;

/// Files that this process and the proxy may each open; a connection is one.
const FILES: u64 = 16_384;

/// Incomplete handshakes that a test begins: more than the thousand that may be in progress.
const HANDSHAKES: usize = 1500;

/// Limit on the growth of the proxy's memory by incomplete handshakes.
const GROWTH_BYTES: u64 = 16 << 20;

/// Limit on what a handshake holds until its ClientHello is complete. Measured: 2 KiB and the
/// received bytes.
const HANDSHAKE_BYTES: u64 = 8 << 10;

/// New connections per second, as observed from a single address.
const PER_SECOND: u32 = 6000;

#[test]
#[ignore = "alone: measures times or memory under load"]
fn ten_thousand_silent_connections_do_not_delay_an_upload() {
    allow_files(FILES);
    let front = Scripted::start(BINARY, vec![Script::status(200, "")]);
    time_upload(&front);
    let before = memory(front.server.id(), "VmRSS");
    let (mut crowd, mut took) = (Crowd::new(), Vec::new());
    for _ in 0..10 {
        crowd.join(|_| Ipv4Addr::LOCALHOST, front.server.address(), CONNECTIONS / 10, b"");
        took.push(time_upload(&front));
    }
    let grown = memory(front.server.id(), "VmHWM") - before;
    took.sort();
    println!(
        "beside up to {CONNECTIONS} connections uploads took {took:?}; {grown} bytes of memory"
    );
    // One upload may be unlucky: when the queue of new connections is full, its SYN is sent again
    // after a second (RFC 6298 §2.1).
    assert!(took[took.len() / 2] < Duration::from_secs(1), "{took:?}");
    assert!(took[took.len() - 1] < Duration::from_secs(5), "{took:?}");
    assert!(grown < GROWTH_BYTES, "{grown} bytes");
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn incomplete_handshakes_hold_little_memory_and_release_it() {
    allow_files(FILES);
    let front = Scripted::start(BINARY, vec![Script::status(200, "")]);
    time_upload(&front);
    let before = memory(front.server.id(), "VmRSS");
    for hello in hello::kinds(&front.proxy.front().client_config().or_fail("TLS")) {
        let mut crowd = Crowd::new();
        crowd.join(|_| source(0), front.server.address(), HANDSHAKES, &hello);
        time_upload(&front);
        let grown = memory(front.server.id(), "VmHWM").saturating_sub(before);
        println!("{HANDSHAKES} times {} bytes of a handshake: {grown} bytes", hello.len());
        assert!(grown < GROWTH_BYTES, "{grown} bytes for {} of a handshake", hello.len());
    }
    let stays = memory(front.server.id(), "VmRSS").saturating_sub(before);
    assert!(stays < GROWTH_BYTES, "{stays} bytes stay");
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn an_incomplete_handshake_holds_less_than_eight_kibibytes() {
    let front = Scripted::start(BINARY, vec![Script::status(200, "")]);
    let address = front.server.address();
    let [_, long, short, part, _] =
        hello::kinds(&front.proxy.front().client_config().or_fail("TLS"));
    for hello in [&long[..4000], &short[..180], &part] {
        let mut crowd = Crowd::new();
        // Memory that is allocated once, or for the first of them.
        crowd.join(|_| source(0), address, 100, hello);
        time_upload(&front);
        let before = memory(front.server.id(), "RssAnon");
        crowd.join(|_| source(0), address, 500, hello);
        time_upload(&front);
        let each = memory(front.server.id(), "RssAnon").saturating_sub(before) / 500;
        println!("{each} bytes for {} of a ClientHello", hello.len());
        assert!(each <= HANDSHAKE_BYTES, "{each} bytes for {} of a ClientHello", hello.len());
    }
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn incomplete_heads_hold_little_memory() {
    const CLIENTS: u64 = 300;
    // Without a token, because it comes at the end of a head.
    let front = Scripted::start(BINARY, vec![Script::status(200, "")]);
    time_upload(&front);
    let before = memory(front.server.id(), "VmRSS");
    let head = format!("POST /v1beta1/upload HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(120_000));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| front.server.connect()).collect();
    for client in &mut clients {
        // The proxy may close the connection before it has read everything.
        client.send_until_answered(head.as_bytes()).ok();
    }
    let each = memory(front.server.id(), "VmHWM").saturating_sub(before) / CLIENTS;
    println!("{each} bytes for a head");
    assert!(each < 64 << 10, "{each} bytes for a head");
    clients[0].response().or_fail("an answer").assert(431, "");
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn uploads_succeed_in_a_storm_of_connections() {
    allow_files(FILES);
    let front = Scripted::start(BINARY, vec![Script::status(200, "")]);
    // From another address, from the client's own address, and from many.
    for sources in [vec![source(0)], vec![Ipv4Addr::LOCALHOST], (0..250).map(source).collect()] {
        let storm = Storm::start(front.server.address(), sources, PER_SECOND);
        wait::until(|| "no storm", || storm.connections() >= u64::from(PER_SECOND) / 10);
        for _ in 0..4 {
            time_upload(&front);
        }
    }
}
