//! `cdi-importer convert`, which is `import` for local sources.

use std::path::Path;

use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec, Subformat};
use testkit::process::Program;
use testkit::{disk, oci};

use crate::sha256;

fn convert(options: &[&str], source: &Path, target: &Path) -> Program {
    Program::new(crate::BINARY).arg("convert").args(options).arg(source).arg(target)
}

fn image(folder: &Path) -> Image {
    Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) }.build(folder, "image")
}

fn length(path: &Path) -> u64 {
    path.metadata().or_fail(path.display()).len()
}

/// `--format` does not make an image what it is not; only `raw` takes any content.
#[test]
#[ignore = "tools: qemu-img"]
fn an_existing_disk_is_replaced_only_when_asked_and_by_the_requested_format() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = image(folder.path());
    let target = folder.path().join("disk.img");
    std::fs::write(&target, b"precious").or_fail("write a file");
    let run = |options: &[&str]| convert(options, &image.qcow2, &target).run();
    run(&[]).assert_failure(7, "pass --force to replace it");
    run(&["--force", "--format", "vhdx"]).assert_failure(4, "the image is not in vhdx format");
    assert_eq!(std::fs::read(&target).or_fail("read it"), b"precious");
    let replaced = run(&["--force"]);
    replaced.assert_success("replaced");
    assert!(replaced.stdout.starts_with("converted qcow2"), "{}", replaced.stdout);
    disk::assert_same(&target, &image.raw, image.virtual_size, "replaced");
    run(&["--force", "--format", "raw"]).assert_success("taken as it is");
    assert_eq!(length(&target), length(&image.qcow2).next_multiple_of(512));
}

#[test]
fn holes_are_not_read() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let (source, target) = (folder.path().join("source"), folder.path().join("disk.img"));
    // Reading all of it would take longer than a test may.
    crate::write_large(&source, 200 << 30);
    convert(&[], &source, &target).run().assert_success("a large file with little in it");
    assert!(disk::allocated_bytes(&target) < 1 << 20, "{}", disk::allocated_bytes(&target));
    disk::assert_same(&target, &source, 200 << 30, "a large file with little in it");
}

#[test]
#[ignore = "tools: qemu-img"]
fn the_disk_of_an_appliance_is_imported_when_asked_and_verified() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let image = image(folder.path());
    Subformat::new("vmdk", "subformat=streamOptimized").write(&image.raw, &path("vmdk"));
    let vmdk = std::fs::read(path("vmdk")).or_fail("the disk");
    let write = |name: &str, digest: &str| {
        let manifest = format!("SHA256(vm-disk1.vmdk)= {digest}\n");
        let (ovf, manifest) = (("vm.ovf", &b"<Envelope/>"[..]), ("vm.mf", manifest.as_bytes()));
        let ova = oci::tar(&[ovf, manifest, ("vm-disk1.vmdk", &vmdk)]);
        std::fs::write(path(name), ova).or_fail(name);
    };
    let target = path("disk.img");
    write("vm.ova", sha256(&vmdk).trim_start_matches("sha256:"));
    for source in [path("vm.ova"), "-".into()] {
        let program = convert(&["--ova", "--force"], &source, &target);
        program.stdin_file(&path("vm.ova")).run().assert_success("an appliance");
        disk::assert_same(&target, &image.raw, image.virtual_size, "an appliance");
    }
    std::fs::remove_file(&target).or_fail("the disk");
    write("wrong.ova", &"0".repeat(64));
    convert(&["--ova"], &path("wrong.ova"), &target).run().assert_failure(6, "checksum");
    assert!(!target.exists(), "a disk that was not verified is left");
    // Without `--ova` the appliance is stored as it is: a tar.
    convert(&[], &path("wrong.ova"), &target).run().assert_success("as it is");
    assert_eq!(length(&target), length(&path("wrong.ova")));
}
