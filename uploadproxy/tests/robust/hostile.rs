//! The memory of the proxy beside API servers that send without end.

use std::time::Duration;

use testkit::fail::OrFail;
use testkit::https::{Connection, Request};
use testkit::kube_api::{Answer, KubeApi, ready_pvc};
use testkit::upload_proxy::{NAMESPACE, UploadProxy};
use testkit::upstream::{Script, Upstream};
use testkit::wait;

use crate::{BINARY, PATH, memory};

/// Limit on the growth of the proxy's memory, whatever the API server sends.
const GROWTH_BYTES: u64 = 48 << 20;

#[test]
#[ignore = "alone: measures memory"]
fn answers_of_the_api_server_without_end_take_little_memory() {
    let proxy = UploadProxy::new(BINARY);
    let name = format!("cdi-upload-disk.{NAMESPACE}.svc");
    let upstream = Upstream::start(proxy.cluster(), &[name], vec![Script::echo()]);
    let api = KubeApi::start(&proxy.cluster().pem());
    api.set_object("disk", ready_pvc("disk"));
    api.set_watch(Answer::endless("{\"type\":\"", "x", Duration::ZERO));
    let server = proxy.start_in_cluster(&api, Some(upstream.address()));
    let request = |pvc: &str| Request::post(PATH).header("Authorization", &proxy.bearer(pvc));
    let first = server.exchange(&request("disk"), b"body");
    assert_eq!(first.status, 200, "{first:?}\n{}", server.log());
    let before = memory(server.id(), "VmRSS");

    let annotation = "{\"metadata\":{\"annotations\":{\"a\":\"";
    api.set_pvc("endless", [Answer::endless(annotation, "x", Duration::ZERO)]);
    // Almost the largest object that is allowed, which never ends.
    let large = format!("{annotation}{}", "x".repeat(2_000_000));
    let names: Vec<_> = (0..90).map(|number| format!("large-{number}")).collect();
    for name in &names {
        api.set_pvc(name, [Answer::endless(&large, "x", Duration::from_secs(1))]);
    }
    let begin = |pvc: &str| -> Connection {
        let mut connection = server.connect();
        connection.begin(&request(pvc).length(4)).or_fail("send");
        connection
    };
    let endless: Vec<_> = (0..32).map(|_| begin("endless")).collect();
    let all: Vec<_> = names.iter().map(|name| begin(name)).collect();
    wait::until(|| "no read", || names.iter().all(|name| api.reads_of(name) > 0));
    // The answers grow in real time, in another process.
    std::thread::sleep(Duration::from_secs(2));
    let grown = memory(server.id(), "VmHWM").saturating_sub(before);
    println!("{grown} bytes");
    assert!(grown < GROWTH_BYTES, "{grown} bytes");
    drop((endless, all));
}
