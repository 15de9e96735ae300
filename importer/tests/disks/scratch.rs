//! No file is created or written besides the target.

use std::path::Path;

use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::origin::{Origin, Script};
use testkit::process::Program;
use testkit::{disk, syscalls, tools};

fn check(name: &str, folder: &Path, expected: &Image, program: Program) {
    let (target, log) = (folder.join("disk.img"), folder.join("strace.log"));
    syscalls::watched(program.arg(&target), &log).run().assert_success(name);
    let calls = syscalls::created(&log);
    let (at_target, elsewhere): (Vec<_>, Vec<_>) =
        calls.iter().partition(|call| syscalls::is_about(call, &target));
    assert!(!at_target.is_empty(), "{name}: the target itself must be among the files: {calls:#?}");
    assert!(elsewhere.is_empty(), "{name}: other files were written: {elsewhere:#?}");
    disk::assert_same(&target, &expected.raw, expected.virtual_size, name);
    std::fs::remove_file(&target).or_fail(name);
}

#[test]
#[ignore = "slow: waits 10 s"]
fn nothing_is_written_besides_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for content in [Content::Sparse, Content::Snapshots, Content::RandomOrder] {
        let spec = Spec { resized_to: Some(600 << 20), ..Spec::new(content) };
        let image = Spec { compression: Compression::Zlib, ..spec }.build(folder, "image");
        let object = std::fs::read(&image.qcow2).unwrap();
        let xz = tools::filter("xz", ["-c"], &object);
        let origin = Origin::start(Script::new(object.clone())).unwrap();
        let import = || Program::new(crate::BINARY).arg("import");
        for (name, program) in [
            ("a file by its map", import().arg(&image.qcow2)),
            ("an image from a pipe", import().arg("-").stdin_bytes(object)),
            ("a compressed image from a pipe", import().arg("-").stdin_bytes(xz)),
            ("an image over HTTP", import().arg(origin.url("/object"))),
            ("a raw disk", import().arg(&image.raw)),
        ] {
            check(name, folder, &image, program);
        }
    }
}
