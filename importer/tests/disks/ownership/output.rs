//! Limits outside the target: on the size of files, and an unwritable standard output.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use testkit::disk;
use testkit::fail::OrFail;

use crate::ownership::importer;
use crate::ownership::place::{DISK_BYTES, Disk, Place, disks};

#[test]
fn a_file_size_limit_is_reported_as_a_lack_of_space() {
    let place = Place::with_file();
    let Disk { raw, object } = disks(place.root(), 1).remove(0);
    let packed = place.root().join("disk.gz");
    std::fs::write(&packed, object).or_fail("an object");
    // The raw disk has a known size; the other one shows its size at the limit.
    for source in [&raw, &packed] {
        for pass in ["--direct", "--cached"] {
            let limit = [format!("--fsize={}", DISK_BYTES / 2)];
            let finished = importer(["import", pass])
                .arg(source)
                .arg(place.target())
                .under("prlimit", limit)
                .start()
                .wait();
            finished.assert_failure(5, "file too large");
            assert!(!place.target().exists());
        }
    }
    let limit = [format!("--fsize={}", DISK_BYTES / 2)];
    let pod = importer(["-alsologtostderr", "-v=3"])
        .env("CDI_WORKERS_TEST_ROOT", place.root())
        .env("CDI_WORKERS_TEST_METRICS_ADDR", "127.0.0.1:0")
        .env("IMPORTER_SOURCE", "none")
        .env("IMPORTER_IMAGE_SIZE", "3Mi")
        .env("PREALLOCATION", "false")
        .under("prlimit", limit);
    pod.start().wait().assert_failure(1, "file too large");
    assert!(!place.target().exists());
}

fn import(options: &[&str], source: &Path, place: &Place, stdout: Stdio) -> Output {
    Command::new(crate::BINARY)
        .args(["import", "--force"])
        .args(options)
        .arg(source)
        .arg(place.target())
        .stdout(stdout)
        .output()
        .or_fail("the importer")
}

#[test]
fn a_disk_is_complete_even_if_stdout_cannot_be_written() {
    let place = Place::with_file();
    let source = disks(place.root(), 1).remove(0).raw;
    let full = || Stdio::from(File::create("/dev/full").or_fail("/dev/full"));
    let broken = || {
        let (reader, writer) = std::io::pipe().or_fail("a pipe");
        drop(reader);
        Stdio::from(writer)
    };
    for options in [&["--progress=json"][..], &["--progress=plain"], &[]] {
        for (stdout, said) in [
            (full(), "done, but stdout cannot be written: No space left on device"),
            (broken(), ""),
            (Stdio::null(), ""),
        ] {
            let finished = import(options, &source, &place, stdout);
            let stderr = String::from_utf8_lossy(&finished.stderr);
            assert_eq!(finished.status.code(), Some(0), "{options:?}: {stderr}");
            assert!(stderr.contains(said), "{options:?}: {stderr}");
            disk::assert_same(&place.target(), &source, DISK_BYTES, "complete");
        }
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn archives_and_deltas_succeed_even_if_stdout_cannot_be_written() {
    let place = Place::with_file();
    let base = disks(place.root(), 1).remove(0).raw;
    let run = |words: &[&Path]| {
        let full = File::create("/dev/full").or_fail("/dev/full");
        let finished =
            Command::new(crate::BINARY).args(words).stdout(full).output().or_fail("the importer");
        let stderr = String::from_utf8_lossy(&finished.stderr);
        assert_eq!(finished.status.code(), Some(0), "{stderr}");
        assert!(stderr.contains("done, but stdout cannot be written"), "{stderr}");
    };
    let tar = place.root().join("archive.tar");
    let root = place.root().to_str().or_fail("a path of ASCII");
    std::fs::write(&tar, testkit::tools::filter("tar", ["-c", "-C", root, "0.raw"], b""))
        .or_fail("an archive");
    run(&[Path::new("unpack"), &tar, &place.data()]);
    let delta = place.root().join("delta.qcow2");
    testkit::tools::run(
        "qemu-img",
        ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "0.raw"]
            .map(AsRef::as_ref)
            .into_iter()
            .chain([delta.as_os_str()]),
    );
    run(&[Path::new("apply"), Path::new("--base"), Path::new("0.raw"), &delta, &base]);
}
