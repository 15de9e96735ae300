//! Ten thousand connections.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::fail::OrFail;
use testkit::upload_proxy::Scripted;
use testkit::upstream::Script;

use crate::client::Client;
use crate::{BINARY, memory, time_upload};

const CONNECTIONS: usize = 10_000;

/// Files that this process and the proxy, each, may open: a connection is one.
const FILES: u64 = 16_384;

/// Lets this process open [`FILES`] files, and the programs that it starts.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < FILES) {
        let maximum = limit.maximum.map(|maximum| maximum.max(FILES));
        let raised = Rlimit {
            current: Some(FILES),
            maximum,
        };
        setrlimit(Resource::Nofile, raised).or_fail("more open files");
    }
}

#[test]
fn ten_thousand_silent_connections_do_not_hinder_an_upload() {
    raise_file_limit();
    let front = Scripted::start(BINARY, vec![Script::status(200, "")]);
    let before = memory(front.server.id(), "VmRSS");
    let client = Client::new(&front, 1 << 30);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_fail("a runtime");
    let mut took = Vec::new();
    let mut connections = Vec::new();
    for index in 0..CONNECTIONS {
        connections.push(runtime.block_on(client.connect()));
        if index % (CONNECTIONS / 10) == 0 {
            took.push(time_upload(&front));
        }
    }
    took.push(time_upload(&front));
    let grown = memory(front.server.id(), "VmHWM") - before;
    took.sort();
    let longest = took.last().or_fail("uploads");
    println!(
        "an upload beside up to {CONNECTIONS} connections took at most {longest:?}; {grown} bytes of memory"
    );
    // One may be unlucky: its connection is asked for a second time when the queue of new ones is full for a moment (RFC 6298 §2.1).
    assert!(took[took.len() / 2] < Duration::from_secs(1), "{took:?}");
    assert!(*longest < Duration::from_secs(5), "{took:?}");
    assert!(grown < 512 << 20, "{grown} bytes");
    drop(connections);
}
