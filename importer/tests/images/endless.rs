//! Bodies that never end, or hardly move, are refused.

use std::ffi::OsStr;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};
use testkit::{disk, tools};

fn import(source: &str, target: &Path) -> Program {
    Program::new(crate::BINARY).args(["import", source]).arg(target)
}

/// Sends `first`, and then `then` repeatedly until the importer stops reading.
fn send(first: Vec<u8>, then: &[u8], options: &[&str]) -> Finished {
    let folder = tempfile::tempdir().or_fail("a folder");
    let target = folder.path().join("disk.img");
    let many = then.repeat((1 << 20) / then.len());
    let finished = import("-", &target)
        .args(options.iter().copied())
        .stdin(move |pipe: &mut dyn Write| {
            pipe.write_all(&first)?;
            loop {
                pipe.write_all(&many)?;
            }
        })
        .run();
    assert!(!target.exists(), "something is left: {finished:?}");
    finished
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    tools::filter("gzip", ["-c"], bytes)
}

/// A codec, the bytes that come first, and those that follow without end.
struct Case((&'static str, Vec<u8>, Vec<u8>));

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (codec, first, then) = &self.0;
        write!(f, "{codec}: {} bytes, then {} again and again", first.len(), then.len())
    }
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn endless_streams_that_decode_to_nothing_are_refused() {
    let packed = |program: &str, bytes: &[u8]| tools::filter(program, ["-c", "-q"], bytes);
    let skippable = b"\x50\x2A\x4D\x18\x04\0\0\0void".to_vec();
    let cases = [
        ("gzip", Vec::new(), gzip(b"")),
        ("gzip", gzip(b"a disk"), vec![0]),
        ("zstd", packed("zstd", b"a disk"), skippable),
        ("xz", packed("xz", b"a disk"), vec![0; 4]),
        ("bzip2", Vec::new(), packed("bzip2", b"")),
    ];
    check_all(cases.map(Case), |Case((codec, first, then))| {
        let finished = send(first.clone(), then, &[]);
        finished.assert_failure(4, &format!(" bytes of the {codec} stream decode to only "));
    });
}

#[test]
#[ignore = "tools: qemu-img"]
fn endless_data_after_an_image_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    tools::run("qemu-img", ["create", "-q", "-f", "qcow2", image.to_str().or_fail("a name"), "1M"]);
    // The checksum covers the whole body, so that the importer reads on after the image.
    let sum = format!("md5:{}", "0".repeat(32));
    let finished = send(std::fs::read(&image).unwrap(), &[0; 1 << 20], &["--checksum", &sum]);
    // The limit is 1 GiB, and 16 times the disk of 1 MiB.
    finished.assert_failure(
        4,
        " bytes of the image were read, but an image of this virtual size has at most 1090519040",
    );
}

#[test]
#[ignore = "slow: waits 15 s"]
fn a_source_below_the_speed_limit_is_given_up() {
    let origin =
        Origin::start(Script { rate: Some(20_000), ..Script::new(vec![7; 1 << 20]) }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("disk.img");
    let limit = |limit| ["--speed-limit", limit, "--speed-time", "4"];
    let started = Instant::now();
    let finished = import(&origin.url("/object"), &target).args(limit("100K")).run();
    finished.assert_failure(3, "the source is too slow: ");
    finished.assert_failure(3, " seconds of waiting, which is less than 102400 per second");
    // All of the object would take 52 s at this rate.
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(!target.exists());
    // A source above the limit succeeds.
    let origin =
        Origin::start(Script { rate: Some(400_000), ..Script::new(vec![7; 1 << 20]) }).unwrap();
    let finished = import(&origin.url("/object"), &target).args(limit("100K")).run();
    finished.assert_success("a source that is slow but fast enough");

    // `pack` reads an image with many requests. The first MiB takes less than the four seconds.
    let (raw, qcow2) = (folder.path().join("raw"), folder.path().join("qcow2"));
    std::fs::write(&raw, disk::content(1, 8 << 20)).or_fail("a disk");
    let files = [raw.as_os_str(), qcow2.as_os_str()].map(OsStr::to_owned);
    let words = ["convert", "-f", "raw", "-O", "qcow2"].map(Into::into);
    tools::run("qemu-img", words.into_iter().chain(files));
    let object = std::fs::read(&qcow2).or_fail("an image");
    let origin = Origin::start(Script { rate: Some(400_000), ..Script::new(object) }).unwrap();
    let layout = folder.path().join("layout");
    let program = Program::new(crate::BINARY).args(["pack", &origin.url("/image")]);
    let finished = program.arg(format!("oci:{}", layout.display())).args(limit("1M")).run();
    finished.assert_failure(3, "the source is too slow: ");
    assert!(origin.requests().len() > 1 && !layout.exists(), "{:?}", origin.requests());
}
