//! Limits outside the target: on the size of files, and an unwritable standard output.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;

use crate::ownership::place::{DISK_BYTES, Disk, Place, disks};
use crate::ownership::{blank_pod, importer};

#[test]
fn a_file_size_limit_is_reported_as_a_lack_of_space() {
    let place = Place::with_file();
    let Disk { raw, object } = disks(place.root(), 1).remove(0);
    let packed = place.root().join("disk.gz");
    std::fs::write(&packed, object).or_fail("an object");
    let limited =
        |program: Program| program.under("prlimit", [format!("--fsize={}", DISK_BYTES / 2)]).run();
    // The raw disk has a known size; the other one shows its size at the limit.
    for source in [&raw, &packed] {
        for pass in ["--direct", "--cached"] {
            let program = importer(["import", pass]).arg(source).arg(place.target());
            limited(program).assert_failure(5, "file too large");
            assert!(!place.target().exists());
        }
    }
    limited(blank_pod(&place, "3Mi")).assert_failure(1, "file too large");
    assert!(!place.target().exists());
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_result_is_complete_even_if_stdout_cannot_be_written() {
    let place = Place::with_file();
    let disks = disks(place.root(), 2);
    let (source, base) = (&disks[0].raw, &disks[1].raw);
    let run = |words: &[&str], paths: &[&Path], stdout: Stdio, said: &str| {
        let mut program = Command::new(crate::BINARY);
        let program = program.args(words).args(paths).stdout(stdout);
        let finished = program.output().or_fail("the importer");
        let stderr = String::from_utf8_lossy(&finished.stderr);
        assert_eq!(finished.status.code(), Some(0), "{words:?}: {stderr}");
        assert!(stderr.contains(said), "{words:?}: {stderr}");
    };
    let full = || Stdio::from(File::create("/dev/full").or_fail("/dev/full"));
    let no_space = "done, but stdout cannot be written: No space left on device";
    for progress in ["json", "plain", "auto"] {
        let (reader, broken) = std::io::pipe().or_fail("a pipe");
        drop(reader);
        for (stdout, said) in [(full(), no_space), (broken.into(), ""), (Stdio::null(), "")] {
            let words = ["import", "--force", "--progress", progress];
            run(&words, &[source, &place.target()], stdout, said);
            disk::assert_same(&place.target(), source, DISK_BYTES, "complete");
        }
    }
    let tar = place.root().join("archive.tar");
    let root = place.root().to_str().or_fail("a path of ASCII");
    std::fs::write(&tar, testkit::tools::filter("tar", ["-c", "-C", root, "0.raw"], b""))
        .or_fail("an archive");
    run(&["unpack"], &[&tar, &place.data()], full(), no_space);
    let delta = place.delta("1.raw");
    run(&["apply", "--base", "1.raw"], &[&delta, base], full(), no_space);
}
