//! Uploads by tus 1.0 that are interrupted and resumed.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::{Request, Response};
use testkit::upload_proxy::PVC;

use crate::clients::Pair;

const CREATE: &str = "/v1beta1/upload-resumable";

fn tus(pair: &Pair, method: &str, path: &str) -> Request {
    Request::new(method, path)
        .header("Authorization", &pair.proxy.bearer(PVC))
        .header("Tus-Resumable", "1.0.0")
}

fn patch(pair: &Pair, path: &str, offset: usize) -> Request {
    tus(pair, "PATCH", path)
        .header("Content-Type", "application/offset+octet-stream")
        .header("Upload-Offset", &offset.to_string())
}

/// Creates an upload of `length` bytes and returns its path, which is below the requested one.
fn create(pair: &Pair, length: usize) -> String {
    let request = tus(pair, "POST", CREATE).header("Upload-Length", &length.to_string()).length(0);
    let response = pair.front.exchange(&request, b"");
    assert_eq!(response.status, 201, "{response:?}\n{}", pair.logs());
    let location = response.header("location").or_fail("a location");
    let path = location.find(CREATE).and_then(|at| location.get(at..));
    let path = path.or_fail(format!("{location} is below {CREATE}"));
    // A client that follows it must reach this proxy again.
    let upstream = pair.upload_server.address().to_string();
    assert!(!location.contains(&upstream), "{location}");
    path.to_owned()
}

fn offset(response: &Response) -> usize {
    let offset = response.header("upload-offset").and_then(|offset| offset.parse().ok());
    offset.or_fail(format!("an offset in {response:?}"))
}

#[test]
fn an_upload_resumes_after_a_disconnect_or_the_death_of_the_proxy() {
    let content = disk::content(7, 16 << 20);
    let cut = content.len() / 10 * 9;
    for proxy_dies in [false, true] {
        let mut pair = Pair::new();
        let path = create(&pair, content.len());
        let mut connection = pair.front.connect();
        connection.begin(&patch(&pair, &path, 0).length(content.len())).unwrap();
        assert_eq!(connection.send_until_answered(&content[..cut]).unwrap(), cut);
        pair.upload_server.wait_for_status(&[&format!("\"received_bytes\":{cut},")]);
        if proxy_dies {
            // The old proxy is killed when it is dropped.
            pair.front = pair.proxy.start();
        } else {
            drop(connection);
        }
        pair.upload_server.wait_for_state("waiting");
        let head = pair.front.exchange(&tus(&pair, "HEAD", &path), b"");
        assert_eq!(head.header("tus-resumable"), Some("1.0.0"), "{head:?}");
        let kept = offset(&head);
        assert!(kept <= cut && cut - kept < content.len() / 100, "{kept} of {cut}");
        let response = pair.front.exchange(&patch(&pair, &path, kept), &content[kept..]);
        assert_eq!(response.status, 204, "{response:?}\n{}", pair.logs());
        assert_eq!(offset(&response), content.len());
        pair.upload_server.wait().assert_success("resume");
        assert!(std::fs::read(pair.pod.disk()).unwrap() == content);
    }
}
