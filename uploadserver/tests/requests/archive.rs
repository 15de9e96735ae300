//! Archives: a tar in any compression fills the volume, and writes nowhere else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::BINARY;
use tempfile::TempDir;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::tools;
use testkit::upload_pod::UploadPod;

const UPLOADED: &str = r#"{"preallocationApplied":false,"message":"Upload Complete"}"#;

/// Runs GNU tar in `folder` and returns the archive that it makes.
fn tar(folder: &Path, args: &[&str]) -> Vec<u8> {
    let fixed = ["-c", "-f", "-", "-C"].map(AsRef::as_ref);
    let arguments = fixed.into_iter().chain([folder.as_os_str()]);
    tools::filter("tar", arguments.chain(args.iter().map(AsRef::as_ref)), &[])
}

/// Returns a folder to pack. It has a link, an executable, and a name that is too long for a
/// simple tar header.
fn tree() -> TempDir {
    let folder = tempfile::tempdir().or_fail("the tree");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("a/b")).or_fail("the tree");
    fs::write(path("a/b/data"), disk::content(1, 3 << 20)).or_fail("the tree");
    fs::write(path("a/run"), "#!/bin/sh").or_fail("the tree");
    fs::set_permissions(path("a/run"), fs::Permissions::from_mode(0o755)).or_fail("the tree");
    std::os::unix::fs::symlink("b/data", path("a/link")).or_fail("the tree");
    fs::write(path(&"long".repeat(50)), "a long name").or_fail("the tree");
    folder
}

/// Returns every file below `folder` with its type, mode, modification time and checksum.
fn contents(folder: &Path) -> String {
    let script = r#"cd "$1" && find . -mindepth 1 ! -type d -printf '%P %y %m %s %Ts %l\n' | sort &&
        find . -type f -exec sha256sum {} + | sort"#;
    let arguments = ["-c", script, "sh"].map(AsRef::as_ref);
    tools::run("sh", arguments.into_iter().chain([folder.as_os_str()]))
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn an_archive_in_any_compression_fills_the_volume() {
    let tree = tree();
    let archive = tar(tree.path(), &["."]);
    for program in ["cat"].into_iter().chain(tools::COMPRESSORS) {
        let body = match program {
            "cat" => archive.clone(),
            _ => tools::filter(program, ["-c"], &archive),
        };
        for path in ["/v1beta1/upload-archive", "/v1alpha1/upload-archive"] {
            let pod = UploadPod::new(BINARY).env("PREALLOCATION", "true");
            let finished = pod.start().post_last(path, &body);
            assert!(finished.stderr.contains("Wrote archive data"), "{}", finished.stderr);
            assert_eq!(pod.message().as_deref(), Some(UPLOADED));
            assert_eq!(contents(&pod.path("data")), contents(tree.path()), "{program}");
        }
    }
}

/// Returns archives that write outside the volume, or contain what does not belong on one. Each
/// has a harmless entry first.
fn attacks(outside: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let folder = tempfile::tempdir().or_fail("the tree");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("harmless"), "x").or_fail("the tree");
    fs::write(path("evil"), "written by an attacker").or_fail("the tree");
    let outside = outside.to_str().or_fail("the tree");
    std::os::unix::fs::symlink(outside, path("link")).or_fail("the tree");
    std::os::unix::fs::symlink(".", path("here")).or_fail("the tree");
    std::os::unix::fs::symlink("here/..", path("up")).or_fail("the tree");
    let renamed = |to: &str| format!("--transform=s,^evil$,{to},");
    let absolute = renamed(&format!("{outside}/evil"));
    let device = path("device");
    tools::run("mknod", [device.to_str().or_fail("the tree"), "c", "1", "3"]);
    vec![
        (
            "a parent",
            tar(folder.path(), &["-P", &renamed("../../outside/evil"), "harmless", "evil"]),
        ),
        (
            "a parent further in",
            tar(folder.path(), &["-P", &renamed("x/../../../outside/evil"), "harmless", "evil"]),
        ),
        ("an absolute name", tar(folder.path(), &["-P", &absolute, "harmless", "evil"])),
        ("a link", tar(folder.path(), &["-P", &renamed("link/evil"), "harmless", "link", "evil"])),
        (
            "two links",
            tar(
                folder.path(),
                &["-P", &renamed("up/../outside/evil"), "harmless", "here", "up", "evil"],
            ),
        ),
        ("a device", tar(folder.path(), &["harmless", "device"])),
    ]
}

