//! Bodies that break: they are resumed at the same byte, or refused with a reason.

use std::time::{Duration, Instant};

use stream::error::SourceErrorKind;
use testkit::origin::{Fault, Framing, NOW, Object, Ranges};

use super::*;

const LENGTH: usize = 1_000_000;
const DATES: [&str; 2] = ["Sun, 06 Nov 1994 08:49:37 GMT", "Mon, 07 Nov 1994 08:49:37 GMT"];

fn breaking(body: &Bytes, faults: Vec<Fault>) -> Script {
    Script { faults, ..Script::new(body.clone()) }
}

fn without_validator(mut script: Script) -> Script {
    script.object.etag = None;
    script
}

/// Checks that fetching fails with an error of `kind` that contains all of `words`.
fn refused(origin: &Origin, kind: SourceErrorKind, words: &[&str]) {
    let error = fetch(origin).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn ten_cuts_repeat_less_than_one_percent() {
    let body = noise(LENGTH);
    for percent in [10, 50, 90] {
        let offset = (LENGTH * percent / 100) as u64;
        // Ten cuts at almost the same place, each a byte later, so that every attempt brings
        // something.
        let faults = (0..10).map(|nth| Fault::CutAt(offset + nth)).collect();
        let origin = start(breaking(&body, faults));
        assert_eq!(fetch(&origin).unwrap(), body, "{percent} %");
        assert_eq!(origin.requests().len(), 11);
        let sent = origin.body_bytes();
        assert!(sent < LENGTH as u64 * 101 / 100, "{sent} bytes sent for {LENGTH}");
    }
}

#[test]
fn resets_refusals_and_temporary_errors_are_survived() {
    let body = noise(LENGTH);
    let faults = vec![
        Fault::CutAt(300_000),
        Fault::Refuse,
        Fault::Status(503, Some("0".into())),
        Fault::Status(429, None),
        Fault::ResetAt(600_000),
        Fault::Status(500, None),
        Fault::CutAt(600_000),
        Fault::CutAt(999_999),
    ];
    assert_eq!(fetch(&start(breaking(&body, faults))).unwrap(), body);
}

#[test]
fn a_resume_requests_the_rest_of_the_same_object() {
    let body = noise(LENGTH);
    let origin = start(breaking(&body, vec![Fault::CutAt(123_456)]));
    assert_eq!(fetch(&origin).unwrap(), body);
    let resume = &origin.requests()[1];
    assert_eq!(resume.status, 206);
    assert_eq!(resume.request.header("range"), Some("bytes=123456-"));
    assert_eq!(resume.request.header("if-range"), Some("\"v1\""));
}

#[test]
fn a_date_is_the_validator_without_a_strong_etag() {
    let body = noise(LENGTH);
    for etag in [None, Some("W/\"v1\"".to_owned())] {
        let mut script = breaking(&body, vec![Fault::CutAt(500_000)]);
        script.object.etag = etag;
        script.object.last_modified = Some(DATES[0].into());
        let origin = start(script);
        assert_eq!(fetch(&origin).unwrap(), body);
        assert_eq!(origin.requests()[1].request.header("if-range"), Some(DATES[0]));
    }
}

#[test]
fn a_stalled_connection_is_replaced() {
    let body = noise(LENGTH);
    let origin = start(breaking(&body, vec![Fault::StallAt(500_000), Fault::StallAt(500_000)]));
    let bytes = fetch_with(&origin, |config| {
        network(config).retry_policy.idle_limit = Duration::from_secs(1)
    });
    assert_eq!(bytes.unwrap(), body);
    assert!(origin.body_bytes() < LENGTH as u64 * 101 / 100);
}

#[test]
fn a_slow_reader_is_not_a_stalled_connection() {
    let body = noise(LENGTH);
    let origin = start(Script::new(body.clone()));
    let mut config = config(&origin.url("/"));
    network(&mut config).retry_policy.idle_limit = Duration::from_millis(500);
    network(&mut config).retry_policy.no_progress_limit = Duration::from_millis(500);
    network(&mut config).bridge_bytes = 10_000;
    let mut reader = open(config).unwrap().open_body().unwrap();
    let first = reader.next_chunk().unwrap().unwrap();
    // Longer than both limits, which count real time. The reader is slow, not the server.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!([first.to_vec(), read_all(&mut *reader).unwrap()].concat(), body);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_transfer_without_new_bytes_is_given_up() {
    let body = noise(LENGTH);
    let origin = start(breaking(&body, vec![Fault::CutAt(500_000); 10_000]));
    let error = fetch_with(&origin, |config| {
        network(config).retry_policy.no_progress_limit = Duration::from_millis(300)
    })
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("no new byte for 0.3 s at byte 500000 of 1000000, giving up: "),
        "{error}"
    );

    let origin = start(breaking(&body, vec![Fault::StallAt(500_000); 100]));
    let error = fetch_with(&origin, |config| {
        network(config).retry_policy.no_progress_limit = Duration::from_millis(300)
    })
    .unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Stalled);
}

