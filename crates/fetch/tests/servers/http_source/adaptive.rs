//! Bodies whose number of connections adapts.

use std::time::Instant;

use testkit::origin::{Fault, Object, Ranges};

use super::*;

/// Rate of each connection of a slow server in bytes per second.
const SLOW: u64 = 12 << 20;

fn slow(body: &[u8]) -> Script {
    Script { rate: Some(SLOW), ..Script::new(body.to_vec()) }
}

/// Returns how many seconds a body takes, and the number of requests.
fn timed(script: Script, body: &[u8]) -> (f64, usize) {
    let origin = start(script);
    let began = Instant::now();
    let fetched = fetch_with(&origin, |config| network(config).connections = None).unwrap();
    let time = began.elapsed();
    assert!(fetched == body, "the bytes differ");
    (time.as_secs_f64(), origin.requests().len())
}

#[test]
#[ignore = "alone: the number of connections depends on their measured rates"]
fn a_short_or_fast_transfer_takes_one_request() {
    for (length, rate) in [(15 << 20, Some(SLOW)), (96 << 20, None)] {
        let body = noise(length);
        let (_, requests) = timed(Script { rate, ..Script::new(body.clone()) }, &body);
        assert_eq!(requests, 1, "{length}");
    }
}

#[test]
#[ignore = "alone: the number of connections depends on their measured rates"]
fn others_that_are_refused_or_do_not_give_the_range_are_not_used() {
    let body = noise(36 << 20);
    let refused = |status| {
        let refusal = Fault::Status(status, Some("1".into()));
        [vec![Fault::None], vec![refusal; 50]].concat()
    };
    let changed = Object::new(noise((36 << 20) - 1), Some("\"v2\""));
    for (script, is_given_a_chance) in [
        (Script { faults: refused(429), ..slow(&body) }, false),
        (Script { faults: refused(503), ..slow(&body) }, false),
        (Script { faults: refused(403), ..slow(&body) }, false),
        (Script { ranges: Ranges::Claimed, ..slow(&body) }, false),
        (Script { content_range: Some("bytes 0-9/37748736".into()), ..slow(&body) }, false),
        (Script { replaced: Some((1, changed)), ..slow(&body) }, false),
        (Script { shared_rate: true, ..slow(&body) }, false),
        (Script { faults: vec![Fault::None, Fault::Refuse], ..slow(&body) }, true),
        (Script { faults: vec![Fault::None, Fault::Silence, Fault::Silence], ..slow(&body) }, true),
    ] {
        let (seconds, requests) = timed(script, &body);
        assert!(requests == 2 || is_given_a_chance, "{requests}");
        // One connection needs 3 s.
        assert!(seconds < 6.0, "{seconds} s");
    }
}

#[test]
#[ignore = "alone: the number of connections depends on their measured rates"]
fn others_that_break_or_ignore_a_later_range_are_resumed() {
    let body = noise(96 << 20);
    let cut = |at: u64| Fault::CutAt(at << 20);
    let faults = vec![Fault::None, cut(11), cut(12), cut(15), Fault::ResetAt(18 << 20), cut(21)];
    // Each third request gets the whole object, after the validator was confirmed.
    for (script, most) in [
        (Script { faults, ..slow(&body) }, 7.5),
        (Script { ignored_ranges: Some(3), ..slow(&body) }, 9.0),
    ] {
        let (seconds, requests) = timed(script, &body);
        assert!(seconds < most, "{seconds} s, {requests} requests");
    }
}

#[test]
#[ignore = "alone: the number of connections depends on their measured rates"]
fn a_skip_keeps_the_connections_and_reads_no_gap() {
    let body = noise(160 << 20);
    let origin = start(slow(&body));
    let mut config = config(&origin.url("/disk.img"));
    network(&mut config).connections = None;
    let source = open(config).unwrap();
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
    let seconds = began.elapsed().as_secs_f64();
    // One connection needs 5.3 s.
    assert!(seconds < 4.0, "{seconds} s");
    assert!(origin.body_bytes() < 152 << 20, "{}", origin.body_bytes());
}
