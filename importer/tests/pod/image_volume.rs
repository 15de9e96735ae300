//! Node pull by an image volume: the kubelet mounts the user's image, and the importer reads the
//! disk in it.

use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::process::Program;
use testkit::{disk, tools};

use super::pod::{MIB, Pod, SUCCESS, write};

/// A pod whose image volume is its folder `image`, and whose init container has left the file
/// `shared/env`.
fn pod() -> Pod {
    let mut pod = Pod::new(&[
        ("IMPORTER_SOURCE", "registry"),
        // Nobody listens there: the kubelet has pulled the image.
        ("IMPORTER_ENDPOINT", "docker://127.0.0.1:1/fedora:40"),
        ("IMPORTER_PULL_METHOD", "node"),
    ]);
    pod.set("IMPORTER_IMAGE_ROOT_DIR", pod.path("image").display());
    pod.set("IMPORTER_ENV_FILE", pod.path("shared/env").display());
    pod
}

/// Adds a file to the folder `disk` of the image.
fn put(pod: &Pod, name: &str, content: &[u8]) {
    write(&pod.path("image/disk").join(name), "");
    std::fs::write(pod.path("image/disk").join(name), content).or_fail(name);
}

fn assert_refused(pod: &Pod, cause: &str) {
    pod.assert_fails_with(&format!(
        "Unable to process data: Unable to transfer source data to scratch space: {cause}"
    ));
}

#[test]
#[ignore = "tools: qemu-img"]
fn the_disk_of_an_image_volume_is_converted_and_the_environment_becomes_labels() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) }
        .build(folder.path(), "image");
    let qcow2 = std::fs::read(&image.qcow2).or_fail("the image");
    for (name, content) in
        [("disk.qcow2", qcow2.clone()), ("any name", tools::filter("gzip", ["-c", "-1"], &qcow2))]
    {
        let pod = pod();
        put(&pod, name, &content);
        let env = "PATH=/bin\nINSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small\n\
                   KUBEVIRT_IO_X=a=B\nTEXT=first\nsecond line\n\n";
        write(&pod.path("shared/env"), env);
        let finished = pod.assert_succeeds_with(
            r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"labels":{"instancetype.kubevirt.io/default-instancetype":"u1.small"},"message":"Import Complete"}"#,
        );
        disk::assert_same(&pod.disk(), &image.raw, image.virtual_size, name);
        let phases: Vec<_> =
            finished.stderr.lines().filter_map(|line| line.split_once("New phase: ")).collect();
        let names: Vec<_> = phases.iter().map(|(_, name)| *name).collect();
        assert_eq!(
            names,
            ["Info", "TransferScratch", "Convert", "Resize", "Complete"],
            "{}",
            finished.stderr
        );
    }
}

#[test]
fn labels_that_cannot_be_read_do_not_fail_the_import() {
    for is_variable_set in [false, true] {
        let mut pod = pod();
        put(&pod, "disk.img", &disk::content(1, MIB));
        if is_variable_set {
            // Not a regular file: opening it must not block.
            std::fs::create_dir_all(pod.path("shared")).or_fail("a folder");
            Program::new("mkfifo").arg(pod.path("shared/env")).run().assert_success("mkfifo");
        } else {
            pod.unset("IMPORTER_ENV_FILE");
        }
        let finished = pod.assert_succeeds_with(SUCCESS);
        assert!(finished.stderr.contains("labels"), "{}", finished.stderr);
    }
}

#[test]
fn an_image_without_exactly_one_disk_is_refused_in_upstreams_words() {
    let mut root_missing = pod();
    root_missing.set("IMPORTER_IMAGE_ROOT_DIR", "");
    assert_refused(&root_missing, "ImporterImageRootDir environment variable is empty or not set");

    let (none, empty, two, folder) = (pod(), pod(), pod(), pod());
    std::fs::create_dir_all(none.path("image")).or_fail("a folder");
    std::fs::create_dir_all(empty.path("image/disk")).or_fail("a folder");
    put(&two, "a", b"a");
    put(&two, "b", b"b");
    std::fs::create_dir_all(folder.path("image/disk/folder")).or_fail("a folder");
    for (pod, words) in [
        (&none, "image directory does not exist"),
        (&empty, "image file does not exist in image directory - directory is empty"),
        (&two, "image directory contains more than one file"),
        (&folder, "image directory contains another directory"),
    ] {
        assert_refused(pod, &format!("Cannot locate image file: {words}"));
    }
    for name in ["sysroot", "ostree"] {
        let pod = pod();
        put(&pod, "disk.img", b"x");
        std::fs::create_dir_all(pod.path("image").join(name)).or_fail(name);
        pod.run().assert_failure(1, "Failed to read registry image: bootc image detected: ");
    }
}

#[test]
fn nothing_in_a_hostile_image_leads_out_of_it() {
    let secret = tempfile::tempdir().or_fail("a folder");
    write(&secret.path().join("disk.img"), &"secret".repeat(1 << 20));
    let link = |pod: &Pod, target: &Path, path: &str| {
        let link = pod.path(path);
        std::fs::create_dir_all(link.parent().or_fail("a folder")).or_fail("a folder");
        symlink(target, &link).or_fail("a link");
    };
    let (file, folder, fifo) = (pod(), pod(), pod());
    link(&file, &secret.path().join("disk.img"), "image/disk/disk.img");
    link(&folder, secret.path(), "image/disk");
    std::fs::create_dir_all(fifo.path("image/disk")).or_fail("a folder");
    Program::new("mkfifo").arg(fifo.path("image/disk/disk.img")).run().assert_success("mkfifo");
    for pod in [&file, &folder, &fifo] {
        pod.run().assert_failure(1, "Cannot locate image file: ");
        assert!(!pod.disk().exists(), "a disk was left");
    }
    // A link is not followed, so it does not count as a directory of a bootc image.
    let pod = pod();
    link(&pod, Path::new("/"), "image/sysroot");
    put(&pod, "disk.img", &disk::content(1, MIB));
    pod.assert_succeeds_with(SUCCESS);
}
