//! Which parts of a request and of its answer are passed on.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::framing::{chunked, form, form_content_type, oddly_chunked};
use testkit::https::Request;
use testkit::random::Random;
use testkit::upload_pod::UploadPod;
use testkit::upload_proxy::{PVC, Scripted, UploadProxy, beside};
use testkit::upstream::{End, Script};

use crate::contract::BINARY;

const PATH: &str = "/v1beta1/upload";

/// Returns the fields of a head, sorted, with their names in lower case.
fn fields(head: &str) -> Vec<String> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let mut fields: Vec<_> =
        lines.map(|(name, value)| format!("{}: {value}", name.to_lowercase())).collect();
    fields.sort();
    fields
}

#[test]
fn a_request_is_forwarded_with_its_own_fields_and_no_others() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let bearer = front.proxy.bearer(PVC);
    let own = format!(
        "PUT {PATH}?pretty=1&x=/../y HTTP/1.1\r\n\
         Host: upload.example.com:8443\r\n\
         Authorization: {bearer}\r\n\
         x-cdi-content-type: blockdevice-clone\r\n\
         x-cdi-workers-clone: zstd\r\n\
         x-cdi-checksum: sha256:00\r\n\
         Accept: */*\r\n\
         Content-Type: application/octet-stream\r\n\
         Cookie: a=b\r\n\
         Cookie: c=d\r\n\
         X-Odd: \"quotes\", and  two spaces; \t tab\r\n\
         X-Latin: caf\u{e9}\r\n\
         X-Empty:\r\n\
         Content-Length: 5\r\n\r\nhello"
    );
    let own_fields = [
        "accept: */*",
        "content-length: 5",
        "content-type: application/octet-stream",
        "cookie: a=b",
        "cookie: c=d",
        "host: upload.example.com:8443",
        "x-cdi-checksum: sha256:00",
        "x-empty: ",
        "x-forwarded-for: 127.0.0.1",
        "x-latin: caf\u{e9}",
        "x-odd: \"quotes\", and  two spaces; \t tab",
    ];
    let hop_by_hop = format!(
        "PUT {PATH} HTTP/1.1\r\n\
         Host: localhost\r\n\
         Authorization: {bearer}\r\n\
         Connection: keep-alive, X-Private, x-forwarded-for,content-length, host\r\n\
         Connection: X-Secret\r\n\
         X-Private: 1\r\n\
         X-Secret: 2\r\n\
         X-Public: 3\r\n\
         Keep-Alive: timeout=5\r\n\
         Proxy-Connection: keep-alive\r\n\
         Proxy-Authorization: Basic eDp5\r\n\
         Proxy-Authenticate: Basic\r\n\
         TE: gzip, trailers\r\n\
         Trailer: X-Checksum\r\n\
         Upgrade: websocket\r\n\
         Content-Length: 5\r\n\r\nhello"
    );
    let hop_fields = [
        "content-length: 5",
        "host: localhost",
        "te: trailers",
        "x-forwarded-for: 127.0.0.1",
        "x-public: 3",
    ];
    let chunked = hop_by_hop
        .replace("Content-Length: 5", "Transfer-Encoding: chunked")
        .replace("hello", "5\r\nhello\r\n0\r\n\r\n");
    let chunked_fields = [
        "host: localhost",
        "te: trailers",
        "trailer: X-Checksum",
        "transfer-encoding: chunked",
        "x-forwarded-for: 127.0.0.1",
        "x-public: 3",
    ];
    for (head, expected) in
        [(own, &own_fields[..]), (hop_by_hop, &hop_fields), (chunked, &chunked_fields)]
    {
        let mut connection = front.server.connect();
        connection.send(head.as_bytes()).or_fail("send");
        let response = connection.response().or_fail("an answer");
        assert_eq!(response.status, 200, "{response:?}");
        let seen = front.upstream.seen();
        let seen = seen.last().or_fail("a request");
        assert_eq!(seen.request_line(), format!("PUT {PATH} HTTP/1.1"));
        assert_eq!(fields(&seen.head), expected);
        assert_eq!(seen.body(), b"hello");
    }
}

#[test]
fn the_address_of_the_client_is_appended_to_x_forwarded_for() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    for (sent, arrives) in [
        (&[][..], "127.0.0.1"),
        (&["10.1.2.3"], "10.1.2.3, 127.0.0.1"),
        (&["10.1.2.3, 10.4.5.6"], "10.1.2.3, 10.4.5.6, 127.0.0.1"),
        (&["10.1.2.3", "::1"], "10.1.2.3, ::1, 127.0.0.1"),
    ] {
        let request = sent.iter().fold(front.request("POST", PATH), |request, value| {
            request.header("X-Forwarded-For", value)
        });
        assert_eq!(front.server.exchange(&request, b"x").status, 200);
        let seen = front.upstream.seen();
        assert_eq!(seen.last().unwrap().headers("x-forwarded-for"), [arrives]);
    }
}

