//! Mistakes, full disks, and jobs that are stopped.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FileType, mknodat};
use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::process::Program;
use testkit::random::Random;
use testkit::tmpfs::Tmpfs;

use super::{MIB, assert_image, convert, convert_well, info};

#[test]
#[ignore = "root: loop devices"]
fn mistakes_on_the_command_line_leave_everything_as_it_is() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("raw"), disk::content(1, MIB)).or_fail("a disk");
    fs::write(path("there.qcow2"), "precious").or_fail("a file");
    fs::write(path("short.image"), b"QFI\xfb and no more").or_fail("an image");
    mknodat(CWD, path("pipe.qcow2"), FileType::Fifo, 0o600.into(), 0).or_fail("a pipe");
    let device = LoopDevice::empty(folder.path(), MIB, 512);
    let device = device.path();
    std::os::unix::fs::symlink(device, path("device.qcow2")).or_fail("a link");
    let files = || fs::read_dir(folder.path()).or_fail("the folder").count();
    let before = files();
    for (source, target, options, code, sentence) in [
        ("raw", "there.qcow2", &[][..], 7, "file exists: pass --force to replace it"),
        ("short.image", "there.qcow2", &["--force"], 4, "invalid qcow2 image"),
        ("nothing", "there.qcow2", &["--force"], 3, "no such file"),
        ("raw", "raw", &["--force", "--output-format=qcow2"], 7, "it is the source"),
        ("raw", "pipe.qcow2", &["--force"], 7, "it is a pipe: a disk is written to a regular file"),
        ("raw", "device.qcow2", &[], 2, "is a block device, but qcow2 is written to a file"),
        ("raw", "new.qcow2", &["--size", "2Mi"], 2, "--size is for raw disks"),
        ("raw", "new.qcow2", &["--preallocate"], 2, "--preallocate is for raw disks"),
        ("raw", "new.img", &["--compression", "zstd"], 2, "--compression is for qcow2"),
        ("raw", "new.qcow2", &["--compression", "lz4"], 2, "none, zlib, zstd"),
        ("raw", "new.qcow2", &["--output-format", "vmdk"], 2, "raw, qcow2"),
        ("raw", "no/new.qcow2", &[], 7, "no such file or directory"),
    ] {
        convert(&path(source), &path(target), options).run().assert_failure(code, sentence);
    }
    let output = convert(&path("raw"), Path::new("-"), &["--output-format", "qcow2"]).run();
    output.assert_failure(2, "the target cannot be standard output");
    assert_eq!(files(), before);
    assert_eq!(fs::read(path("there.qcow2")).or_fail("the file"), b"precious");
    assert!(fs::read(path("raw")).or_fail("the disk") == disk::content(1, MIB));
    assert!(fs::read(device).or_fail("the device").iter().all(|byte| *byte == 0));

    convert_well(&path("raw"), &path("there.qcow2"), &["--force"]);
    assert_image(&path("there.qcow2"), &path("raw"), "replaced");
}

#[test]
#[ignore = "root: mounts"]
fn a_full_disk_leaves_nothing() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let source = folder.path().join("raw");
    let mut bytes = vec![0; 8 << 20];
    Random::new(1).fill(&mut bytes);
    fs::write(&source, bytes).or_fail("a disk");
    let memory = folder.path().join("memory");
    fs::create_dir(&memory).or_fail("a folder");
    let _mounted = Tmpfs::on(&memory, 2 * MIB);
    for (words, transport, name) in [
        (&["import"][..], "", "disk.img"),
        (&["convert", "--compression", "none"], "", "disk.qcow2"),
        (&["convert", "--compression", "zlib"], "", "disk.qcow2"),
        (&["convert", "--compression", "zstd"], "", "disk.qcow2"),
        (&["pack"], "oci:", "layout"),
        (&["pack"], "oci-archive:", "archive"),
    ] {
        let target = format!("{transport}{}", memory.join(name).display());
        let program = Program::new(crate::BINARY).args(words.to_vec()).arg(&source);
        program.arg(target).run().assert_failure(5, "no space left on device");
        assert_eq!(fs::read_dir(&memory).or_fail("the folder").count(), 0, "{words:?}");
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_job_that_is_stopped_leaves_nothing_that_looks_like_an_image() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let target = path("disk.qcow2");
    fs::write(path("raw"), disk::content(1, MIB)).or_fail("a disk");
    for (compression, signal) in [
        ("none", Signal::INT),
        ("zstd", Signal::TERM),
        ("zlib", Signal::INT),
        ("none", Signal::KILL),
        ("zstd", Signal::KILL),
    ] {
        // The source stops in the middle.
        let bytes = disk::content(1, 16 * MIB);
        let slowly = move |pipe: &mut dyn std::io::Write| {
            pipe.write_all(&bytes)?;
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        };
        let options = ["--compression", compression];
        let running = convert(Path::new("-"), &target, &options).stdin(slowly).start();
        let grown = || target.metadata().is_ok_and(|file| file.len() > MIB);
        testkit::wait::until(|| "nothing is written", grown);
        assert_eq!(info(&target)["format"], "raw", "before its header is written");
        let second = convert(&path("raw"), &target, &["--force"]).run();
        second.assert_failure(7, "is writing to it");
        running.signal(signal);
        let case = format!("{compression} {signal:?}");
        assert_eq!(running.wait().code(), 128 + signal.as_raw(), "{case}");
        if signal != Signal::KILL {
            assert!(!target.exists(), "{case}");
            continue;
        }
        assert_eq!(info(&target)["format"], "raw", "a killed job leaves no header");
        convert_well(&path("raw"), &target, &["--force"]);
        assert_image(&target, &path("raw"), "after a killed job");
        fs::remove_file(&target).or_fail("the image");
    }
}
