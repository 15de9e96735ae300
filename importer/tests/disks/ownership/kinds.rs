//! Only regular files and block devices can be targets, even with `--force`.

use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, makedev, mknodat};
use testkit::disk;
use testkit::fail::OrFail;

use crate::ownership::importer;
use crate::ownership::place::{Place, disks};

fn node(path: &Path, kind: FileType) {
    // Character device 1:3 is /dev/null.
    mknodat(CWD, path, kind, 0o600.into(), makedev(1, 3)).or_fail(path.display());
}

#[test]
#[ignore = "root: rights of root"]
fn other_kinds_of_files_are_refused_and_left_alone() {
    let place = Place::with_file();
    let path = |name: &str| place.data().join(name);
    node(&path("null"), FileType::CharacterDevice);
    node(&path("pipe"), FileType::Fifo);
    let _listener = UnixListener::bind(path("socket")).or_fail("a socket");
    std::fs::create_dir(path("folder")).or_fail("a folder");
    symlink("null", path("link")).or_fail("a link");
    let source = disks(place.root(), 1).remove(0).raw;
    for (name, kind) in [
        ("null", "a character device"),
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("folder", "a directory"),
        ("link", "a symbolic link"),
    ] {
        for force in [&[][..], &["--force"]] {
            let finished = importer(["import", "--progress=none"])
                .args(force.iter().copied())
                .arg(&source)
                .arg(path(name))
                .run();
            finished
                .assert_failure(7, &format!("it is {kind}: a disk is written to a regular file"));
            assert!(!finished.stderr.contains("--force"), "{}", finished.stderr);
        }
    }
    let kind = |name| path(name).symlink_metadata().or_fail(name).file_type();
    assert!(kind("null").is_char_device() && kind("pipe").is_fifo() && kind("socket").is_socket());
    assert!(kind("folder").is_dir() && kind("link").is_symlink());
}

#[test]
#[ignore = "root: rights of root"]
fn deltas_and_blank_disks_refuse_other_kinds_of_files_too() {
    let place = Place::with_file();
    node(&place.target(), FileType::CharacterDevice);
    let pod = importer(["-alsologtostderr", "-v=3"])
        .env("CDI_WORKERS_TEST_ROOT", place.root())
        .env("CDI_WORKERS_TEST_METRICS_ADDR", "127.0.0.1:0")
        .env("IMPORTER_SOURCE", "none")
        .env("IMPORTER_IMAGE_SIZE", "1Mi")
        .env("PREALLOCATION", "false");
    pod.run().assert_failure(1, "it is a character device");
    let source = disks(place.root(), 1).remove(0).raw;
    let delta = place.root().join("delta.qcow2");
    testkit::tools::run(
        "qemu-img",
        ["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]
            .map(AsRef::as_ref)
            .into_iter()
            .chain([source.as_os_str(), delta.as_os_str()]),
    );
    importer(["apply", "--base", "0.raw"])
        .arg(&delta)
        .arg(place.target())
        .run()
        .assert_failure(7, "it is a character device");
    assert!(place.target().metadata().or_fail("it").file_type().is_char_device());
}

#[test]
#[ignore = "root: loop devices"]
fn a_symbolic_link_to_a_device_is_accepted() {
    let place = Place::with_device();
    let source = disks(place.root(), 1).remove(0).raw;
    let link = place.root().join("dev/cdi-block-volume");
    importer(["import", "-q"]).arg(&source).arg(&link).run().assert_success("a link");
    disk::assert_same(&place.target(), &source, crate::ownership::place::DISK_BYTES, "a link");
}