#[test]
fn bodies_arrive_complete_in_every_framing() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let mut random = Random::new(5);
    let content = disk::content(5, 40_000);
    let forms = form(&[testkit::framing::Part::file(&content)]);
    let request = || front.request("POST", PATH);
    for (case, request, body, arrives) in [
        ("length", request().length(content.len()), content.clone(), &content),
        ("empty", request().length(0), Vec::new(), &Vec::new()),
        ("chunks", request().chunked(), chunked(&content, 1000, &[]), &content),
        ("odd chunks", request().chunked(), oddly_chunked(&content, &mut random), &content),
        (
            "trailers",
            request().chunked(),
            chunked(&content, 7, &[("x-cdi-content-type", "blockdevice-clone")]),
            &content,
        ),
        ("no chunks", request().chunked(), chunked(b"", 1, &[]), &Vec::new()),
        (
            "a form",
            request().header("Content-Type", &form_content_type()).length(forms.len()),
            forms.clone(),
            &forms,
        ),
    ] {
        let response = front.server.exchange(&request, &body);
        assert_eq!(response.status, 200, "{case}: {response:?}");
        let seen = front.upstream.seen();
        let last = seen.last().unwrap();
        assert_eq!(last.end(), Some(End::Complete), "{case}");
        assert!(last.body() == *arrives, "{case}: {} bytes arrived", last.body_bytes());
        let is_chunked = request_is_chunked(&request);
        assert_eq!(
            last.headers("transfer-encoding").len(),
            usize::from(is_chunked),
            "{case}: {}",
            last.head
        );
        assert_eq!(last.headers("content-length").len(), usize::from(!is_chunked), "{case}");
    }
}

fn request_is_chunked(request: &Request) -> bool {
    String::from_utf8_lossy(&request.bytes()).contains("Transfer-Encoding")
}

#[test]
fn a_connection_serves_one_request_after_another() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let mut connection = front.server.connect();
    for index in 0..20_usize {
        let body = vec![b'x'; index * 1000];
        let response = connection.exchange(&front.request("POST", PATH), &body).unwrap();
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(front.upstream.seen().last().unwrap().body_bytes(), body.len() as u64);
    }
    assert_eq!(front.upstream.seen().len(), 20);
}

#[test]
fn an_answer_is_passed_on_unchanged() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    for status in [200, 201, 202, 301, 400, 401, 404, 409, 413, 418, 500, 502, 503, 507] {
        let answer = format!(
            "HTTP/1.1 {status} Odd Reason\r\n\
             Content-Type: application/x-odd; charset=none\r\n\
             Set-Cookie: a=b\r\n\
             Set-Cookie: c=d\r\n\
             Location: https://elsewhere/\r\n\
             Upload-Offset: 17\r\n\
             X-Public: 1\r\n\
             X-Private: 2\r\n\
             Connection: X-Private, keep-alive\r\n\
             Keep-Alive: timeout=5\r\n\
             Proxy-Authenticate: Basic\r\n\
             Proxy-Connection: close\r\n\
             Upgrade: h2c\r\n\
             Trailer: X-Late\r\n\
             Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             Content-Length: 4\r\n\r\nbody"
        );
        front.upstream.follow(Script::answer(answer));
        let response = front.server.exchange(&front.request("POST", PATH), b"x");
        response.assert(status, "body");
        let mut fields: Vec<_> = response
            .headers
            .iter()
            .filter(|(name, _)| name != "vary")
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        fields.sort();
        assert_eq!(
            fields,
            [
                "content-length: 4",
                "content-type: application/x-odd; charset=none",
                "date: Sun, 06 Nov 1994 08:49:37 GMT",
                "location: https://elsewhere/",
                "set-cookie: a=b",
                "set-cookie: c=d",
                "upload-offset: 17",
                "x-public: 1",
            ],
            "{status}"
        );
    }
}

#[test]
fn the_clone_header_of_our_upload_server_is_not_passed_on() {
    let proxy = UploadProxy::new(BINARY);
    let pod = UploadPod::of_cluster(&beside(BINARY, "cdi-uploadserver"), proxy.cluster(), &[]);
    let upload_server = pod.start();
    let proxy = proxy.route("disk", upload_server.address());
    let server = proxy.start();
    let head = Request::new("HEAD", "/v1beta1/upload-async")
        .header("Authorization", &proxy.bearer("disk"));
    for head in [head.clone(), head.header("x-cdi-workers-clone", "zstd")] {
        let answer = server.exchange(&head, b"");
        assert_eq!(
            (answer.status, answer.header("x-cdi-workers-clone")),
            (200, None),
            "{answer:?}"
        );
    }
}

#[test]
fn a_body_of_impossible_length_is_refused() {
    const MOST: u64 = 1 << 50;
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    for length in [MOST + 1, i64::MAX as u64, 1 << 63, u64::MAX - 2] {
        for method in ["POST", "PUT", "PATCH"] {
            let request = front.request(method, PATH).header("Content-Length", &length.to_string());
            let response = front.server.exchange(&request, b"");
            let sentence = format!("a body of {length} bytes is too large: the limit is {MOST}\n");
            response.assert(413, &sentence);
        }
    }
    assert_eq!(front.upstream.seen().len(), 0);
}

#[test]
fn answers_without_a_body_are_passed_on_without_one() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let mut connection = front.server.connect();
    for status in [204, 304] {
        let answer = format!("HTTP/1.1 {status} x\r\nUpload-Offset: 5\r\n\r\n");
        front.upstream.follow(Script::answer(answer));
        let response = connection.exchange(&front.request("PATCH", PATH).length(1), b"x").unwrap();
        assert_eq!((response.status, response.header("upload-offset")), (status, Some("5")));
    }
}

#[test]
fn answers_in_chunks_or_until_the_close_arrive_complete() {
    let content = vec![b'y'; 300_000];
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let chunks = [
        &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..],
        &chunked(&content, 5000, &[("x-late", "1")]),
    ]
    .concat();
    let until_close = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &content].concat();
    for script in [
        Script::answer(chunks),
        Script { then: testkit::upstream::Then::Close, ..Script::answer(until_close) },
    ] {
        front.upstream.follow(script);
        let response = front.server.exchange(&front.request("POST", PATH), b"x");
        assert_eq!(response.status, 200);
        assert!(response.body == content, "{} bytes", response.body.len());
    }
}
