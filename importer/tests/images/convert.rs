//! `cdi-importer convert`, which is `import` for local sources.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use datapath::digest::{DigestAlgorithm, RunningDigest};
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::process::Program;
use testkit::{disk, tools};

fn convert() -> Program {
    Program::new(crate::BINARY).arg("convert")
}

fn image(folder: &Path) -> Image {
    Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) }.build(folder, "image")
}

#[test]
#[ignore = "tools: qemu-img"]
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
        assert!(finished.stdout.starts_with("converted qcow2"), "{}", finished.stdout);
        disk::assert_same(&target, &image.raw, image.virtual_size, case);
        std::fs::remove_file(target).or_fail(case);
    }
}

#[test]
fn holes_are_not_read() {
    const PLACES: [u64; 3] = [5 << 20, 100 << 30, (200 << 30) - 4096];
    let folder = tempfile::tempdir().or_fail("a folder");
    let (source, target) = (folder.path().join("source"), folder.path().join("disk.img"));
    let file = File::create(&source).or_fail("a file");
    // Reading all of it would take a minute and more.
    file.set_len(200 << 30).or_fail("a large file");
    for place in PLACES {
        file.write_all_at(&[7; 4096], place).or_fail("some data");
    }
    let finished = convert().arg(&source).arg(&target).run();
    finished.assert_success("a large file with little in it");
    assert!(finished.wall < Duration::from_secs(20), "{:?}", finished.wall);
    let disk = File::open(&target).or_fail("the disk");
    let allocated = disk.metadata().or_fail("the disk").blocks() * 512;
    assert!(allocated < 1 << 20, "{allocated} bytes");
    for place in PLACES {
        let mut bytes = [0; 4096];
        disk.read_exact_at(&mut bytes, place).or_fail("the disk");
        assert_eq!(bytes, [7; 4096], "at {place}");
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn an_existing_disk_is_replaced_only_when_asked() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = image(folder.path());
    let target = folder.path().join("disk.img");
    std::fs::write(&target, b"precious").or_fail("write a file");
    let run = |option: &[&str]| {
        convert().args(option.iter().copied()).arg(&image.qcow2).arg(&target).run()
    };
    run(&[]).assert_failure(7, "pass --force to replace it");
    assert_eq!(std::fs::read(&target).or_fail("read it"), b"precious");
    run(&["--force"]).assert_success("replaced");
    disk::assert_same(&target, &image.raw, image.virtual_size, "replaced");
}

/// `--format` does not make an image what it is not; only `raw` takes any content.
#[test]
#[ignore = "tools: qemu-img"]
fn a_requested_format_must_match_unless_it_is_raw() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = image(folder.path());
    let target = folder.path().join("disk.img");
    let run =
        |format: &str| convert().args(["--format", format]).arg(&image.qcow2).arg(&target).run();
    run("vhdx").assert_failure(4, "the image is not in vhdx format");
    run("raw").assert_success("taken as it is");
    let length = |path: &Path| path.metadata().or_fail(path.display()).len();
    assert_eq!(length(&target), length(&image.qcow2).next_multiple_of(512));
}

/// Packs an appliance as VMware does. An empty `digest` stands for the right one.
fn appliance(folder: &Path, image: &Image, digest: &str) -> PathBuf {
    let path = |name: &str| folder.join(name);
    tools::run(
        "qemu-img",
        ["convert", "-f", "qcow2", "-O", "vmdk", "-o", "subformat=streamOptimized"]
            .map(OsStr::new)
            .into_iter()
            .chain([image.qcow2.as_os_str(), path("vm-disk1.vmdk").as_os_str()]),
    );
    let digest = if digest.is_empty() {
        let mut sha256 = RunningDigest::new(DigestAlgorithm::Sha256);
        sha256.update(&std::fs::read(path("vm-disk1.vmdk")).or_fail("the disk"));
        sha256.finish_digest().trim_start_matches("sha256:").to_owned()
    } else {
        digest.to_owned()
    };
    std::fs::write(path("vm.mf"), format!("SHA256(vm-disk1.vmdk)= {digest}\n"))
        .or_fail("a manifest");
    std::fs::write(path("vm.ovf"), "<Envelope/>").or_fail("a description");
    let ova = path("vm.ova");
    let names = ["vm.ovf", "vm.mf", "vm-disk1.vmdk"].map(OsStr::new);
    let words = ["--format=ustar", "-C"].map(OsStr::new);
    let words = words.into_iter().chain([folder.as_os_str(), OsStr::new("-cf"), ova.as_os_str()]);
    tools::run("tar", words.chain(names));
    ova
}

#[test]
#[ignore = "tools: qemu-img"]
fn the_disk_of_an_appliance_is_imported_when_asked_and_verified() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = image(folder.path());
    let target = folder.path().join("disk.img");
    let ova = appliance(folder.path(), &image, "");
    for (case, program) in
        [("a file", convert().arg(&ova)), ("a pipe", convert().arg("-").stdin_file(&ova))]
    {
        program.arg("--ova").arg(&target).run().assert_success(case);
        disk::assert_same(&target, &image.raw, image.virtual_size, case);
        std::fs::remove_file(&target).or_fail(case);
    }

    let wrong = appliance(folder.path(), &image, &"0".repeat(64));
    let run =
        |option: &[&str]| convert().args(option.iter().copied()).arg(&wrong).arg(&target).run();
    run(&["--ova"]).assert_failure(6, "checksum");
    assert!(!target.exists(), "a disk that was not verified is left");

    // Without `--ova` the appliance is stored as it is: a tar.
    run(&[]).assert_success("as it is");
    let length = |path: &Path| path.metadata().or_fail(path.display()).len();
    assert_eq!(length(&target), length(&wrong));
}