#[test]
#[ignore = "root: device nodes"]
fn an_archive_that_writes_outside_is_refused_and_changes_nothing() {
    let pod = UploadPod::new(BINARY);
    let outside = pod.path("outside");
    fs::create_dir(&outside).or_fail("the tree");
    fs::write(pod.path("data/kept"), "was here before").or_fail("the tree");
    let before = contents(&pod.path("data"));
    let server = pod.start();
    for (attack, body) in attacks(&outside) {
        let response = server.post("/v1beta1/upload-archive", &body);
        assert_eq!(response.status, 400, "{attack}: {response:?}");
        let text = response.text();
        assert!(text.starts_with("Saving stream failed: "), "{attack}: {text}");
        assert_eq!(
            fs::read_dir(&outside).or_fail("the tree").count(),
            0,
            "{attack}: wrote outside"
        );
        assert_eq!(contents(&pod.path("data")), before, "{attack}: {text}");
    }
    server.post_last("/v1beta1/upload-archive", &tar(tree().path(), &["."]));
    let kept = fs::read_to_string(pod.path("data/kept")).or_fail("the tree");
    assert_eq!(kept, "was here before");
}

#[test]
fn a_broken_archive_changes_nothing() {
    let tree = tree();
    let archive = tar(tree.path(), &["."]);
    let gzip = tools::filter("gzip", ["-c"], &archive);
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let noise = disk::content(3, 1 << 20);
    let mut wrong_header = archive.clone();
    // The checksum of the first header (POSIX ustar, bytes 148 to 155).
    wrong_header[150] ^= 1;
    for (damage, body, status) in [
        ("half of it", &archive[..archive.len() / 2], 400),
        ("half of the gzip", &gzip[..gzip.len() / 2], 400),
        ("no tar", &noise[..], 400),
        ("a wrong checksum", &wrong_header[..], 400),
    ] {
        let response = server.post("/v1beta1/upload-archive", body);
        assert_eq!(response.status, status, "{damage}: {response:?}");
        assert_eq!(pod.data_names(), [""; 0], "{damage}: {}", response.text());
    }
    // The client disconnects.
    drop(server.begin_upload("/v1beta1/upload-archive", archive.len(), &archive[..1 << 20]));
    server.wait_until_idle();
    assert_eq!(pod.data_names(), [""; 0]);
    server.post_last("/v1beta1/upload-archive", &archive);
    assert_eq!(contents(&pod.path("data")), contents(tree.path()));
}

#[test]
#[ignore = "root: mounts"]
fn an_archive_larger_than_the_volume_is_refused_for_that_reason() {
    let pod = UploadPod::new(BINARY);
    let volume = testkit::tmpfs::Tmpfs::on(&pod.path("data"), 2 << 20);
    let server = pod.start();
    let tree = tree();
    let archive = tar(tree.path(), &["."]);
    let response = server.post("/v1beta1/upload-archive", &archive);
    assert_eq!(response.status, 400, "{response:?}");
    let text = response.text();
    assert!(
        text.starts_with(
            "Saving stream failed: effective image size is larger than the reported available storage: "
        ),
        "{text}"
    );
    assert_eq!(pod.data_names(), [""; 0]);
    fs::remove_file(tree.path().join("a/b/data")).or_fail("the tree");
    server.post_last("/v1beta1/upload-archive", &tar(tree.path(), &["."]));
    drop(volume);
}
