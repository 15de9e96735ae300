//! Bodies that are read over several connections at once.

use testkit::origin::{Fault, Ranges};

use super::*;

/// Several rounds of segments, of 4 MiB each for four connections.
const LENGTH: usize = 37_000_001;

fn connections(count: usize) -> impl Fn(&mut HttpConfig) {
    move |config| network(config).connections = NonZeroUsize::new(count)
}

#[test]
fn the_body_is_the_same_with_any_number_of_connections() {
    let body = noise(LENGTH);
    for count in [1, 2, 3, 8] {
        let origin = start(Script::new(body.clone()));
        assert!(fetch_with(&origin, connections(count)).unwrap() == body, "{count}");
        let asked = ranges_asked(&origin).len();
        assert!(if count == 1 { asked == 1 } else { asked > 9 }, "{count}: {asked}");
    }
}

#[test]
fn broken_connections_are_resumed_independently() {
    let body = noise(LENGTH);
    let faults = vec![
        // The first GET, and the request that checks whether ranges work.
        Fault::None,
        Fault::None,
        Fault::CutAt(5_000_000),
        Fault::Refuse,
        Fault::ResetAt(9_000_000),
        Fault::Status(503, Some("0".into())),
    ];
    let origin = start(Script { faults, ..Script::new(body.clone()) });
    assert!(fetch_with(&origin, connections(4)).unwrap() == body);
}

#[test]
fn without_ranges_a_single_connection_is_used() {
    let body = noise(5_000_000);
    for ranges in [Ranges::Refused, Ranges::Claimed, Ranges::Unknown] {
        let origin = start(Script { ranges, ..Script::new(body.clone()) });
        assert!(fetch_with(&origin, connections(4)).unwrap() == body, "{ranges:?}");
        assert!(ranges_asked(&origin).len() <= 2, "{ranges:?}");
    }
}

#[test]
fn another_version_of_the_object_is_an_error() {
    let body = noise(LENGTH);
    let origin = start(Script {
        replaced: Some((4, testkit::origin::Object::new(noise(LENGTH - 1), Some("\"v2\"")))),
        ..Script::new(body)
    });
    let error = fetch_with(&origin, connections(4)).unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
}

#[test]
fn a_skip_continues_at_the_offset() {
    let body = noise(LENGTH);
    let origin = start(Script::new(body.clone()));
    let mut config = config(&origin.url("/disk.img"));
    connections(4)(&mut config);
    let source = open(config).unwrap();
    let mut read = source.open_body().unwrap();
    let first = read.next_chunk().unwrap().unwrap();
    assert!(body.starts_with(&first));
    read.skip_to(30_000_000).unwrap();
    assert!(read_all(&mut *read).unwrap() == body[30_000_000..]);
}