#[test]
fn retries_are_counted_from_the_last_new_byte() {
    let body = noise(LENGTH);
    let origin =
        start(breaking(&body, (1..10).map(|tenth| Fault::CutAt(tenth * 100_000)).collect()));
    assert_eq!(
        fetch_with(&origin, |config| network(config).retry_policy.retries = Some(1)).unwrap(),
        body
    );

    let origin = start(breaking(&body, vec![Fault::CutAt(500_000); 4]));
    let error = fetch_with(&origin, |config| network(config).retry_policy.retries = Some(2))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("giving up at byte 500000 of 1000000 after 3 failures in a row: "),
        "{error}"
    );
}

#[test]
fn a_replaced_object_is_refused() {
    let body = noise(LENGTH);
    for (etag, words) in [(Some("\"v2\""), ["\"v1\"", "\"v2\""]), (None, ["another version", ""])] {
        let script = Script {
            replaced: Some((1, Object::new(noise(LENGTH), etag))),
            ..breaking(&body, vec![Fault::CutAt(500_000)])
        };
        let kind =
            if etag.is_some() { SourceErrorKind::Changed } else { SourceErrorKind::NotResumable };
        refused(&start(script), kind, &words);
    }
    let mut script = without_validator(breaking(&body, vec![Fault::CutAt(500_000)]));
    script.object.last_modified = Some(DATES[0].into());
    script.replaced =
        Some((1, Object { last_modified: Some(DATES[1].into()), ..script.object.clone() }));
    refused(&start(script), SourceErrorKind::Changed, &DATES);
}

/// The first response is of one object, and all others are of another one with the same length.
/// Whatever validators they have, and even if the server ignores conditions, the two are not
/// joined.
#[test]
fn two_objects_are_never_joined_whatever_their_validators() {
    let first = noise(LENGTH);
    let second: Bytes = first.iter().map(|byte| !byte).collect::<Vec<_>>().into();
    let [etag, other, weak] = ["\"v1\"", "\"v2\"", "W/\"v1\""].map(Some);
    let [old, new] = DATES.map(Some);
    let validators = [
        (etag, None),
        (other, None),
        (weak, None),
        (None, old),
        (None, new),
        (etag, old),
        (other, old),
        (etag, new),
        (None, Some(NOW)),
        (None, None),
    ];
    let object = |body: &Bytes, (etag, date): (Option<&str>, Option<&str>)| Object {
        last_modified: date.map(str::to_owned),
        ..Object::new(body.clone(), etag)
    };
    for was in validators {
        // If the validator is repeated, nobody can tell.
        let repeats = |is: (Option<&str>, Option<&str>)| match was {
            (Some(tag), _) if tag != "W/\"v1\"" => is.0 == was.0,
            (_, Some(date)) if date != NOW => is.1 == was.1,
            _ => false,
        };
        for is in validators.into_iter().filter(|is| !repeats(*is)) {
            for connections in [1, 4] {
                let origin = start(Script {
                    object: object(&first, was),
                    replaced: Some((1, object(&second, is))),
                    ignores_conditions: true,
                    rate: Some(64 << 20),
                    faults: vec![Fault::CutAt(500_000)],
                    ..Script::new(first.clone())
                });
                let fetched = fetch_with(&origin, |config| {
                    network(config).connections = NonZeroUsize::new(connections);
                    network(config).retry_policy.retries = Some(2);
                });
                if let Ok(bytes) = fetched {
                    assert!(bytes == first || bytes == second, "{was:?}, {is:?}, {connections}");
                }
            }
        }
    }
}

#[test]
fn a_date_that_is_always_now_counts_as_none() {
    let body = noise(LENGTH);
    let mut script = without_validator(breaking(&body, vec![Fault::CutAt(500_000)]));
    script.object.last_modified = Some(NOW.into());
    let origin = start(script);
    assert_eq!(fetch(&origin).unwrap(), body);
    assert!(ranges_asked(&origin).len() > 2, "no bytes were compared");
}

