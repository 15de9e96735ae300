//! The failure of one upload server ends only its own upload.

use std::io;

use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::{Connection, Request, Response};
use testkit::upload_pod::UploadPod;
use testkit::upload_proxy::{UploadProxy, beside};

use crate::{BINARY, PATH};

const PVCS: [&str; 4] = ["first", "second", "third", "fourth"];

#[test]
fn a_killed_pod_ends_only_its_own_upload() {
    let upload_server = beside(BINARY, "cdi-uploadserver");
    let mut proxy = UploadProxy::new(BINARY);
    let pods = PVCS.map(|_| UploadPod::of_cluster(&upload_server, proxy.cluster(), &[]));
    let mut servers = pods.each_ref().map(|pod| Some(pod.start()));
    for (pvc, server) in PVCS.iter().zip(&servers) {
        proxy = proxy.route(pvc, server.as_ref().or_fail("a server").address());
    }
    let front = proxy.start();
    let contents = [0, 1, 2, 3].map(|seed| disk::content(seed, 8 << 20));
    let half = contents[0].len() / 2;
    let mut uploads: Vec<Connection> = PVCS
        .iter()
        .zip(&contents)
        .map(|(pvc, content)| {
            let request = Request::post(PATH).header("Authorization", &proxy.bearer(pvc));
            let mut connection = front.connect();
            connection.begin(&request.length(content.len())).or_fail("send");
            connection.send(&content[..half]).or_fail("send");
            connection
        })
        .collect();
    for server in servers.iter().flatten() {
        server.wait_for_state("uploading");
    }
    let victim = servers[1].take().or_fail("a server");
    victim.signal(Signal::KILL);
    victim.wait();
    let mut others = Vec::new();
    for (index, upload) in uploads.iter_mut().enumerate() {
        let rest = &contents[index][half..];
        let response = upload.send_until_answered(rest).and_then(|_| upload.response());
        if index == 1 {
            assert_gone(response);
        } else {
            response.or_fail(PVCS[index]).assert_uploaded();
            others.push(index);
        }
    }
    for index in others {
        let server = servers[index].take().or_fail("a server");
        server.wait().assert_success(PVCS[index]);
        let disk = std::fs::read(pods[index].disk()).or_fail("a disk");
        assert!(disk == contents[index], "{}", PVCS[index]);
    }
    // The proxy itself continues.
    let gone = Request::post(PATH).header("Authorization", &proxy.bearer("second"));
    assert_eq!(front.exchange(&gone, b"x").status, 502);
}

/// Checks the answer to the client of the killed pod.
fn assert_gone(response: io::Result<Response>) {
    let response = response.or_fail("a status, since none was sent before");
    assert_eq!(response.status, 502, "{response:?}");
    assert!(response.text().starts_with("error in upload-proxy: "), "{response:?}");
}

#[test]
fn a_restarted_pod_is_reached_again() {
    let upload_server = beside(BINARY, "cdi-uploadserver");
    let proxy = UploadProxy::new(BINARY);
    let pod = UploadPod::of_cluster(&upload_server, proxy.cluster(), &[]);
    let server = pod.start();
    let address = server.address();
    let proxy = proxy.route("disk", address);
    let front = proxy.start();
    let head = Request::new("HEAD", "/v1beta1/upload-async")
        .header("Authorization", &proxy.bearer("disk"));
    assert_eq!(front.exchange(&head, b"").status, 200);
    server.signal(Signal::KILL);
    server.wait();
    assert_eq!(front.exchange(&head, b"").status, 502);
    let again = pod.serve(pod.program().env("LISTEN_PORT", address.port().to_string()));
    // A connection to the killed pod must not be reused.
    let content = disk::content(5, 1 << 20);
    let request = Request::post(PATH).header("Authorization", &proxy.bearer("disk"));
    front.exchange(&request, &content).assert_uploaded();
    again.wait().assert_success("the second pod");
    assert!(std::fs::read(pod.disk()).or_fail("a disk") == content);
}
