//! Bodies that never end, or hardly move, are refused.

use std::io::Write;
use std::path::Path;

use testkit::fail::OrFail;
use testkit::images::Subformat;
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

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn endless_streams_that_decode_to_nothing_are_refused() {
    let packed = |program: &str, bytes: &[u8]| tools::filter(program, ["-c", "-q"], bytes);
    // A codec, the bytes that come first, and those that follow without end.
    for (codec, first, then) in [
        ("gzip", Vec::new(), packed("gzip", b"")),
        ("gzip", packed("gzip", b"a disk"), vec![0]),
        ("zstd", packed("zstd", b"a disk"), b"\x50\x2A\x4D\x18\x04\0\0\0void".to_vec()),
        ("xz", packed("xz", b"a disk"), vec![0; 4]),
        ("bzip2", Vec::new(), packed("bzip2", b"")),
    ] {
        let finished = send(first, &then, &[]);
        finished.assert_failure(4, &format!(" bytes of the {codec} stream decode to only "));
    }
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
    let sentence =
        " bytes of the image were read, but an image of this virtual size has at most 1090519040";
    finished.assert_failure(4, sentence);
}

#[test]
#[ignore = "slow: waits 15 s"]
fn a_source_below_the_speed_limit_is_given_up() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let serve = |rate, object: Vec<u8>| {
        Origin::start(Script { rate: Some(rate), ..Script::new(object) }).or_fail("a server")
    };
    let limit = |limit| ["--speed-limit", limit, "--speed-time", "4"];
    for (rate, is_too_slow) in [(20_000, true), (400_000, false)] {
        let origin = serve(rate, vec![7; 1 << 20]);
        let target = path("disk.img");
        let finished = import(&origin.url("/object"), &target).args(limit("100K")).run();
        assert_eq!(target.exists(), !is_too_slow, "{rate}: {finished:?}");
        if is_too_slow {
            finished.assert_failure(3, "the source is too slow: ");
            let sentence = " seconds of waiting, which is less than 102400 per second";
            finished.assert_failure(3, sentence);
        } else {
            finished.assert_success("a source that is slow but fast enough");
        }
    }
    // `pack` reads an image with many requests. The first MiB takes less than the four seconds.
    std::fs::write(path("raw"), disk::content(1, 8 << 20)).or_fail("a disk");
    Subformat::new("qcow2", "").write(&path("raw"), &path("qcow2"));
    let origin = serve(400_000, std::fs::read(path("qcow2")).or_fail("an image"));
    let layout = path("layout");
    let program = Program::new(crate::BINARY).args(["pack", &origin.url("/image")]);
    let finished = program.arg(format!("oci:{}", layout.display())).args(limit("1M")).run();
    finished.assert_failure(3, "the source is too slow: ");
    assert!(origin.requests().len() > 1 && !layout.exists(), "{:?}", origin.requests());
}
