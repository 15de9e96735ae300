//! What is logged of an upload, and what never is.

use std::net::TcpListener;
use std::time::Duration;

use testkit::fail::OrFail;
use testkit::https::Request;
use testkit::upload_proxy::{NAMESPACE, PVC, Scripted, UploadProxy};
use testkit::upstream::Script;
use testkit::wait;

use crate::{BINARY, PATH};

/// Returns the value of `name=` in a line.
fn value<'a>(line: &'a str, name: &str) -> &'a str {
    let parts = line.split_whitespace();
    let mut values = parts.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    values.next().or_fail(format!("{name} in {line:?}"))
}

/// Returns the lines of uploads once there are `count` of them.
fn lines(front: &Scripted, count: usize) -> Vec<String> {
    let complaint = || format!("{count} lines of uploads in\n{}", front.server.log());
    let lines = wait::find(complaint, || {
        let log = front.server.log();
        let lines = log.lines().filter(|line| line.contains("upload pvc="));
        let lines: Vec<_> = lines.map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    });
    assert_eq!(lines.len(), count, "{}", front.server.log());
    lines
}

#[test]
fn every_upload_is_one_line_in_the_log() {
    let nowhere = TcpListener::bind("127.0.0.1:0").or_fail("a port");
    let closed = nowhere.local_addr().or_fail("a port");
    drop(nowhere);
    let proxy = UploadProxy::new(BINARY).route("closed", closed);
    let front = Scripted::start_with(proxy, vec![Script::status(200, "")]);
    let post = |bearer: &str, path: &str| Request::post(path).header("Authorization", bearer);
    let token = |pvc| format!("Bearer {}", front.proxy.key().token(pvc, NAMESPACE));

    let mut connection = front.server.connect();
    let request = post(&token(PVC), "/v1alpha1/upload-form-async");
    connection.exchange(&request, &[b'x'; 54_321]).or_fail("an answer").assert(200, "");
    let line = lines(&front, 1).pop().or_fail("a line");
    for (name, expected) in [
        ("pvc", PVC),
        ("namespace", NAMESPACE),
        ("method", "POST"),
        ("path", "/v1alpha1/upload-form-async"),
        ("status", "200"),
        ("bytes", "54321"),
        ("outcome", "completed"),
    ] {
        assert_eq!(value(&line, name), expected, "{line}");
    }
    assert!(value(&line, "peer").starts_with("127.0.0.1:"), "{line}");
    assert!(value(&line, "seconds").parse::<f64>().is_ok(), "{line}");

    front.upstream.follow(Script::status(400, "no"));
    front.server.exchange(&post(&token(PVC), PATH), b"x").assert(400, "no");
    front.upstream.follow(Script::status(500, "no"));
    front.server.exchange(&post(&token(PVC), PATH), b"x").assert(500, "no");
    assert_eq!(front.server.exchange(&post(&token("closed"), PATH), b"x").status, 502);
    assert_eq!(front.server.exchange(&post(&token("absent"), PATH), b"x").status, 503);
    let mut leaving = front.server.connect();
    leaving.begin(&post(&token(PVC), PATH).length(1000)).or_fail("send");
    leaving.send(b"half").or_fail("send");
    front.upstream.wait_for("half", |seen| seen.last().is_some_and(|seen| seen.body_bytes() == 4));
    drop(leaving);
    let lines = lines(&front, 6);
    let outcomes: Vec<_> = lines[..5]
        .iter()
        .map(|line| format!("{} {}", value(line, "status"), value(line, "outcome")))
        .collect();
    assert_eq!(
        outcomes,
        ["200 completed", "400 rejected", "500 failed", "502 unreachable", "503 not-ready",]
    );
    // The client has left, whatever the proxy would have answered.
    assert_eq!(value(&lines[5], "outcome"), "client-gone", "{lines:?}");
}

#[test]
fn no_token_is_ever_logged() {
    let proxy = UploadProxy::new(BINARY).arg("-vv").env("RUST_LOG", "trace");
    let front = Scripted::start_with(proxy, vec![Script::echo()]);
    let token = front.proxy.key().token(PVC, NAMESPACE);
    let other = testkit::tokens::TokenKey::generate().token(PVC, NAMESPACE);
    let bearer = |token: &str| format!("Bearer {token}");
    for request in [
        front.request("POST", PATH).header("X-Token", &token),
        Request::post(PATH).header("Authorization", &bearer(&token)),
        Request::post(PATH).header("Authorization", &bearer(&other)),
        Request::post(PATH).header("Authorization", &format!("{} x", bearer(&token))),
        Request::post(PATH).header("Authorization", &format!("Basic {token}")),
        Request::post(&format!("{PATH}?token={token}")).header("Authorization", &bearer(&token)),
        Request::post(&format!("/nowhere/{token}")).header("Authorization", &bearer(&token)),
        Request::post(PATH).header("Cookie", &token),
    ] {
        front.server.exchange(&request, b"x");
    }
    // Also in a request that is not valid HTTP.
    let mut connection = front.server.connect();
    let broken =
        format!("POST {PATH} HTTP/1.1\r\nAuthorization: {}\r\nX\0: y\r\n\r\n", bearer(&token));
    connection.send(broken.as_bytes()).or_fail("send");
    connection.response().ok();
    // There is no event to wait for: the token may not get into the log in this time.
    std::thread::sleep(Duration::from_millis(100));
    let log = front.server.log();
    assert!(log.contains("upload pvc=disk"), "{log}");
    for secret in [&token, &other] {
        for part in secret.split('.') {
            // The first part of a token, its header, is not secret and is the same in all tokens.
            let is_secret = part.len() > 40;
            assert!(!is_secret || !log.contains(&part[..40]), "{part} in\n{log}");
        }
    }
}

#[test]
fn clients_cannot_forge_lines_in_the_log() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let mut claims = testkit::tokens::claims("disk\nI0101 forged: upload pvc=other", NAMESPACE);
    claims["operation"] = "\u{1b}[2J\nE0101 forged".into();
    let mut other = testkit::tokens::claims("disk\nI0101 forged: upload pvc=other", NAMESPACE);
    other["namespace"] = "x\r\nforged".into();
    for claims in [claims, other] {
        let token = front.proxy.key().sign("PS256", &claims);
        let request = Request::post(PATH).header("Authorization", &format!("Bearer {token}"));
        let response = front.server.exchange(&request, b"x");
        assert!([400, 503].contains(&response.status), "{response:?}");
    }
    let log = front.server.log();
    let forged = log.lines().find(|line| {
        line.starts_with("I0101") || line.starts_with("E0101") || line.starts_with("forged")
    });
    assert_eq!(forged, None, "{log}");
    assert!(!log.contains('\u{1b}'), "{log:?}");
}
