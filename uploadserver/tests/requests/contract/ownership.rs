//! Targets that another process is writing, or that are not files.

use std::fs::{File, TryLockError};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, makedev, mknodat};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::tools;

use super::failures::assert_usable;
use crate::contract::{MIB, pod};

const IN_USE: &str =
    "another import or upload is writing to it: wait until it ends, or choose another target";

/// Takes the lock that another importer or upload server holds while it writes.
fn locked(path: &Path) -> File {
    let file = File::create(path).or_fail(path.display());
    file.try_lock()
        .map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => std::io::ErrorKind::WouldBlock.into(),
        })
        .or_fail("a lock");
    file
}

#[test]
fn a_disk_that_another_process_is_writing_is_not_replaced() {
    let pod = pod(&[]);
    let server = pod.start();
    let other = locked(&pod.disk());
    std::fs::write(pod.disk(), "half of a disk").or_fail("its bytes");
    let answer = server.post("/v1beta1/upload", &disk::content(1, MIB));
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert!(answer.text().contains(IN_USE), "{}", answer.text());
    assert_eq!(std::fs::read(pod.disk()).or_fail("the disk"), b"half of a disk");
    // A process that has ended holds no locks, and what it left is replaced.
    drop(other);
    assert_usable(&pod, server);
}

#[test]
fn a_directory_that_another_process_is_filling_is_not_touched() {
    let pod = pod(&[]);
    let server = pod.start();
    let tree = tempfile::tempdir().or_fail("a folder");
    std::fs::write(tree.path().join("file"), "content").or_fail("a file");
    let path = tree.path().to_str().or_fail("a path of ASCII");
    let tar = tools::filter("tar", ["-c", "-C", path, "file"], b"");
    let data = pod.disk().parent().or_fail("a folder").to_owned();
    let other = locked(&data.join(".cdi-staging-lock"));
    let unfinished = data.join(".cdi-staging-0123456789abcdef/tree/file");
    std::fs::create_dir_all(unfinished.parent().or_fail("a folder")).or_fail("a folder");
    std::fs::write(&unfinished, "half of it").or_fail("a file");
    let answer = server.post("/v1beta1/upload-archive", &tar);
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert!(answer.text().contains(IN_USE), "{}", answer.text());
    assert_eq!(std::fs::read(&unfinished).or_fail("the other's file"), b"half of it");
    drop(other);
    server.post("/v1beta1/upload-archive", &tar).assert_uploaded();
    assert_eq!(pod.data_names(), ["file"]);
}

#[test]
#[ignore = "root: rights of root"]
fn a_target_that_is_not_a_file_is_not_touched() {
    let pod = pod(&[]);
    let server = pod.start();
    // Character device 1:3 is /dev/null.
    mknodat(CWD, pod.disk(), FileType::CharacterDevice, 0o600.into(), makedev(1, 3))
        .or_fail("a device node");
    let answer = server.post("/v1beta1/upload", &disk::content(1, MIB));
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert!(answer.text().contains("it is a character device"), "{}", answer.text());
    assert!(pod.disk().metadata().or_fail("it").file_type().is_char_device());
    std::fs::remove_file(pod.disk()).or_fail("remove it");
    assert_usable(&pod, server);
}

#[test]
fn a_limit_on_file_sizes_is_reported_as_a_volume_that_is_too_small() {
    let pod = pod(&[]);
    let limit = format!("--fsize={}", 2 * MIB);
    let server = pod.serve(pod.program().under("prlimit", [limit]));
    let answer = server.post("/v1beta1/upload", &disk::content(1, 3 * MIB));
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("file too large"), "{}", answer.text());
    assert_usable(&pod, server);
}
