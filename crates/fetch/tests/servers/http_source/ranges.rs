//! Ranges that are read beside the body, and bodies that skip.

use std::time::Duration;

use stream::error::SourceErrorKind;
use testkit::origin::{Fault, Object, Ranges};

use super::*;

#[test]
fn ranges_are_used_only_if_they_work() {
    let body = noise(1000);
    for (ranges, is_ranged) in [
        (Ranges::Served, true),
        (Ranges::Silent, true),
        (Ranges::Refused, false),
        (Ranges::Claimed, false),
        (Ranges::Unknown, false),
    ] {
        let origin = start(Script { ranges, ..Script::new(body.clone()) });
        let source = open(config(&origin.url("/"))).unwrap();
        assert_eq!(source.is_ranged(), is_ranged, "{ranges:?}");
        assert!(origin.requests().len() <= 2, "ranges are checked at most once");
        assert_eq!(read_all(&mut *source.open_body().unwrap()).unwrap(), body);
    }
    for etag in [None, Some("W/\"weak\"")] {
        let mut script = Script::new(body.clone());
        script.object = Object::new(body.clone(), etag);
        assert!(
            !open(config(&start(script).url("/"))).is_ok_and(|source| source.is_ranged()),
            "{etag:?}"
        );
    }
}

#[test]
fn a_server_for_one_request_at_a_time_is_read_in_order() {
    let body = noise(1000);
    let origin =
        start(Script { faults: vec![Fault::None, Fault::Silence], ..Script::new(body.clone()) });
    let mut config = config(&origin.url("/"));
    network(&mut config).retry_policy.idle_limit = Duration::from_millis(100);
    let source = open(config).unwrap();
    assert!(!source.is_ranged());
    assert_eq!(read_all(&mut *source.open_body().unwrap()).unwrap(), body);
}

#[test]
fn ranges_are_read_while_the_body_is_open() {
    let body = noise(20_000_000);
    let origin = start(Script::new(body.clone()));
    let source = open(config(&origin.url("/"))).unwrap();
    let mut reader = source.open_body().unwrap();
    let first = reader.next_chunk().unwrap().unwrap();
    for range in [0..1, 0..104, 5_000_000..9_000_000, 19_999_999..20_000_000, 7..7, 0..20_000_000] {
        let bytes = source.read_range(range.start as u64..range.end as u64).unwrap();
        assert_eq!(bytes, body[range.clone()], "{range:?}");
    }
    assert_eq!([first.to_vec(), read_all(&mut *reader).unwrap()].concat(), body);
    let request = &origin.requests()[2].request;
    assert_eq!(
        (request.header("range"), request.header("if-range")),
        (Some("bytes=0-103"), Some("\"v1\""))
    );
}

#[test]
fn an_interrupted_range_is_resumed() {
    let body = noise(1_000_000);
    let origin = start(Script {
        faults: vec![Fault::None, Fault::CutAt(600_000), Fault::Status(503, None)],
        ..Script::new(body.clone())
    });
    let source = open(config(&origin.url("/"))).unwrap();
    assert_eq!(source.read_range(500_000..900_000).unwrap(), body[500_000..900_000]);
    let asked: Vec<_> = ranges_asked(&origin).into_iter().flatten().collect();
    assert_eq!(asked, ["bytes=500000-899999", "bytes=600000-899999", "bytes=600000-899999"]);
}

#[test]
fn ranges_outside_the_object_or_of_another_version_are_refused() {
    let body = noise(1000);
    let origin = start(Script {
        replaced: Some((1, Object::new(noise(1000), Some("\"v2\"")))),
        ..Script::new(body)
    });
    let source = open(config(&origin.url("/"))).unwrap();
    assert_eq!(source.read_range(0..1001).unwrap_err().kind(), SourceErrorKind::Invalid);
    assert_eq!(source.read_range(0..10).unwrap_err().kind(), SourceErrorKind::Changed);
}

#[test]
fn a_server_that_ignores_a_range_is_not_read_to_its_end() {
    let origin = start(Script { ranges: Ranges::Claimed, ..Script::new(noise(1000)) });
    let source = open(config(&origin.url("/"))).unwrap();
    assert_eq!(source.read_range(900..1000).unwrap_err().kind(), SourceErrorKind::NotResumable);
}

#[test]
fn a_small_gap_is_read_and_a_large_one_is_not() {
    let body = noise(60_000_000);
    let origin = start(Script::new(body.clone()));
    let source = open(config(&origin.url("/"))).unwrap();
    assert!(source.is_ranged());
    let mut reader = source.open_body().unwrap();
    reader.skip_to(1_000_001).unwrap();
    let chunk = reader.next_chunk().unwrap().unwrap();
    assert_eq!(chunk, body[1_000_001..][..chunk.len()]);
    let position = 1_000_001 + chunk.len() as u64;
    assert!(reader.skip_to(position - 1).is_err());
    reader.skip_to(59_000_000).unwrap();
    assert_eq!(read_all(&mut *reader).unwrap(), body[59_000_000..]);
    reader.skip_to(60_000_000).unwrap();
    assert!(reader.skip_to(60_000_001).is_err());
    let asked: Vec<_> = ranges_asked(&origin).into_iter().flatten().collect();
    assert_eq!(asked, ["bytes=0-0", "bytes=59000000-"]);
    // Before the gap, the bridge takes 4 MiB and the buffers of the sockets up to 10 MiB.
    assert!(origin.body_bytes() < 30_000_000, "{} bytes sent", origin.body_bytes());

    // If the gap comes first, the first response is left unread.
    let origin = start(Script::new(body.clone()));
    let mut reader = open(config(&origin.url("/"))).unwrap().open_body().unwrap();
    reader.skip_to(59_000_000).unwrap();
    assert_eq!(read_all(&mut *reader).unwrap(), body[59_000_000..]);
    assert!(origin.body_bytes() < 20_000_000, "{} bytes sent", origin.body_bytes());
}

#[test]
fn a_source_can_open_several_bodies() {
    let body = noise(100_000);
    let origin = start(Script::new(body.clone()));
    let source = open(config(&origin.url("/"))).unwrap();
    for _ in 0..2 {
        assert_eq!(read_all(&mut *source.open_body().unwrap()).unwrap(), body);
    }
}
