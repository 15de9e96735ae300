//! Only regular files and block devices can be targets, even with `--force`.

use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, makedev, mknodat};
use testkit::disk;
use testkit::fail::OrFail;

use crate::ownership::place::{DISK_BYTES, Place, disks};
use crate::ownership::{blank_pod, importer};

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
        for option in ["--progress=none", "--force"] {
            let finished = importer(["import", option]).arg(&source).arg(path(name)).run();
            let sentence = format!("it is {kind}: a disk is written to a regular file");
            finished.assert_failure(7, &sentence);
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
    blank_pod(&place, "1Mi").run().assert_failure(1, "it is a character device");
    disks(place.root(), 1);
    let apply = importer(["apply", "--base", "0.raw"]).arg(place.delta("0.raw"));
    apply.arg(place.target()).run().assert_failure(7, "it is a character device");
    assert!(place.target().metadata().or_fail("it").file_type().is_char_device());
}

#[test]
#[ignore = "root: loop devices"]
fn a_symbolic_link_to_a_device_is_accepted() {
    let place = Place::with_device();
    let source = disks(place.root(), 1).remove(0).raw;
    let link = place.root().join("dev/cdi-block-volume");
    importer(["import", "-q"]).arg(&source).arg(&link).run().assert_success("a link");
    disk::assert_same(&place.target(), &source, DISK_BYTES, "a link");
}
