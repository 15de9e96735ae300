//! No file is created or written besides the target.

use std::path::Path;

use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::origin::{Origin, Script};
use testkit::process::Program;
use testkit::{disk, syscalls, tools};

fn check(name: &str, folder: &Path, expected: &Image, program: impl FnOnce(Program) -> Program) {
    let target = folder.join("disk.img");
    let importer = program(Program::new(crate::BINARY).arg("import")).arg(&target);
    let log = folder.join("strace.log");
    let finished = syscalls::watched(importer, &log).run();
    finished.assert_success("under strace");
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
        let spec = Spec {
            compression: Compression::Zlib,
            resized_to: Some(600 << 20),
            ..Spec::new(content)
        };
        let image = spec.build(folder, "image");
        let object = std::fs::read(&image.qcow2).unwrap();
        check("a file by its map", folder, &image, |importer| importer.arg(&image.qcow2));
        check("an image from a pipe", folder, &image, |importer| {
            importer.arg("-").stdin_bytes(object.clone())
        });
        let xz = tools::filter("xz", ["-c"], &object);
        check("a compressed image from a pipe", folder, &image, |importer| {
            importer.arg("-").stdin_bytes(xz)
        });
        let origin = Origin::start(Script::new(object)).unwrap();
        check("an image over HTTP", folder, &image, |importer| importer.arg(origin.url("/object")));
        check("a raw disk", folder, &image, |importer| importer.arg(&image.raw));
    }
}
