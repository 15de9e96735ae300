//! Downloads that are interrupted and resumed.

use std::fs;
use std::os::unix::fs::FileExt;

use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::random::Random;
use testkit::tools;

use super::{MIB, Scene, data_bytes};
use crate::upload::last_event;

#[test]
#[ignore = "server: Kubernetes"]
fn a_download_resumes_after_cuts_deleted_pods_and_killed_clients() {
    let scene = Scene::new();
    let content = disk::content(23, 384 * MIB);
    scene.claim("Filesystem", &content);
    let start = || scene.download().start();
    let mut running = start();
    let mut random = Random::new(8);
    let mut kept = 0;
    for cut in 0..20 {
        scene.wait_until_forwarded(&running, scene.kubelet.forwarded() + random.below(12 * MIB));
        if matches!(cut, 5 | 10 | 15) {
            scene.kubelet.delete_pods();
        }
        scene.kubelet.cut();
        if matches!(cut, 1 | 3 | 8) {
            running.signal(Signal::KILL);
            running.wait();
            kept = fs::metadata(scene.path("copy.partial")).map_or(0, |partial| partial.len());
            running = start();
        }
    }
    let finished = running.wait();
    finished.assert_success("the download");
    scene.assert_complete(&content);
    assert!(scene.kubelet.made().len() >= 7, "{}", scene.kubelet.made().len());
    let resumed = format!("resuming after {kept} bytes");
    assert!(finished.stderr.contains(&resumed), "{kept}: {}", finished.stderr);
    let event = last_event(&finished);
    let received = event["received_bytes"].as_u64().or_fail("a number");
    assert!(received < (content.len() as u64 - kept) / 100 * 102, "{event}");
    assert!(event["retries"].as_u64() >= Some(5), "{event}");
}

#[test]
#[ignore = "server: Kubernetes"]
fn another_process_resumes_a_killed_or_stopped_download() {
    let scene = Scene::new();
    let content = disk::sparse_content(24, 512 * MIB, 2);
    scene.claim("Block", &content);
    for signal in [Signal::KILL, Signal::KILL, Signal::INT, Signal::KILL] {
        let running = scene.download().start();
        scene.wait_until_forwarded(&running, scene.kubelet.forwarded() + 24 * MIB);
        running.signal(signal);
        let finished = running.wait();
        assert!(!scene.path("copy").exists(), "an incomplete disk has got its name");
        if signal == Signal::INT {
            finished.assert_failure(130, "the same command resumes the download");
            scene.assert_no_pods();
        }
    }
    let running = scene.download().start();
    let finished = running.wait();
    finished.assert_success("the download");
    assert!(finished.stderr.contains("resuming after "), "{}", finished.stderr);
    scene.assert_complete(&content);
    let (forwarded, whole) = (scene.kubelet.forwarded(), data_bytes(&content));
    // What was in flight when the client was killed, in three sockets and their programs.
    assert!(forwarded < whole + 5 * 16 * MIB, "{forwarded} of {whole}");
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_damaged_part_is_downloaded_again_and_an_unrelated_file_kept() {
    let scene = Scene::new();
    // Over a slow network, all of it is compressed, to 121 MiB.
    let mut content = disk::content(25, 288 * MIB);
    let volume = scene.claim("Filesystem", &content);
    let stop = |mark| {
        let running = scene.download().start();
        scene.wait_until_forwarded(&running, scene.kubelet.forwarded() + mark);
        running.signal(Signal::INT);
        running.wait()
    };
    stop(96 * MIB);
    // The local disk loses a write after the first checksum.
    let partial = fs::OpenOptions::new().write(true).open(scene.path("copy.partial"));
    partial.or_fail("the partial file").write_all_at(b"damage", 70 * MIB).or_fail("a write");
    let finished = stop(16 * MIB);
    let sentence = format!("only {} of them are kept", 64 * MIB);
    assert!(finished.stderr.contains(&sentence), "{}", finished.stderr);
    // The volume changes before the first checksum.
    content[..3].copy_from_slice(b"new");
    let file = fs::OpenOptions::new().write(true).open(volume).or_fail("the volume");
    file.write_all_at(b"new", 0).or_fail("a write");
    // Nothing shows that the file belongs to this download, so the user has to delete it.
    let refused = "copy.partial is not the beginning of this disk: delete it";
    scene.download().start().wait().assert_failure(7, refused);
    assert!(fs::metadata(scene.path("copy.partial")).is_ok_and(|partial| partial.len() > 64 * MIB));
    fs::remove_file(scene.path("copy.partial")).or_fail("a removal");
    scene.download().start().wait().assert_success("the download");
    scene.assert_complete(&content);
}

#[test]
#[ignore = "server: Kubernetes"]
fn another_process_resumes_a_compressed_download_or_an_image() {
    let scene = Scene::new();
    // Over a slow network, all of it is compressed, to 54 MiB.
    let content = disk::sparse_content(28, 256 * MIB, 2);
    scene.claim("Filesystem", &content);
    for (name, arguments) in
        [("copy.zst", &[][..]), ("copy.qcow2", &[]), ("zstd.qcow2", &["--compression", "zstd"])]
    {
        for _ in 0..2 {
            let running = scene.program("pvc/disk", name).args(arguments).start();
            scene.wait_until_forwarded(&running, scene.kubelet.forwarded() + 12 * MIB);
            scene.kubelet.cut();
            scene.wait_until_forwarded(&running, scene.kubelet.forwarded() + 6 * MIB);
            running.signal(Signal::KILL);
            running.wait();
        }
        let partial = scene.path(&format!("{name}.partial"));
        assert!(!tools::qemu_converts("qcow2", &partial, &scene.path("raw")), "{name}");
        let finished = scene.program("pvc/disk", name).args(arguments).start().wait();
        finished.assert_success(name);
        assert!(finished.stderr.contains("resuming after "), "{}", finished.stderr);
        assert!(scene.decode(name) == content, "{name} differs");
        scene.assert_no_pods();
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_pipe_survives_a_cut() {
    let scene = Scene::new();
    let content = disk::content(26, 64 * MIB);
    scene.claim("Filesystem", &content);
    let running = scene.download_to_pipe("raw").start();
    scene.wait_until_forwarded(&running, 16 * MIB);
    scene.kubelet.cut();
    let finished = running.wait();
    finished.assert_success("the download");
    assert!(fs::read(scene.path("piped")).or_fail("the pipe") == content, "the pipe differs");
}
