//! Answers before the body is sent, clients that disconnect, and bodies that are not read.

use std::time::{Duration, Instant};

use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::{Connection, Request, Response};
use testkit::upload_proxy::Scripted;
use testkit::upstream::{End, Script, answer};
use testkit::wait;

use crate::contract::BINARY;

const PATH: &str = "/v1beta1/upload";

/// Returns the next answer that is not an interim one.
fn final_response(connection: &mut Connection) -> Response {
    loop {
        let response = connection.response().or_fail("an answer");
        if response.status >= 200 {
            return response;
        }
        assert_eq!(response.status, 100, "{response:?}");
    }
}

#[test]
fn a_refused_upload_is_answered_before_its_body_is_sent() {
    let front = Scripted::start(BINARY, vec![Script::early(answer(409, ""))]);
    let expecting = |request: Request| request.length(1 << 40).header("Expect", "100-continue");
    // Refused by the proxy, without even an interim answer.
    for (request, status) in [
        (Request::post(PATH), 400),
        (Request::post(PATH).header("Authorization", "Bearer x"), 401),
        (Request::post("/nowhere"), 404),
    ] {
        let mut connection = front.server.connect();
        connection.begin(&expecting(request)).unwrap();
        let response = connection.response().unwrap();
        assert_eq!(response.status, status, "{response:?}");
    }
    assert_eq!(front.upstream.seen().len(), 0);
    // Refused by the upload server.
    let mut connection = front.server.connect();
    connection.begin(&expecting(front.request("POST", PATH))).unwrap();
    final_response(&mut connection).assert(409, "");
    assert_eq!(front.upstream.only().body_bytes(), 0);
}

#[test]
fn an_upload_that_expects_100_continue_gets_it() {
    let front = Scripted::start(BINARY, vec![Script::status(200, "done")]);
    let content = disk::content(1, 3 << 20);
    let mut connection = front.server.connect();
    let request = front.request("POST", PATH).length(content.len());
    connection.begin(&request.header("Expect", "100-continue")).unwrap();
    let interim = connection.response().unwrap();
    assert_eq!(interim.status, 100, "{interim:?}");
    connection.send(&content).unwrap();
    connection.response().unwrap().assert(200, "done");
    assert_eq!(front.upstream.only().body_bytes(), content.len() as u64);
}

#[test]
fn an_early_answer_reaches_a_client_that_is_still_sending() {
    // The body is much larger than all buffers on the way.
    let content = disk::content(2, 64 << 20);
    for status in [400, 401, 409, 503] {
        let front = Scripted::start(BINARY, vec![Script::early(answer(status, "no"))]);
        let mut connection = front.server.connect();
        let response = connection.exchange(&front.request("POST", PATH), &content).unwrap();
        response.assert(status, "no");
    }
    // The proxy's own refusals must also reach clients that send everything before they read.
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    for (request, status) in [
        (Request::post(PATH), 400),
        (Request::post(PATH).header("Authorization", "Bearer x"), 401),
        (Request::post("/nowhere"), 404),
    ] {
        let mut connection = front.server.connect();
        let small = &content[..256 << 10];
        connection.begin(&request.length(small.len())).unwrap();
        connection.send(small).unwrap();
        let response = connection.response().unwrap();
        assert_eq!(response.status, status, "{response:?}");
    }
}

#[test]
fn a_client_that_disconnects_ends_the_upload() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    for request in
        [front.request("POST", PATH).length(1 << 30), front.request("POST", PATH).chunked()]
    {
        let before = front.upstream.seen().len();
        let mut connection = front.server.connect();
        connection.begin(&request).unwrap();
        connection.send(b"1000\r\nsome of the body").unwrap();
        front.upstream.wait_for("the upload", |seen| {
            seen.get(before).is_some_and(|seen| seen.body_bytes() > 0)
        });
        drop(connection);
        let started = Instant::now();
        front.upstream.wait_for("its end", |seen| {
            seen.get(before).and_then(|seen| seen.end()) == Some(End::Aborted)
        });
        // The upload must end with its connection, not by a timeout of the proxy.
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
}

#[test]
fn a_client_that_disconnects_while_it_waits_ends_the_upload() {
    let front = Scripted::start(BINARY, vec![Script::silent()]);
    let mut connection = front.server.connect();
    connection.begin(&front.request("POST", PATH).length(4)).unwrap();
    connection.send(b"body").unwrap();
    front.upstream.wait_for("the upload", |seen| seen.iter().any(|seen| seen.end().is_some()));
    assert_eq!(front.upstream.open_connections(), 1);
    drop(connection);
    let is_closed = || front.upstream.open_connections() == 0;
    wait::until(|| "the upload server still waits", is_closed);
}

#[test]
fn interim_answers_of_an_upload_server_are_harmless() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    let all = [interim.as_bytes(), &answer(200, "fine")].concat();
    let front = Scripted::start(BINARY, vec![Script::answer(all)]);
    let mut connection = front.server.connect();
    for _ in 0..2 {
        connection.begin(&front.request("POST", PATH).length(1)).unwrap();
        connection.send(b"x").unwrap();
        let mut response = connection.response().unwrap();
        while response.status < 200 {
            response = connection.response().unwrap();
        }
        response.assert(200, "fine");
    }
}
