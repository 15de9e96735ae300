//! The first request: what is sent, which answers are accepted, and how failures are reported.

use std::time::{Duration, Instant};

use fetch::http::parse_header;
use stream::error::SourceErrorKind;
use testkit::origin::{Fault, Framing};

use super::*;

#[test]
fn a_plain_get_returns_the_body_of_its_first_request() {
    let body = noise(300_000);
    let origin = start(Script::new(body.clone()));
    let source = open(config(&origin.url("/a/disk.img?signature=secret#top"))).unwrap();
    assert_eq!(source.name(), origin.url("/a/disk.img"));
    assert_eq!(source.total_bytes(), Some(300_000));
    assert_eq!(read_all(&mut *source.open_body().unwrap()).unwrap(), body);
    let requests = origin.requests();
    assert_eq!(requests.len(), 1, "one request, and no HEAD");
    let request = &requests[0].request;
    assert_eq!(request.target, "/a/disk.img?signature=secret");
    assert_eq!(request.header("user-agent"), Some("cdi-golang-importer"));
    assert_eq!(request.header("accept-encoding"), Some("identity"));
    assert_eq!(request.header("range"), None);
    assert_eq!(request.header("authorization"), None);
}

#[test]
fn an_empty_body_is_not_an_error() {
    let origin = start(Script::new(""));
    assert_eq!(fetch(&origin).unwrap(), b"");
    assert!(!open(config(&origin.url("/"))).unwrap().is_ranged());
}

#[test]
fn other_statuses_than_200_are_reported_as_in_cdi() {
    for (status, reason) in
        [(404, "404 Not Found"), (204, "204 No Content"), (304, "304 Not Modified")]
    {
        let origin =
            start(Script { faults: vec![Fault::Status(status, None)], ..Script::new("x") });
        let error = fetch(&origin).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("expected status code 200, got {status}. Status: {reason}")
        );
        assert_eq!(error.kind(), SourceErrorKind::Status(status));
        assert_eq!(origin.requests().len(), 1);
    }
}

#[test]
fn a_server_that_is_not_ready_is_asked_again_within_the_limits() {
    let fetch = |origin: &Origin| {
        fetch_with(origin, |config| network(config).retry_policy.retries = Some(2))
    };
    for status in [408, 429, 500, 502, 503, 504] {
        let unready = |times| Script {
            faults: vec![Fault::Status(status, None); times],
            ..Script::new("disk")
        };
        assert_eq!(fetch(&start(unready(2))).unwrap(), b"disk");
        let origin = start(unready(3));
        assert_eq!(fetch(&origin).unwrap_err().kind(), SourceErrorKind::Status(status));
        assert_eq!(origin.requests().len(), 3);
    }
    let origin = start(Script { faults: vec![Fault::Refuse], ..Script::new("disk") });
    assert_eq!(fetch(&origin).unwrap(), b"disk");
}

#[test]
fn retry_after_is_respected_up_to_the_limit() {
    let origin = start(Script {
        faults: vec![Fault::Status(503, Some("3600".into()))],
        ..Script::new("disk")
    });
    let begin = Instant::now();
    let bytes = fetch_with(&origin, |config| {
        network(config).retry_policy.max_delay = Duration::from_millis(200)
    })
    .unwrap();
    assert_eq!(bytes, b"disk");
    // Real sockets are used, so the pause can only be measured.
    assert!(begin.elapsed() >= Duration::from_millis(200));
}

#[test]
fn a_custom_user_agent_is_used_and_framing_headers_are_ignored() {
    let origin = start(Script::new("disk"));
    let header = |line| parse_header(line, false).unwrap().unwrap();
    fetch_with(&origin, |config| {
        config.headers = vec![
            header("User-Agent: mine"),
            header("Range: bytes=1-"),
            header("X-A: 1"),
            header("X-A: 2"),
        ];
    })
    .unwrap();
    let request = &origin.requests()[0].request;
    let all = |name| {
        request
            .headers
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(all("user-agent"), ["mine"]);
    assert_eq!(all("range"), [] as [&str; 0]);
    assert_eq!(all("x-a"), ["1", "2"]);
}

#[test]
fn supported_content_encodings_are_left_to_the_decoder_and_others_refused() {
    let encoded = |coding: &str| {
        start(Script {
            headers: vec![
                ("Content-Encoding".into(), coding.into()),
                ("Content-Type".into(), "text/html".into()),
            ],
            ..Script::new("disk")
        })
    };
    for (coding, expected) in
        [("identity", None), ("gzip", Some("gzip")), ("X-GZIP", Some("x-gzip"))]
    {
        let origin = encoded(coding);
        let source = open(config(&origin.url("/"))).unwrap();
        assert_eq!(source.content_encoding(), expected);
        assert_eq!(source.content_type(), Some("text/html"));
        assert_eq!(read_all(&mut *source.open_body().unwrap()).unwrap(), b"disk");
    }
    for coding in ["br", "deflate", "gzip, gzip"] {
        let error = fetch(&encoded(coding)).unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Invalid);
        assert!(error.to_string().contains(coding), "{error}");
    }
}

#[test]
fn bodies_without_a_length_are_read_to_their_end() {
    let body = noise(200_000);
    for framing in [Framing::Chunked, Framing::UntilClose] {
        let origin = start(Script { framing, ..Script::new(body.clone()) });
        let source = open(config(&origin.url("/"))).unwrap();
        assert_eq!((source.total_bytes(), source.is_ranged()), (None, false));
        assert_eq!(read_all(&mut *source.open_body().unwrap()).unwrap(), body);
    }
}

#[test]
fn a_stop_ends_the_wait_for_an_answer() {
    let origin = start(Script { latency: Duration::from_secs(60), ..Script::new("disk") });
    let stop = CancellationToken::new();
    let stopper = stop.clone();
    let stopping = std::thread::spawn(move || {
        // There is no event to wait for: the server records a request only after its latency.
        std::thread::sleep(Duration::from_millis(50));
        stopper.cancel();
    });
    let error = HttpSource::open(until(stop, &origin.url("/"))).err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Stopped);
    stopping.join().unwrap();
}
