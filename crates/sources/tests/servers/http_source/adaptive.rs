//! Bodies whose number of connections adapts.

use std::time::{Duration, Instant};

use testkit::origin::{Fault, Object};

use super::*;

/// Rate of each connection of a slow server in bytes per second.
const SLOW: u64 = 12 << 20;

fn slow(body: &[u8]) -> Script {
    Script { rate: Some(SLOW), ..Script::new(body.to_vec()) }
}

/// Returns how many seconds a body takes, and the number of requests.
fn timed(script: Script, body: &[u8]) -> (f64, usize) {
    let origin = start(script);
    // The server limits the rate in real time.
    let began = Instant::now();
    let fetched = fetch(&origin).unwrap();
    let time = began.elapsed();
    assert!(fetched == body, "the bytes differ");
    (time.as_secs_f64(), origin.requests().len())
}

#[test]
fn connections_are_added_while_they_make_the_transfer_faster() {
    let body = noise(96 << 20);
    let (seconds, requests) = timed(slow(&body), &body);
    // One connection takes 8 s.
    assert!(seconds < 3.0, "{seconds} s, {requests} requests");
}

#[test]
fn a_short_or_fast_transfer_takes_one_request() {
    for (length, rate) in [(15 << 20, Some(SLOW)), (96 << 20, None)] {
        let body = noise(length);
        let (_, requests) = timed(Script { rate, ..Script::new(body.clone()) }, &body);
        assert_eq!(requests, 1, "{length}");
    }
}

#[test]
#[ignore = "slow: waits 9 s"]
fn a_server_that_refuses_others_costs_one_request_for_a_while() {
    let body = noise(36 << 20);
    for status in [429, 503, 403] {
        let refusal = Fault::Status(status, Some("1".into()));
        let faults = [vec![Fault::None], vec![refusal; 50]].concat();
        let (seconds, requests) = timed(Script { faults, ..slow(&body) }, &body);
        assert_eq!(requests, 2, "{status}");
        assert!(seconds < 4.0, "{status}: {seconds} s");
    }
}

#[test]
#[ignore = "slow: waits 15 s"]
fn others_that_do_not_give_the_range_are_not_used() {
    let body = noise(36 << 20);
    let changed = Object::new(noise((36 << 20) - 1), Some("\"v2\""));
    for script in [
        Script { ranges: testkit::origin::Ranges::Claimed, ..slow(&body) },
        Script { content_range: Some("bytes 0-9/37748736".into()), ..slow(&body) },
        Script { replaced: Some((1, changed)), ..slow(&body) },
        Script { faults: vec![Fault::None, Fault::Refuse], ..slow(&body) },
        Script { faults: vec![Fault::None, Fault::Silence, Fault::Silence], ..slow(&body) },
    ] {
        let is_given_a_chance = script.faults.len() > 1;
        let (seconds, requests) = timed(script, &body);
        assert!(requests == 2 || is_given_a_chance, "{requests}");
        assert!(seconds < 4.0, "{seconds} s");
    }
}

#[test]
fn others_that_break_are_resumed() {
    let body = noise(96 << 20);
    let cut = |at: u64| Fault::CutAt(at << 20);
    let faults = vec![Fault::None, cut(11), cut(12), cut(15), Fault::ResetAt(18 << 20), cut(21)];
    let (seconds, requests) = timed(Script { faults, ..slow(&body) }, &body);
    assert!(seconds < 6.0, "{seconds} s, {requests} requests");
}

#[test]
#[ignore = "slow: waits 9 s"]
fn a_range_that_is_ignored_later_is_requested_again() {
    let body = noise(96 << 20);
    // Each third request gets the whole object, after the validator was confirmed.
    let origin = start(Script { ignored_ranges: Some(3), ..slow(&body) });
    let began = Instant::now();
    assert!(fetch(&origin).unwrap() == body);
    let seconds = began.elapsed().as_secs_f64();
    assert!(seconds < 9.0, "{seconds} s");
}

#[test]
#[ignore = "slow: waits 5 s"]
fn a_server_with_one_rate_for_all_keeps_one_connection() {
    let body = noise(48 << 20);
    let (seconds, requests) = timed(Script { shared_rate: true, ..slow(&body) }, &body);
    assert_eq!(requests, 2);
    assert!(seconds < 4.8, "{seconds} s");
}

#[test]
fn a_skip_keeps_the_connections_and_reads_no_gap() {
    let body = noise(160 << 20);
    let origin = start(slow(&body));
    let source = open(config(&origin.url("/disk.img"))).unwrap();
    let mut read = source.open_body().unwrap();
    let mut position = 0;
    while position < 64 << 20 {
        let chunk = read.next_chunk().unwrap().unwrap();
        assert!(body[position..].starts_with(&chunk));
        position += chunk.len();
    }
    let began = Instant::now();
    read.skip_to(96 << 20).unwrap();
    assert!(read_all(&mut *read).unwrap() == body[96 << 20..]);
    let seconds = began.elapsed();
    assert!(seconds < Duration::from_secs(2), "{seconds:?}");
    assert!(origin.body_bytes() < 152 << 20, "{}", origin.body_bytes());
}