#[test]
fn different_etags_are_joined_only_with_a_checksum() {
    let body = noise(LENGTH);
    let script = Script {
        replaced: Some((1, Object::new(body.clone(), Some("\"v2\"")))),
        ..breaking(&body, vec![Fault::CutAt(500_000)])
    };
    refused(&start(script.clone()), SourceErrorKind::Changed, &["\"v1\"", "\"v2\""]);
    let fetched = fetch_with(&start(script), |config| config.is_checked = true);
    assert_eq!(fetched.unwrap(), body);
}

#[test]
fn a_server_may_send_less_than_it_was_asked_for() {
    let body = noise(LENGTH);
    for connections in [1, 4] {
        let origin = start(Script {
            most_part_bytes: Some(100_000),
            is_always_part: true,
            ..breaking(&body, vec![Fault::CutAt(300_000)])
        });
        let fetched = fetch_with(&origin, |config| {
            network(config).connections = NonZeroUsize::new(connections);
        });
        assert_eq!(fetched.unwrap(), body, "{connections} connections");
    }
}

/// The bytes that are compared before a resume may fill a whole part. If they never fit, the
/// transfer ends instead of asking for ever.
#[test]
fn short_parts_without_a_validator_are_compared_once_and_continued() {
    let body = noise(LENGTH);
    for (most, is_resumed) in [(600_000, true), (100_000, false)] {
        for script in unproven(&body, vec![Fault::CutAt(most)]) {
            let origin = start(Script { most_part_bytes: Some(most), ..script });
            let fetched = fetch_with(&origin, |config| {
                network(config).retry_policy.retries = Some(2);
            });
            assert_eq!(fetched.is_ok_and(|bytes| bytes == body), is_resumed, "{most}");
            assert!(origin.requests().len() < 1000);
        }
    }
}

#[test]
fn a_shortened_object_is_refused() {
    let body = noise(LENGTH);
    let script = Script {
        replaced: Some((1, Object::new(body.slice(..400_000), Some("\"v1\"")))),
        ..breaking(&body, vec![Fault::CutAt(500_000)])
    };
    refused(&start(script), SourceErrorKind::Changed, &["1000000", "400000"]);
}

#[test]
fn a_server_without_ranges_is_read_again_up_to_the_break() {
    let body = noise(LENGTH);
    for ranges in [Ranges::Refused, Ranges::Claimed, Ranges::Unknown] {
        let origin = start(Script {
            ranges,
            ..breaking(&body, vec![Fault::CutAt(500_000), Fault::CutAt(700_000)])
        });
        assert_eq!(fetch(&origin).unwrap(), body);
        assert_eq!(origin.body_bytes(), 500_000 + 700_000 + LENGTH as u64);
    }
}

#[test]
fn a_server_without_ranges_that_always_breaks_is_given_up() {
    let body = noise(LENGTH);
    let mut faults = vec![Fault::CutAt(500_000)];
    faults.resize(10_000, Fault::CutAt(300_000));
    let origin = start(Script { ranges: Ranges::Refused, ..breaking(&body, faults) });
    let error = fetch_with(&origin, |config| {
        network(config).retry_policy.no_progress_limit = Duration::from_millis(300)
    })
    .unwrap_err();
    assert!(error.to_string().contains("at byte 500000 of 1000000"), "{error}");
}

#[test]
fn with_a_checksum_parts_are_joined_without_a_validator() {
    let body = noise(LENGTH);
    let script = without_validator(breaking(&body, vec![Fault::CutAt(500_000)]));
    let trusting = |config: &mut HttpConfig| config.is_checked = true;
    assert_eq!(fetch_with(&start(script.clone()), trusting).unwrap(), body);
    let grown = Script { replaced: Some((1, Object::new(noise(LENGTH + 1), None))), ..script };
    assert_eq!(fetch_with(&start(grown), trusting).unwrap_err().kind(), SourceErrorKind::Changed);
}

/// Objects whose server proves nothing: without any validator, and with a weak one.
fn unproven(body: &Bytes, faults: Vec<Fault>) -> [Script; 2] {
    let weak = Object::new(body.clone(), Some("W/\"v1\""));
    [
        without_validator(breaking(body, faults.clone())),
        Script { object: weak, ..breaking(body, faults) },
    ]
}

