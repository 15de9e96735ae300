//! Requests that the cloner sends to an upload server.

use testkit::upstream::{End, Reads, Script, Then};

use super::{Scene, start};

#[test]
fn upstreams_server_gets_the_requests_of_upstreams_cloner() {
    for (preallocation, message) in [
        ("false", "Clone Complete"),
        ("", "Clone Complete"),
        ("perhaps", "Clone Complete"),
        ("true", "Clone Complete, Preallocation applied"),
    ] {
        let scene = Scene::of_cdi(Script::status(200, ""));
        for files in [false, true] {
            let pod = scene.pod().env("PREALLOCATION", preallocation);
            let (pod, content) = if files {
                (pod.files(scene.folder.path()), "filesystem-clone")
            } else {
                (pod.block(&scene.disk()), "blockdevice-clone")
            };
            let finished = start(&pod);
            finished.assert_success(content);
            assert_eq!(pod.message().as_deref(), Some(message));
            let header = format!("Set header to {content}");
            for line in [&header, "clone complete", "Wrote "] {
                assert!(finished.stderr.contains(line), "no {line:?} in {}", finished.stderr);
            }
            let seen = scene.upstream.seen();
            let clone = seen.last().unwrap();
            assert_eq!(clone.request_line(), "POST /v1beta1/upload HTTP/1.1");
            assert_eq!(clone.headers("x-cdi-content-type"), [content]);
            assert_eq!(clone.headers("transfer-encoding"), ["chunked"]);
            assert_eq!(clone.headers("host"), [scene.upstream.address().to_string()]);
            assert!(clone.headers("x-cdi-workers-clone").is_empty());
            assert_eq!(clone.end(), Some(End::Complete));
            assert!(clone.body().starts_with(b"\xff\x06\0\0sNaPpY"));
        }
        assert_eq!(scene.upstream.seen()[0].request_line(), "HEAD /v1beta1/upload-async HTTP/1.1");
    }
}

#[test]
#[ignore = "slow: waits 6 s"]
fn an_odd_answer_about_encodings_does_not_fail_the_clone() {
    let odd = "HTTP/1.1 200 OK\r\nx-cdi-workers-clone: frames-1\r\nContent-Length: 0\r\n\r\n";
    let failed = "HTTP/1.1 500 No\r\nx-cdi-workers-clone: zstd\r\nContent-Length: 0\r\n\r\n";
    for question in [
        Script::answer(odd),
        Script::answer(failed),
        Script::answer("SSH-2.0\r\n"),
        Script::stop(Reads::Head, Then::Reset),
        Script::stop(Reads::Head, Then::Close),
        Script::stop(Reads::Head, Then::Hang),
    ] {
        let scene = Scene::new(vec![question, Script::status(200, "")]);
        let pod = scene.pod().block(&scene.disk());
        start(&pod).assert_success("clone");
        let seen = scene.upstream.seen();
        assert!(seen[1].body().starts_with(b"\xff\x06\0\0sNaPpY"));
    }
}

#[test]
fn a_server_that_accepts_zstd_gets_zstd_and_a_checksum_trailer() {
    let ours = "HTTP/1.1 200 OK\r\nX-Cdi-Workers-Clone: zstd\r\nContent-Length: 0\r\n\r\n";
    let scene = Scene::new(vec![Script::answer(ours), Script::status(200, "")]);
    start(&scene.pod().block(&scene.disk())).assert_success("clone");
    let seen = scene.upstream.seen();
    assert_eq!(seen[0].headers("x-cdi-workers-clone"), ["zstd"], "the HEAD request");
    assert_eq!(seen[1].headers("x-cdi-workers-clone"), ["zstd"]);
    assert_eq!(seen[1].headers("x-cdi-checksum"), ["crc64nvme"]);
    assert_eq!(seen[1].headers("trailer"), ["x-cdi-checksum"]);
    assert_eq!(seen[1].headers("x-cdi-content-type"), ["blockdevice-clone"]);
    assert!(seen[1].body().starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
}
