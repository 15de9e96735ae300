//! `cdi-importer convert`: `import` for what is on this machine.

use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::process::Program;

fn convert() -> Program {
    Program::new(env!("CARGO_BIN_EXE_cdi-importer")).arg("convert")
}

fn image(folder: &Path) -> Image {
    Spec {
        compression: Compression::Zlib,
        ..Spec::new(Content::Sparse)
    }
    .build(folder, "image")
}

#[test]
fn a_file_and_standard_input_become_the_disk() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = image(folder.path());
    for (case, program) in [
        ("a file", convert().arg(&image.qcow2)),
        ("a pipe", convert().arg("-").stdin_file(&image.qcow2)),
    ] {
        let target = folder.path().join("disk.img");
        let finished = program.arg(&target).run();
        finished.assert_success(case);
        assert!(
            finished.stdout.starts_with("converted qcow2"),
            "{}",
            finished.stdout
        );
        disk::assert_same(&target, &image.raw, image.virtual_size, case);
        std::fs::remove_file(target).or_fail(case);
    }
}

#[test]
fn a_disk_that_is_there_is_replaced_only_when_asked() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = image(folder.path());
    let target = folder.path().join("disk.img");
    std::fs::write(&target, b"precious").or_fail("write a file");
    let run = |option: &[&str]| {
        convert()
            .args(option.iter().copied())
            .arg(&image.qcow2)
            .arg(&target)
            .run()
    };
    run(&[]).assert_failure(7, "pass --force to replace it");
    assert_eq!(std::fs::read(&target).or_fail("read it"), b"precious");
    run(&["--force"]).assert_success("replaced");
    disk::assert_same(&target, &image.raw, image.virtual_size, "replaced");
}

#[test]
fn a_url_is_a_name_of_a_file_here() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let target = folder.path().join("disk.img");
    convert()
        .arg("https://example.org/disk.qcow2")
        .arg(&target)
        .run()
        .assert_failure(3, "no such file or directory");
    assert!(!target.exists());
}

/// What the content is not, it is not made by force.
#[test]
fn a_format_can_be_asked_for() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = image(folder.path());
    let target = folder.path().join("disk.img");
    let run = |format: &str| {
        convert()
            .args(["--format", format])
            .arg(&image.qcow2)
            .arg(&target)
            .run()
    };
    run("vhdx").assert_failure(4, "the image is not in vhdx format");
    run("raw").assert_success("taken as it is");
    let length = |path: &Path| path.metadata().or_fail(path.display()).len();
    assert_eq!(length(&target), length(&image.qcow2).next_multiple_of(512));
}
