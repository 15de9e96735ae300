//! Every method on every path.

use std::fmt;

use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::https::{Request, Response};
use testkit::upload_proxy::{Scripted, UploadProxy};
use testkit::upstream::{Script, Upstream};

use crate::contract::BINARY;

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

const UPLOADS: [&str; 8] = [
    "/v1beta1/upload",
    "/v1beta1/upload-async",
    "/v1beta1/upload-form",
    "/v1beta1/upload-form-async",
    "/v1alpha1/upload",
    "/v1alpha1/upload-async",
    "/v1alpha1/upload-form",
    "/v1alpha1/upload-form-async",
];

const UNKNOWN: [&str; 21] = [
    "/v1beta1/upload-archive",
    "/v1alpha1/upload-archive",
    "/v1beta1/upload/",
    "/v1beta1/upload-archive-async",
    "/v1beta1/uploads",
    "/v1beta1/Upload",
    "/v1beta1",
    "/v1beta1/",
    "/v1/upload",
    "/v1beta2/upload",
    "//v1beta1/upload",
    "//",
    "/v1beta1/../healthz",
    "/v1alpha1/status",
    "/v1alpha1/upload-resumable",
    "/v1beta1/upload-resumables",
    "/healthz/",
    "/metrics",
    "/etc/passwd",
    "/v1beta1/upload%2Darchive",
    "/index.html",
];

/// A method on a path.
struct Row {
    method: &'static str,
    path: &'static str,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

fn rows(paths: &[&'static str]) -> Vec<Row> {
    let pairs = paths.iter().flat_map(|path| METHODS.iter().map(move |method| (*method, *path)));
    pairs.map(|(method, path)| Row { method, path }).collect()
}

/// Fails the test unless the answer says that a token is missing. An answer to HEAD has no body to
/// say so.
#[track_caller]
fn assert_no_token(response: &Response, method: &str) {
    match method {
        "HEAD" => response.assert(400, ""),
        _ => response.assert_refused(400, "Authorization: Bearer TOKEN"),
    }
}

#[test]
fn upload_paths_accept_all_methods_and_need_a_token() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    check_all(rows(&UPLOADS), |row| {
        let refused = front.server.exchange(&Request::new(row.method, row.path), b"");
        assert_no_token(&refused, row.method);
        let allowed = front.request(row.method, row.path);
        let response = front.server.exchange(&allowed, b"");
        assert_eq!(response.status, 200, "{response:?}");
        if row.method != "HEAD" {
            let line = format!("{} {} HTTP/1.1\r\n", row.method, row.path);
            assert!(response.text().starts_with(&line), "{response:?}");
        }
    });
    assert_eq!(front.upstream.seen().len(), UPLOADS.len() * METHODS.len());
}

#[test]
fn other_paths_are_not_found_with_or_without_a_token() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    check_all(rows(&UNKNOWN), |row| {
        for request in [Request::new(row.method, row.path), front.request(row.method, row.path)] {
            let response = front.server.exchange(&request, b"");
            let body = if row.method == "HEAD" { "" } else { "404 page not found\n" };
            response.assert(404, body);
            let content_type = response.header("content-type").unwrap_or_default();
            assert!(content_type.starts_with("text/plain"), "{response:?}");
        }
    });
    assert_eq!(front.upstream.seen().len(), 0);
}

#[test]
fn health_needs_no_token_and_accepts_any_method() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    check_all(rows(&["/healthz"]), |row| {
        let response = front.server.exchange(&Request::new(row.method, row.path), b"");
        response.assert(200, if row.method == "HEAD" { "" } else { "OK" });
    });
    let ready = front.server.exchange(&Request::new("GET", "/readyz"), b"");
    assert_eq!(ready.status, 200, "{ready:?}");
    assert_eq!(front.upstream.seen().len(), 0);
}

#[test]
fn head_returns_the_answer_of_the_upload_server() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nX-State: idle\r\n\r\n";
    let front = Scripted::start(BINARY, vec![Script::answer(answer)]);
    let mut connection = front.server.connect();
    // Twice on one connection: the proxy must not wait for a body, which an answer to HEAD does
    // not have.
    for _ in 0..2 {
        let response = connection.exchange(&front.request("HEAD", "/v1beta1/upload-async"), b"");
        let response = response.or_fail("an answer");
        assert_eq!(
            (response.status, response.header("content-length"), response.header("x-state")),
            (200, Some("12345"), Some("idle"))
        );
    }
    front.upstream.follow(Script::status(404, "404 page not found\n"));
    let response = front.server.exchange(&front.request("HEAD", "/v1beta1/upload-async"), b"");
    response.assert(404, "");
}

#[test]
fn a_token_is_valid_for_its_own_pvc_only() {
    let proxy = UploadProxy::new(BINARY);
    let [left, right] =
        [(); 2].map(|()| Upstream::start(proxy.cluster(), &[], vec![Script::echo()]));
    let proxy = proxy.route("left", left.address()).route("right", right.address());
    let server = proxy.start();
    for (pvc, status) in [("left", 200), ("right", 200), ("absent", 503)] {
        let request = Request::post("/v1beta1/upload").header("Authorization", &proxy.bearer(pvc));
        let response = server.exchange(&request, b"x");
        assert_eq!(response.status, status, "{response:?}");
        if status == 503 {
            let sentence = "rejecting Upload Request for PVC absent that doesn&#39;t exist";
            assert_eq!(response.text(), sentence);
        }
    }
    let other = proxy.key().token("left", "other-namespace");
    let request =
        Request::post("/v1beta1/upload").header("Authorization", &format!("Bearer {other}"));
    assert_eq!(server.exchange(&request, b"x").status, 503);
    assert_eq!((left.seen().len(), right.seen().len()), (1, 1));
}

#[test]
fn paths_that_upstream_does_not_have_need_a_token() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    for (method, path) in [
        ("POST", "/v1beta1/upload-resumable"),
        ("PATCH", "/v1beta1/upload-resumable/0aZ-_"),
        ("HEAD", "/v1beta1/upload-resumable/0123abcd"),
        ("DELETE", "/v1beta1/upload-resumable/0123abcd"),
        ("GET", "/v1beta1/status"),
    ] {
        let refused = front.server.exchange(&Request::new(method, path), b"");
        assert_no_token(&refused, method);
        let allowed = front.request(method, path).header("Tus-Resumable", "1.0.0");
        assert_eq!(front.server.exchange(&allowed, b"").status, 200, "{method} {path}");
        let seen = front.upstream.seen();
        let last = seen.last().or_fail("a request");
        assert_eq!(last.request_line(), format!("{method} {path} HTTP/1.1"));
        assert_eq!(last.headers("tus-resumable"), ["1.0.0"]);
    }
    let before = front.upstream.seen().len();
    for path in [
        "/v1beta1/upload-resumable/../upload-archive",
        "/v1beta1/upload-resumable/%2e%2e/upload-archive",
        "/v1beta1/upload-resumable/a/b",
        "/v1beta1/upload-resumable/",
        "/v1beta1/upload-resumable/a.b",
        &format!("/v1beta1/upload-resumable/{}", "a".repeat(65)),
        "/v1beta1/status/x",
    ] {
        let response = front.server.exchange(&front.request("PATCH", path), b"");
        assert!([400, 404].contains(&response.status), "{path}: {response:?}");
    }
    assert_eq!(front.upstream.seen().len(), before);
}
