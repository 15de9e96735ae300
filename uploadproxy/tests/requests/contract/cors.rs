//! What pages of any origin may do: the "allow all" of rs/cors, which upstream uses.

use testkit::https::{Request, Response};
use testkit::upload_proxy::Scripted;
use testkit::upstream::{Reads, Script, Then};

use crate::contract::BINARY;

const ORIGIN: &str = "foo.bar.com";

/// Returns all values of a header in order, each split at its commas.
fn values<'a>(response: &'a Response, name: &str) -> Vec<&'a str> {
    let fields = response.headers.iter().filter(|(field, _)| field == name);
    let values = fields.flat_map(|(_, value)| value.split(','));
    values.map(str::trim).filter(|value| !value.is_empty()).collect()
}

#[track_caller]
fn assert_open(response: &Response, case: &str) {
    assert_eq!(values(response, "access-control-allow-origin"), ["*"], "{case}: {response:?}");
    assert_eq!(values(response, "vary"), ["Origin"], "{case}: {response:?}");
    for absent in [
        "access-control-allow-credentials",
        "access-control-allow-methods",
        "access-control-allow-headers",
    ] {
        assert_eq!(response.header(absent), None, "{case}: {response:?}");
    }
}

#[track_caller]
fn assert_silent(response: &Response, case: &str) {
    assert!(values(response, "vary").contains(&"Origin"), "{case}: {response:?}");
    let header = response.headers.iter().find(|(name, _)| name.starts_with("access-control-"));
    assert_eq!(header, None, "{case}: {response:?}");
}

#[test]
fn answers_of_every_status_allow_every_origin() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let path = "/v1beta1/upload";
    let good = || front.request("POST", path);
    let stale = || Request::post(path).header("Authorization", "Bearer abc");
    let absent = format!("Bearer {}", front.proxy.key().token("absent", "default"));
    let absent = || Request::post(path).header("Authorization", &absent);
    let requests: [(u16, &dyn Fn() -> Request); 7] = [
        (200, &good),
        (400, &|| Request::post(path)),
        (400, &|| Request::new("OPTIONS", path)),
        (401, &stale),
        (404, &|| Request::new("GET", "/nowhere")),
        (503, &absent),
        (200, &|| Request::new("GET", "/healthz")),
    ];
    for (status, request) in requests {
        let with = front.server.exchange(&request().header("Origin", ORIGIN), b"");
        assert_eq!(with.status, status, "{with:?}");
        assert_open(&with, &status.to_string());
        let without = front.server.exchange(&request(), b"");
        assert_eq!(without.status, status, "{without:?}");
        assert_silent(&without, &status.to_string());
        assert_eq!(values(&without, "vary"), ["Origin"], "{without:?}");
    }
}

#[test]
fn failures_of_the_upload_server_allow_every_origin() {
    let front = Scripted::start(BINARY, vec![Script::status(500, "Saving stream failed: x")]);
    let post = |script, status: u16| {
        front.upstream.follow(script);
        let request = front.request("POST", "/v1beta1/upload").header("Origin", ORIGIN);
        let response = front.server.exchange(&request, b"x");
        assert_eq!(response.status, status, "{response:?}");
        assert_open(&response, &status.to_string());
    };
    for status in [200, 400, 401, 404, 409, 500, 503] {
        post(Script::status(status, "text"), status);
    }
    post(Script::stop(Reads::Everything, Then::Close), 502);
    post(Script::stop(Reads::Everything, Then::Reset), 502);
}

#[test]
fn cors_headers_of_the_upload_server_are_replaced() {
    let answer = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: https://elsewhere\r\nVary: Origin\r\n\
                  Access-Control-Allow-Credentials: true\r\nContent-Length: 0\r\n\r\n";
    let front = Scripted::start(BINARY, vec![Script::answer(answer)]);
    let request = front.request("POST", "/v1beta1/upload").header("Origin", ORIGIN);
    let response = front.server.exchange(&request, b"x");
    assert_eq!(values(&response, "access-control-allow-origin"), ["*"], "{response:?}");
    assert_eq!(response.header("access-control-allow-credentials"), None, "{response:?}");
}

/// Returns the answer to `OPTIONS` with these headers. Its status is always 200, and its body
/// empty.
fn preflight(front: &Scripted, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = headers
        .iter()
        .fold(Request::new("OPTIONS", path), |request, (name, value)| request.header(name, value));
    let response = front.server.exchange(&request, b"");
    response.assert(200, "");
    let vary = values(&response, "vary");
    let wanted = ["Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"];
    assert_eq!(vary, wanted, "{response:?}");
    response
}

#[test]
fn a_preflight_is_granted_what_it_asks_for() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    for path in
        ["/v1beta1/upload", "/v1alpha1/upload-form-async", "/v1beta1/upload-resumable", "/nowhere"]
    {
        for method in ["HEAD", "GET", "POST", "PUT", "PATCH", "DELETE", "post"] {
            let asked = [
                ("Origin", ORIGIN),
                ("Access-Control-Request-Method", method),
                ("Access-Control-Request-Headers", "authorization, content-type,x-CDI-checksum"),
            ];
            let response = preflight(&front, path, &asked);
            assert_eq!(values(&response, "access-control-allow-origin"), ["*"]);
            assert_eq!(
                values(&response, "access-control-allow-methods"),
                [method.to_uppercase()],
                "{response:?}"
            );
            let granted = values(&response, "access-control-allow-headers");
            assert_eq!(
                granted,
                ["Authorization", "Content-Type", "X-Cdi-Checksum"],
                "{response:?}"
            );
        }
    }
    let response = preflight(
        &front,
        "/v1beta1/upload",
        &[("Origin", ORIGIN), ("Access-Control-Request-Method", "POST")],
    );
    assert_eq!(response.header("access-control-allow-headers"), None, "{response:?}");
    assert_eq!(front.upstream.seen().len(), 0);
}

#[test]
fn other_preflights_are_granted_nothing() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    for headers in [
        &[("Origin", ORIGIN), ("Access-Control-Request-Method", "TRACE")][..],
        &[("Origin", ORIGIN), ("Access-Control-Request-Method", "PROPFIND")],
        &[("Access-Control-Request-Method", "POST")],
    ] {
        assert_silent(&preflight(&front, "/v1beta1/upload", headers), &format!("{headers:?}"));
    }
}