#[test]
fn without_a_validator_received_bytes_are_compared_before_a_resume() {
    let body = noise(LENGTH);
    let cuts: Vec<_> = [40_000, 500_000, 500_001, 999_999].map(Fault::CutAt).into();
    for script in unproven(&body, cuts[..1].to_vec()) {
        let origin = start(script);
        assert_eq!(fetch(&origin).unwrap(), body);
        let asked = ranges_asked(&origin);
        let asked: Vec<_> = asked.iter().map(|range| range.as_deref()).collect();
        assert_eq!(asked, [None, Some("bytes=0-32767"), Some("bytes=0-")]);
    }
    for script in unproven(&body, cuts) {
        let origin = start(Script { spares_bounded: true, ..script });
        assert_eq!(fetch(&origin).unwrap(), body);
        let asked = ranges_asked(&origin).into_iter().flatten();
        assert_eq!(asked.filter(|range| range.ends_with('-')).count(), 4);
    }
}

#[test]
fn without_a_validator_a_replaced_object_is_refused() {
    let body = noise(LENGTH);
    let replaced = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut other = body.to_vec();
        change(&mut other);
        unproven(&body, vec![Fault::CutAt(500_000)]).map(|script| {
            let etag = script.object.etag.as_deref();
            start(Script { replaced: Some((1, Object::new(other.clone(), etag))), ..script })
        })
    };
    // All blocks are compared, because there are only 15.
    for at in [0, 490_000, 499_999] {
        for origin in replaced(&|other| other[at] ^= 1) {
            refused(&origin, SourceErrorKind::Changed, &["has other bytes at", "Start the import"]);
        }
    }
    for origin in replaced(&|other| other.push(0)) {
        refused(&origin, SourceErrorKind::Changed, &["length was 1000000 and is 1000001"]);
    }
    for origin in replaced(&|other| other.truncate(1000)) {
        refused(&origin, SourceErrorKind::Changed, &["length was 1000000 and is 1000 now"]);
    }
    let [_, weak] = unproven(&body, vec![Fault::CutAt(500_000)]);
    let other = Object::new(body.clone(), Some("W/\"v2\""));
    let origin = start(Script { replaced: Some((1, other)), ..weak });
    refused(&origin, SourceErrorKind::Changed, &["v1", "v2"]);
}

#[test]
fn without_a_validator_a_server_must_support_ranges_to_be_resumed() {
    let body = noise(LENGTH);
    for script in unproven(&body, vec![Fault::CutAt(500_000)]) {
        let origin = start(Script { ranges: Ranges::Claimed, ..script });
        refused(&origin, SourceErrorKind::NotResumable, &["may be another version"]);
    }
}

#[test]
fn a_comparison_survives_broken_connections() {
    let body = noise(LENGTH);
    let faults = vec![
        Fault::CutAt(500_000),
        Fault::Refuse,
        Fault::None,
        Fault::Status(503, None),
        Fault::CutAt(10_000),
    ];
    for script in unproven(&body, faults) {
        assert_eq!(fetch(&start(script)).unwrap(), body);
    }
}

#[test]
fn a_break_before_the_first_byte_starts_over() {
    let body = noise(LENGTH);
    let origin = start(without_validator(breaking(&body, vec![Fault::CutAt(0)])));
    assert_eq!(fetch(&origin).unwrap(), body);
    assert_eq!(ranges_asked(&origin), [None, None]);
}

#[test]
fn a_body_shorter_than_its_length_is_never_complete() {
    let body = noise(LENGTH);
    let script = Script { framing: Framing::Lie(LENGTH as u64 + 10), ..Script::new(body) };
    refused(&start(script.clone()), SourceErrorKind::Changed, &["1000010", "1000000"]);
    let ignoring_ranges = Script { ranges: Ranges::Refused, ..script };
    let origin = start(ignoring_ranges);
    let error = fetch_with(&origin, |config| network(config).retry_policy.retries = Some(2))
        .unwrap_err()
        .to_string();
    assert!(error.contains("at byte 1000000 of 1000010"), "{error}");
}

#[test]
fn parts_that_end_early_are_continued() {
    let body = noise(LENGTH);
    let origin = start(Script {
        part_length: Some(200_000),
        ..breaking(&body, vec![Fault::CutAt(500_000)])
    });
    assert_eq!(fetch(&origin).unwrap(), body);
    let asked: Vec<_> = ranges_asked(&origin).into_iter().flatten().collect();
    assert_eq!(asked, ["bytes=500000-", "bytes=700000-", "bytes=900000-"]);
}

