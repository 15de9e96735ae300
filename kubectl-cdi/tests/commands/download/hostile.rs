//! Pods that do not follow the protocol.

use std::fs;
use std::time::Duration;

use testkit::adversary::{Adversary, Reply};
use testkit::wire::Request;

use super::Scene;

const SIZE: u64 = 1 << 20;

/// The checkpoint of an empty prefix, as a correct pod sends it.
const EMPTY: &str = "0:ffffffffffffffff\n";

/// Returns the response to a request for checkpoints.
type CheckpointList = Box<dyn Fn() -> Reply + Send + Sync>;

fn sized(reply: Reply, size: &str) -> Reply {
    reply.with("x-cdi-disk-bytes", size)
}

/// A pod that answers the first request correctly, and the others with `answer`.
fn pod(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Adversary {
    Adversary::start(move |request, _| match request.path() {
        "/checkpoints/0" => sized(Reply::of(EMPTY), &SIZE.to_string()),
        _ => answer(request),
    })
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    testkit::tools::filter("zstd", ["-c"], bytes)
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_pod_cannot_fill_the_disk_or_the_memory_or_choose_a_name() {
    let size = SIZE.to_string();
    let of_size = move |reply| sized(reply, &size);
    let too_much = zstd(&vec![1; 2 << 20]);
    let (a, b, c, d) = (of_size.clone(), of_size.clone(), of_size.clone(), of_size.clone());
    let cases: Vec<(&str, Adversary)> = vec![
        ("no valid size of the disk", Adversary::start(|_, _| Reply::of(EMPTY))),
        (
            "no valid size of the disk",
            Adversary::start(|_, _| sized(Reply::of(EMPTY), "18446744073709551615")),
        ),
        ("no valid size of the disk", Adversary::start(|_, _| sized(Reply::of(EMPTY), "-1"))),
        (
            "the status 302 Found",
            Adversary::start(|_, _| Reply::status(302, "").with("Location", "/x")),
        ),
        (
            "the volume cannot be read: \\u{1b}[31mred",
            Adversary::start(|_, _| Reply::status(500, "\u{1b}[31mred")),
        ),
        (
            "more than the 1048576 bytes of the disk",
            pod(move |_| a(Reply::chunked(too_much.clone()))),
        ),
        (
            "a disk of 7 bytes, although it had 1048576 bytes before",
            pod(|_| sized(Reply::of("x"), "7")),
        ),
    ];
    for (sentence, server) in cases {
        let scene = Scene::new();
        scene.claim("Filesystem", b"disk");
        scene.kubelet.lead_to(server.address());
        scene.download().start().wait().assert_failure(3, sentence);
        assert!(!scene.path("copy").exists(), "{sentence}");
        scene.assert_no_pods();
    }
    let disk = zstd(&vec![1; 1 << 20]);
    let lists: [(&str, CheckpointList); 3] = [
        ("a malformed checkpoint", Box::new(move || b(Reply::of("../../etc/passwd\n")))),
        (
            "a line of checkpoints that does not end",
            Box::new(move || c(Reply::endless("0".repeat(4096), Duration::ZERO))),
        ),
        (
            "the disk changed 10 times",
            Box::new(move || d(Reply::of(format!("{SIZE}:0123456789abcdef\n")))),
        ),
    ];
    for (sentence, list) in lists {
        let scene = Scene::new();
        scene.claim("Filesystem", b"disk");
        let (disk, of_size) = (disk.clone(), of_size.clone());
        let server = pod(move |request| match request.path().starts_with("/disk/") {
            true => of_size(Reply::chunked(disk.clone())),
            false => list(),
        });
        scene.kubelet.lead_to(server.address());
        scene.download().start().wait().assert_failure(3, sentence);
        assert!(!scene.path("copy").exists(), "{sentence}");
        let mut names: Vec<_> = fs::read_dir(scene.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|name| name != "copy.partial" && name != "volume");
        assert!(names.is_empty(), "{names:?}");
    }
}
