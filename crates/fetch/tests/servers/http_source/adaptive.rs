//! Bodies whose number of connections adapts.

use std::time::Instant;

use testkit::origin::{Fault, Object, Ranges};

use super::*;

/// Rate of each connection of a slow server in bytes per second.
const SLOW: u64 = 12 << 20;

/// Stands for any number of requests.
const ANY: usize = 0;

fn slow(body: &[u8]) -> Script {
    Script { rate: Some(SLOW), ..Script::new(body.to_vec()) }
}

/// Returns how many seconds a body takes, the number of requests, and the bytes that were sent.
fn timed(script: Script, body: &[u8]) -> (f64, usize, u64) {
    let origin = start(script);
    let began = Instant::now();
    let fetched = fetch_with(&origin, |config| network(config).connections = None).unwrap();
    let time = began.elapsed();
    assert!(fetched == body, "the bytes differ");
    (time.as_secs_f64(), origin.requests().len(), origin.body_bytes())
}

#[test]
#[ignore = "alone: the number of connections depends on their measured rates"]
fn a_short_or_fast_transfer_takes_one_request() {
    for (length, rate) in [(15 << 20, Some(SLOW)), (96 << 20, None)] {
        let body = noise(length);
        let (_, requests, _) = timed(Script { rate, ..Script::new(body.clone()) }, &body);
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
    for (script, expected) in [
        (Script { faults: refused(429), ..slow(&body) }, 2),
        (Script { faults: refused(503), ..slow(&body) }, 2),
        (Script { faults: refused(403), ..slow(&body) }, 2),
        (Script { ranges: Ranges::Claimed, ..slow(&body) }, 2),
        (Script { content_range: Some("bytes 0-9/37748736".into()), ..slow(&body) }, 2),
        (Script { replaced: Some((1, changed)), ..slow(&body) }, 2),
        // What has arrived is kept, so the first connection cannot simply continue.
        (Script { shared_rate: true, ..slow(&body) }, ANY),
        (Script { faults: vec![Fault::None, Fault::Refuse], ..slow(&body) }, ANY),
        (Script { faults: vec![Fault::None, Fault::Silence, Fault::Silence], ..slow(&body) }, ANY),
    ] {
        let (seconds, requests, _) = timed(script, &body);
        assert!(requests == expected || expected == ANY, "{requests}");
        // One connection needs 3 s.
        assert!(seconds < 6.0, "{seconds} s");
    }
}

#[test]
#[ignore = "alone: the number of connections depends on their measured rates"]
fn others_that_break_or_ignore_a_later_range_are_resumed() {
    let body = noise(200 << 20);
    let cut = |at: u64| Fault::CutAt(at << 20);
    // Ten connections break, each after it has brought some of its bytes.
    let faults = [vec![Fault::None], [11, 12, 15, 18, 21, 25, 30, 40, 50, 60].map(cut).to_vec()];
    let (seconds, requests, sent) = timed(Script { faults: faults.concat(), ..slow(&body) }, &body);
    assert!(seconds < 7.5, "{seconds} s, {requests} requests");
    assert!(sent * 100 < body.len() as u64 * 101, "{sent} bytes were sent, {requests} requests");
    // Each third request gets the whole object, after the validator was confirmed.
    let script = Script { ignored_ranges: Some(3), ..slow(&body[..96 << 20]) };
    let (seconds, requests, _) = timed(script, &body[..96 << 20]);
    assert!(seconds < 9.0, "{seconds} s, {requests} requests");
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
