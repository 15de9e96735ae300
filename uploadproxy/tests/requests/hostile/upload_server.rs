//! Answers of upload servers that are not ours, or are hostile.

use std::time::Duration;

use testkit::fail::OrFail;
use testkit::https::Connection;
use testkit::upload_proxy::Scripted;
use testkit::upstream::{Reads, Says, Script, Then};

use crate::hostile::{BINARY, PATH};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";

fn front(script: Script) -> Scripted {
    Scripted::start_for(BINARY, 2, vec![script])
}

#[test]
fn answers_that_never_begin_are_given_up() {
    for (what, bytes) in [
        ("interim answers", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n".repeat(100_000)),
        ("continues", "HTTP/1.1 100 Continue\r\n\r\n".repeat(100_000)),
        ("a long head", format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(1 << 20))),
        ("many fields", format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(10_000))),
        ("a long reason", format!("HTTP/1.1 200 {}", "x".repeat(1 << 20))),
        ("empty lines", "\r\n".repeat(1 << 19)),
    ] {
        let front = front(Script { then: Then::Hang, ..Script::answer(bytes) });
        let response = front.server.exchange(&front.request("POST", PATH), b"body");
        assert_eq!(response.status, 502, "{what}: {response:?}");
    }
}

/// Returns all answers of the proxy to raw bytes, until it is silent.
fn raw(front: &Scripted, request: &[u8]) -> String {
    let mut connection: Connection = front.server.connect();
    connection.send(request).or_fail("send");
    let mut all = String::new();
    connection.set_patience(Duration::from_millis(500)).or_fail("a time limit");
    while let Ok(response) = connection.response() {
        all += &format!("{response:?}\n");
    }
    all
}

/// In the answers, `{ok}` stands for the beginning of a head, and `{hidden}` for another answer.
#[test]
fn an_answer_is_one_answer_whatever_lengths_it_declares() {
    let hidden = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled";
    let check = |what: &str, answer: &str, outcome: Option<&str>| {
        let answer = answer.replace("{ok}", "HTTP/1.1 200 OK\r\n").replace("{hidden}", hidden);
        let front = front(Script { then: Then::Hang, ..Script::answer(answer) });
        // The second request comes while the connection to the upload server could be reused.
        let one = front.request("POST", PATH).length(0).bytes();
        let all = raw(&front, &[&one[..], &one].concat());
        assert!(!all.contains("smuggled"), "{what}: {all}");
        let first = all.lines().next().or_fail(format!("{what}: no answer"));
        let is_fine = match outcome {
            Some(body) => {
                (first.starts_with("200 ") || first.starts_with("204 "))
                    && first.ends_with(&format!("{body:?}"))
            }
            None => first.starts_with("502 "),
        };
        assert!(is_fine, "{what}: {all}");
    };
    let length_and_chunks = "{ok}Content-Length: 400\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n{hidden}";
    let in_trailers =
        "{ok}Transfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\nX: y\n\r\n{hidden}\r\n\r\n";
    let upgrade =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n{hidden}";
    let no_body = "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n{hidden}";
    let line_break = "{ok}X: a\rSet-Cookie: b\r\nContent-Length: 4\r\n\r\nfine";
    std::thread::scope(|scope| {
        for (what, answer, outcome) in [
            ("two lengths", "{ok}Content-Length: 4\r\nContent-Length: 5\r\n\r\nfine{hidden}", None),
            ("a length and chunks", length_and_chunks, None),
            ("a list of lengths", "{ok}Content-Length: 4, 5\r\n\r\nfine{hidden}", None),
            ("a length with a sign", "{ok}Content-Length: +4\r\n\r\nfine{hidden}", None),
            ("a body that is longer", "{ok}Content-Length: 4\r\n\r\nfine{hidden}", Some("fine")),
            ("a body where none may be", no_body, Some("")),
            ("an answer in trailers", in_trailers, Some("fine")),
            ("a huge length", "{ok}Content-Length: 18446744073709551615\r\n\r\nfine", None),
            ("a line break in a field", line_break, None),
            ("an upgrade", upgrade, None),
        ] {
            scope.spawn(move || check(what, answer, outcome));
        }
    });
}

#[test]
fn an_unrequested_second_answer_reaches_no_client() {
    let mark = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nleft over";
    // An unrequested second answer follows the first, after the whole request or after its head.
    for script in [
        Script::answer(format!("{OK}{mark}")),
        Script { reads: Reads::Head, ..Script::answer(format!("{OK}{mark}")) },
        // Here the marked answer is the expected one, an unrequested one follows, and the
        // connection stays open for the next request.
        Script {
            reads: Reads::Head,
            says: Says::Bytes(format!("{mark}{OK}").into_bytes()),
            then: Then::NextRequest,
        },
    ] {
        let is_third =
            matches!(&script.says, Says::Bytes(bytes) if bytes.starts_with(mark.as_bytes()));
        let front =
            Scripted::start_for(BINARY, 2, vec![Script::answer(OK), script, Script::answer(OK)]);
        let mut bodies = Vec::new();
        for round in 0..4 {
            // Clients of two PVCs that have the same upload server.
            let pvc = &front.pvcs[round % 2];
            let body = if round == 1 { &[b'x'; 100_000][..] } else { b"x" };
            bodies.push(front.server.exchange(&front.request_for(pvc, "POST", PATH), body).text());
        }
        let expected = if is_third { ["fine", "left over", "fine", "fine"] } else { ["fine"; 4] };
        assert_eq!(
            bodies,
            expected,
            "{:?}",
            front.upstream.seen().iter().map(|seen| seen.connection).collect::<Vec<_>>()
        );
    }
}

#[test]
fn the_connection_of_a_disconnected_client_is_not_reused() {
    for body in [&b"x"[..], &[b'x'; 1 << 20]] {
        let front = Scripted::start_for(BINARY, 2, vec![Script::silent(), Script::answer(OK)]);
        let mut gone = front.server.connect();
        gone.begin(&front.request("POST", PATH).length(body.len() + 1)).or_fail("send");
        gone.send(body).or_fail("send");
        front.upstream.wait_for("the first", |seen| seen.iter().any(|seen| seen.body_bytes() > 0));
        drop(gone);
        let other = front.request_for(&front.pvcs[1], "POST", PATH);
        front.server.exchange(&other, b"x").assert(200, "fine");
        let seen = front.upstream.seen();
        assert_ne!(seen[0].connection, seen[1].connection);
    }
}
