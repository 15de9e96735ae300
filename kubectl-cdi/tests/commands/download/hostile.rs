//! Pods that do not follow the protocol.

use std::fs;
use std::time::Duration;

use testkit::adversary::{Adversary, Reply};
use testkit::wire::Request;

use super::Scene;

const SIZE: u64 = 1 << 20;

/// The checksum of an empty prefix, as a correct pod sends it.
const EMPTY: &str = "0:ffffffffffffffff\n";

fn sized(reply: Reply, size: &str) -> Reply {
    reply.with("x-cdi-disk-bytes", size)
}

/// Adds the size of the disk, as a correct pod does.
fn of_disk(reply: Reply) -> Reply {
    sized(reply, &SIZE.to_string())
}

/// A pod that answers each request in the same way.
fn always(answer: fn() -> Reply) -> Adversary {
    Adversary::start(move |_, _| answer())
}

/// A pod that answers the first request correctly, and the others with `answer`.
fn pod(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Adversary {
    Adversary::start(move |request, _| match request.path() {
        "/prefixes/0" => of_disk(Reply::of(EMPTY)),
        _ => answer(request),
    })
}

/// A pod whose disk is correct, and whose later lists of checksums are `list`.
fn listing(disk: &[u8], list: impl Fn() -> Reply + Send + Sync + 'static) -> Adversary {
    let disk = disk.to_vec();
    pod(move |request| match request.path().starts_with("/disk/") {
        true => of_disk(Reply::chunked(disk.clone())),
        false => of_disk(list()),
    })
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_pod_cannot_fill_the_disk_or_the_memory_or_choose_a_name() {
    let zstd = |bytes: &[u8]| testkit::tools::filter("zstd", ["-c"], bytes);
    let too_much = zstd(&vec![1; 2 << 20]);
    let disk = zstd(&vec![1; 1 << 20]);
    let no_size = "no valid size of the disk";
    for (sentence, server) in [
        (no_size, always(|| Reply::of(EMPTY))),
        (no_size, always(|| sized(Reply::of(EMPTY), "18446744073709551615"))),
        (no_size, always(|| sized(Reply::of(EMPTY), "-1"))),
        ("the status 302 Found", always(|| Reply::status(302, "").with("Location", "/x"))),
        (
            "the volume cannot be read: \\u{1b}[31mred",
            always(|| Reply::status(500, "\u{1b}[31mred")),
        ),
        (
            "more than the 1048576 bytes of the disk",
            pod(move |_| of_disk(Reply::chunked(too_much.clone()))),
        ),
        (
            "a disk of 7 bytes, although it had 1048576 bytes before",
            pod(|_| sized(Reply::of("x"), "7")),
        ),
        ("a malformed checksum", listing(&disk, || Reply::of("../../etc/passwd\n"))),
        (
            "a line of checksums that does not end",
            listing(&disk, || Reply::endless("0".repeat(4096), Duration::ZERO)),
        ),
        (
            "the disk changed 10 times",
            listing(&disk, || Reply::of(format!("{SIZE}:0123456789abcdef\n"))),
        ),
    ] {
        let scene = Scene::new();
        scene.claim("Filesystem", b"disk");
        scene.kubelet.lead_to(server.address());
        scene.download().start().wait().assert_failure(3, sentence);
        scene.assert_no_pods();
        let mut names: Vec<_> = fs::read_dir(scene.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|name| name != "copy.partial" && name != "volume");
        assert!(names.is_empty(), "{sentence}: {names:?}");
    }
}
