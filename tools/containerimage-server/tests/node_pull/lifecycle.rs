//! Start and end of the server: the files that the containers of the pod exchange, and refusals.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use testkit::fail::OrFail;
use testkit::process::Program;

use super::scene::{BINARY, Scene, assert_gone, wait_until};

#[test]
fn the_server_ends_with_the_done_file_and_leaves_nothing_behind() {
    let scene = Scene::new(&[("fedora 40.img", b"disk")]);
    // Left by a container that was killed.
    fs::write(scene.ready(), "an older and longer name of a disk").or_fail("a stale file");
    let running = scene.program().start();
    wait_until("the name in the ready file", || {
        fs::read_to_string(scene.ready()).is_ok_and(|name| name == "fedora 40.img")
    });
    let mode = fs::metadata(scene.ready()).or_fail("the ready file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (head, body) = scene.curl(&[], "/fedora%2040.img");
    assert!(head.starts_with("http/1.1 200") && body == b"disk", "{head}");

    fs::write(scene.done(), "").or_fail("the done file");
    running.wait().assert_success("done");
    assert_eq!(fs::read_dir(scene.path("shared")).or_fail("the folder").count(), 0);
}

#[test]
fn a_signal_ends_the_server_and_removes_the_ready_file() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let scene = Scene::new(&[("disk.img", b"disk")]);
        let running = scene.start();
        running.signal(signal);
        assert_eq!(running.wait().code(), code);
        assert_gone(&scene.ready());
    }
}

#[test]
fn images_without_exactly_one_disk_are_refused() {
    for (scene, text) in
        [(Scene::new(&[]), "holds 0"), (Scene::new(&[("a.img", b"1"), ("b.img", b"2")]), "holds 2")]
    {
        let finished = scene.program().run();
        finished.assert_failure(1, "Invalid container image");
        assert!(finished.stderr.contains(text), "{}", finished.stderr);
        assert_gone(&scene.ready());
    }
    let scene = Scene::new(&[]);
    fs::remove_dir(scene.path("disk")).or_fail("no folder");
    scene.program().run().assert_failure(1, "Failed reading");
}

#[test]
fn bootc_images_are_refused() {
    for folder in ["sysroot", "ostree"] {
        let scene = Scene::new(&[("disk.img", b"disk")]);
        fs::write(scene.path(folder), "").or_fail("a file");
        let running = scene.start();
        running.signal(Signal::TERM);
        running.wait();
        fs::remove_file(scene.path(folder)).or_fail("the file");
        fs::create_dir(scene.path(folder)).or_fail(folder);
        scene.program().run().assert_failure(1, "bootc image detected: ");
        assert_gone(&scene.ready());
    }
}

#[test]
fn startup_failures_are_reported() {
    let scene = Scene::new(&[("disk.img", b"disk")]);
    let first = scene.start();
    let again = scene.program().arg("-ready-file").arg(scene.path("shared/other"));
    again.run().assert_failure(1, "Failed listening on localhost:");
    assert_gone(&scene.path("shared/other"));
    assert!(scene.ready().exists(), "the ready file of the first server must stay");
    first.signal(Signal::TERM);
    first.wait();
    let nowhere = scene.program().arg("-ready-file").arg(scene.path("none/ready"));
    nowhere.run().assert_failure(1, "Failed creating \"ready\" file");
    scene.program().args(["-p", "http"]).run().assert_failure(2, "a port is needed");
    scene.program().arg("-image-name=x").run().assert_failure(2, "not defined: -image-name");
}

#[test]
fn help_and_version_are_printed() {
    let help = Program::new(BINARY).arg("--help").run();
    help.assert_success("help");
    for flag in ["-p text", "-image-dir", "-ready-file", "-done-file"] {
        assert!(help.stderr.contains(flag), "{flag}: {}", help.stderr);
    }
    let version = Program::new(BINARY).arg("--version").run();
    version.assert_success("version");
    assert!(version.stdout.starts_with("cdi-containerimage-server 0."), "{}", version.stdout);
}
