//! Upload servers that cannot be reached, do not speak HTTP, or break off.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use testkit::certs::Authority;
use testkit::fail::OrFail;
use testkit::https::{Request, Response};
use testkit::upload_pod::Server;
use testkit::upload_proxy::{PVC, Scripted, UploadProxy};
use testkit::upstream::{End, Reads, Script, Then, Upstream};

use crate::contract::{BINARY, PROXY_ERROR};

/// Starts a server that calls `serve` for every connection, until the test ends.
fn plain_server(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").or_fail("a port");
    let address = listener.local_addr().or_fail("a port");
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    address
}

fn post(proxy: &UploadProxy, server: &Server, pvc: &str) -> Response {
    let request = Request::post("/v1beta1/upload").header("Authorization", &proxy.bearer(pvc));
    server.exchange(&request, b"body")
}

#[track_caller]
fn assert_bad_gateway(response: &Response, case: &str) {
    let body = response.text();
    assert_eq!(response.status, 502, "{case}: {response:?}");
    assert!(body.starts_with(PROXY_ERROR), "{case}: {body:?}");
    assert!(body.ends_with('\n') && body.lines().count() == 1, "{case}: {body:?}");
    assert!(body.len() > PROXY_ERROR.len() + 3, "no reason, {case}: {body:?}");
    let content_type = response.header("content-type").unwrap_or_default();
    assert!(content_type.starts_with("text/plain"), "{case}: {response:?}");
}

#[test]
fn an_upload_server_that_cannot_be_reached_is_a_bad_gateway() {
    let proxy = UploadProxy::new(BINARY);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let other_authority = Authority::new().unwrap();
    let stranger = Upstream::start(&other_authority, &[], vec![Script::echo()]);
    let proxy = proxy
        .route("closed", closed)
        .route("hangs-up", plain_server(drop))
        .route("stranger", stranger.address())
        .route(
            "plain",
            plain_server(|mut tcp| {
                tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
                tcp.read_exact(&mut [0; 64]).ok();
            }),
        );
    let server = proxy.start();
    for pvc in ["closed", "hangs-up", "stranger", "plain"] {
        assert_bad_gateway(&post(&proxy, &server, pvc), pvc);
    }
    let refused = post(&proxy, &server, "closed").text();
    assert!(refused.to_lowercase().contains("connection refused"), "{refused}");
    assert_eq!(stranger.seen().len(), 0);
}

#[test]
fn an_upload_server_that_does_not_speak_http_is_a_bad_gateway() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    for (case, script) in [
        ("closes", Script::stop(Reads::Everything, Then::Close)),
        ("resets", Script::stop(Reads::Everything, Then::Reset)),
        ("closes at once", Script::stop(Reads::Head, Then::Close)),
        (
            "speaks SSH",
            Script { then: Then::Close, ..Script::answer("SSH-2.0-OpenSSH_9.2\r\n\r\n") },
        ),
        (
            "says half a head",
            Script { then: Then::Close, ..Script::answer("HTTP/1.1 200 OK\r\nContent-") },
        ),
        (
            "has a control character in a header",
            Script {
                then: Then::Close,
                ..Script::answer("HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n")
            },
        ),
    ] {
        front.upstream.follow(script);
        assert_bad_gateway(&post(&front.proxy, &front.server, PVC), case);
    }
    // The next upload is not affected.
    front.upstream.follow(Script::status(200, "fine"));
    post(&front.proxy, &front.server, PVC).assert(200, "fine");
}

#[test]
fn a_truncated_answer_is_never_passed_on_as_complete() {
    let broken = [
        "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n",
    ];
    for (answer, then) in
        broken.iter().flat_map(|answer| [(answer, Then::Close), (answer, Then::Reset)])
    {
        let script = Script { then, ..Script::answer(*answer) };
        let front = Scripted::start(BINARY, vec![script]);
        let mut connection = front.server.connect();
        let request = front.request("POST", "/v1beta1/upload");
        match connection.exchange(&request, b"x") {
            // A reset may overtake the bytes before it.
            Ok(response) if then == Then::Reset => assert_bad_gateway(&response, answer),
            outcome => drop(outcome.expect_err("an end in the middle")),
        }
    }
}

#[test]
fn a_silent_upload_server_is_waited_for() {
    let front = Scripted::start(BINARY, vec![Script::silent()]);
    let mut connection = front.server.connect();
    let request = front.request("POST", "/v1beta1/upload").length(4);
    connection.begin(&request).unwrap();
    connection.send(b"body").unwrap();
    front.upstream.wait_for("the upload", |seen| seen.iter().any(|seen| seen.end().is_some()));
    assert!(!connection.is_closed_within(Duration::from_secs(3)).unwrap());
    assert_eq!(front.upstream.only().end(), Some(End::Complete));
}