#[test]
fn retry_after_is_respected_during_a_transfer() {
    let body = noise(LENGTH);
    let unready = Fault::Status(503, Some("3600".into()));
    let origin = start(breaking(&body, vec![Fault::CutAt(500_000), unready]));
    let begin = Instant::now();
    let bytes = fetch_with(&origin, |config| {
        network(config).retry_policy.max_delay = Duration::from_millis(300)
    });
    assert_eq!(bytes.unwrap(), body);
    // Real sockets are used, so the pause can only be measured.
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_cut_chunked_body_is_resumed() {
    let body = noise(LENGTH);
    let chunked = |offset| Script {
        framing: Framing::Chunked,
        ..breaking(&body, vec![Fault::CutAt(offset)])
    };
    assert_eq!(fetch(&start(chunked(500_000))).unwrap(), body);
    let origin = start(without_validator(chunked(500_000)));
    refused(&origin, SourceErrorKind::NotResumable, &["500000 bytes"]);
}

#[test]
fn a_chunked_body_that_lacks_only_its_end_mark_is_complete() {
    let body = noise(LENGTH);
    let origin = start(Script {
        framing: Framing::Chunked,
        cut_end_mark: true,
        ..Script::new(body.clone())
    });
    assert_eq!(fetch(&origin).unwrap(), body);
    assert_eq!(origin.requests()[1].status, 416);
}

#[test]
fn a_wrong_content_range_is_refused() {
    let body = noise(LENGTH);
    for (answer, words) in [
        ("bytes 0-999999/1000000", "bytes 500000 to 1000000"),
        ("bytes 500000-999998/1000000", "announced 999999 bytes"),
        ("bytes 500000-999999/1000001", "length was 1000000 and is 1000001"),
        ("nonsense", "nonsense"),
    ] {
        let origin = start(Script {
            content_range: Some(answer.into()),
            ..breaking(&body, vec![Fault::CutAt(500_000)])
        });
        let error = fetch(&origin).unwrap_err().to_string();
        assert!(error.contains(words), "{answer}: {error}");
    }
}

#[test]
fn a_permanent_refusal_of_the_rest_ends_the_transfer() {
    let body = noise(LENGTH);
    let origin = start(breaking(&body, vec![Fault::CutAt(500_000), Fault::Status(404, None)]));
    refused(
        &origin,
        SourceErrorKind::Status(404),
        &["expected status code 206, got 404. Status: 404 Not Found"],
    );
}

#[test]
fn a_stop_ends_a_stalled_read() {
    let body = noise(LENGTH);
    let origin = start(breaking(&body, vec![Fault::StallAt(500_000)]));
    let stop = CancellationToken::new();
    let source = HttpSource::open(until(stop.clone(), &origin.url("/"))).unwrap();
    let mut reader = source.open_body().unwrap();
    let stopping = std::thread::spawn(move || {
        // Meanwhile the reader receives what came, and then waits; no event shows that.
        std::thread::sleep(Duration::from_millis(100));
        stop.cancel();
    });
    assert_eq!(read_all(&mut *reader).unwrap_err().kind(), SourceErrorKind::Stopped);
    assert_eq!(source.read_range(0..1).unwrap_err().kind(), SourceErrorKind::Stopped);
    stopping.join().unwrap();
}

/// If a stop keeps the pump from handing over a chunk, that must not look like the end of the
/// object.
#[test]
#[ignore = "slow: 3 s of CPU time"]
fn a_body_that_is_stopped_never_looks_complete() {
    const BYTES: usize = 32 << 20;
    let origin = start(Script::new(noise(BYTES)));
    for round in 0..200 {
        let stop = CancellationToken::new();
        let source = HttpSource::open(until(stop.clone(), &origin.url("/"))).unwrap();
        let mut body = source.open_body().unwrap();
        let first = body.next_chunk().unwrap().unwrap();
        let stopping = std::thread::spawn(move || {
            // Each round stops a little later in a transfer through real sockets.
            std::thread::sleep(Duration::from_micros(round * 50));
            stop.cancel();
        });
        match read_all(&mut *body) {
            // On a busy machine everything may arrive before the stop.
            Ok(bytes) => assert_eq!(first.len() + bytes.len(), BYTES, "round {round}"),
            Err(error) => assert_eq!(error.kind(), SourceErrorKind::Stopped, "{error}"),
        }
        stopping.join().unwrap();
    }
}
