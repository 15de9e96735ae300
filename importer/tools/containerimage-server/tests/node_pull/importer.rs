//! Both containers of the pod: the importer gets the disk of the server.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Content, Spec};
use testkit::process::{Finished, Program};
use testkit::upload_proxy::beside;

use super::scene::{BINARY, Scene, assert_gone};

/// Termination message of the importer; the environment of the server has one label.
const COMPLETE: &str = r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"labels":{"instancetype.kubevirt.io/default-instancetype":"u1.small"},"message":"Import Complete"}"#;

/// The importer with the environment of a node pull (contract, sections 1.2 and 5.2).
fn importer(scene: &Scene) -> Program {
    for folder in ["root/data", "root/dev"] {
        std::fs::create_dir_all(scene.path(folder)).or_fail(folder);
    }
    let [metrics] = testkit::ports::free();
    Program::new(beside(BINARY, "cdi-importer"))
        .args(["-v=1"])
        .env("CDI_WORKERS_TEST_ROOT", scene.path("root"))
        .env("CDI_WORKERS_TEST_METRICS_ADDR", metrics.to_string())
        .env("IMPORTER_SOURCE", "http")
        .env("IMPORTER_ENDPOINT", scene.url("/disk.img"))
        .env("IMPORTER_CONTENTTYPE", "kubevirt")
        .env("IMPORTER_PULL_METHOD", "node")
        .env("IMPORTER_READY_FILE", scene.ready())
        .env("IMPORTER_DONE_FILE", scene.done())
        .env("OWNER_UID", "uid")
        .env("PREALLOCATION", "false")
        .env("FILESYSTEM_OVERHEAD", "0.06")
        .env("INSECURE_TLS", "false")
}

/// Runs both programs to their ends; the importer is started first.
fn pull(scene: &Scene) -> Finished {
    let importing = importer(scene).start();
    // The importer now waits for the ready file.
    importing.wait_for_line("Starting importer");
    let serving =
        scene.program().env("INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE", "u1.small").start();
    let finished = importing.wait();
    serving.wait().assert_success("the server");
    assert_gone(&scene.ready());
    assert_gone(&scene.done());
    finished
}

#[test]
#[ignore = "slow: waits 5 s"]
fn the_importer_gets_the_disk_by_ranges_and_in_one_pass() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = Spec::new(Content::Snapshots).build(folder.path(), "image");
    let cases = [("disk.img", image.raw.clone()), ("100% fedora #1?.qcow2", image.qcow2.clone())];
    for (name, file) in cases {
        let content = std::fs::read(&file).or_fail(name);
        let scene = Scene::new(&[(name, &content)]);
        pull(&scene).assert_success(name);
        disk::assert_same(&scene.path("root/data/disk.img"), &image.raw, image.virtual_size, name);
        let message = std::fs::read_to_string(scene.path("root/dev/termination-log"));
        assert_eq!(message.or_fail(name), COMPLETE);
    }
}

#[test]
fn a_file_name_that_is_not_utf_8_is_served() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let scene = Scene::new(&[]);
    let file = scene.path("disk").join(OsStr::from_bytes(b"disk\xff.img"));
    std::fs::write(file, b"disk").or_fail("a file");
    let running = scene.start();
    assert_eq!(std::fs::read(scene.ready()).or_fail("the name"), b"disk\xff.img");
    assert_eq!(scene.curl(&[], "/disk%FF.img").1, b"disk");
    std::fs::write(scene.done(), "").or_fail("the done file");
    running.wait().assert_success("done");
}
