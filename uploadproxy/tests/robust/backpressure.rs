//! Ends that do not read: the proxy must not store data for them.

use std::time::Duration;

use testkit::fail::OrFail;
use testkit::upload_proxy::Scripted;
use testkit::upstream::{Reads, Script, Then};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::client::Client;
use crate::{BINARY, PATH, memory, time_upload};

/// Uploads at the same time, each of which may take up to 1 MiB of memory.
const UPLOADS: u64 = 16;

/// A sender without progress for this long is blocked.
const STUCK: Duration = Duration::from_secs(1);

#[test]
#[ignore = "alone: measures times or memory under load"]
fn an_upload_server_that_does_not_read_blocks_the_client() {
    let front = Scripted::start(BINARY, vec![Script::status(200, "")]);
    time_upload(&front);
    front.upstream.follow(Script::stop(Reads::Head, Then::Hang));
    let before = memory(front.server.id(), "VmRSS");
    let client = Client::new(&front, 1 << 40);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().or_fail("a runtime");
    let piece = vec![b'x'; 64 << 10];
    let mut streams = Vec::new();
    let mut sent = 0;
    for _ in 0..UPLOADS {
        streams.push(runtime.block_on(async {
            let mut stream = client.upload(0).await;
            while let Ok(written) = timeout(STUCK / 4, stream.write_all(&piece)).await {
                written.or_fail("a piece");
                sent += piece.len() as u64;
            }
            stream
        }));
        assert!(sent < UPLOADS * (64 << 20), "{sent} bytes were taken");
    }
    let grown = memory(front.server.id(), "VmHWM") - before;
    println!("{sent} bytes of {UPLOADS} uploads were taken, {grown} bytes of memory");
    assert!(grown < UPLOADS << 20, "{grown} bytes");
    drop(streams);
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn a_client_that_does_not_read_blocks_the_upload_server() {
    const ANSWER_BYTES: usize = 32 << 20;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {ANSWER_BYTES}\r\n\r\n");
    let answer = [head.as_bytes(), &vec![b'x'; ANSWER_BYTES]].concat();
    let front = Scripted::start(BINARY, vec![Script::status(200, ""), Script::answer(answer)]);
    time_upload(&front);
    let before = memory(front.server.id(), "VmRSS");
    let mut connection = front.server.connect();
    connection.begin(&front.request("POST", PATH).length(0)).or_fail("send");
    std::thread::sleep(STUCK);
    front.upstream.follow(Script::status(200, ""));
    time_upload(&front);
    let grown = memory(front.server.id(), "VmHWM") - before;
    assert!(grown < 2 << 20, "{grown} bytes");
    let response = connection.response().or_fail("an answer");
    assert_eq!((response.status, response.body.len()), (200, ANSWER_BYTES));
}
