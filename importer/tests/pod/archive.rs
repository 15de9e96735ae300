//! Content type `archive`: a tar becomes the files of the volume.

use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};

use super::pod::{MIB, Pod, SUCCESS, serve};

const ARCHIVE: (&str, &str) = ("IMPORTER_CONTENTTYPE", "archive");

/// A tree that contains a file `disk.img`, as a tar.
fn tar() -> Vec<u8> {
    let tree = tempfile::tempdir().or_fail("a folder");
    std::fs::create_dir(tree.path().join("etc")).or_fail("etc");
    std::fs::write(tree.path().join("etc/motd"), "hello").or_fail("a file");
    std::fs::write(tree.path().join("disk.img"), disk::content(7, MIB)).or_fail("a file");
    std::os::unix::fs::symlink("etc/motd", tree.path().join("motd")).or_fail("a link");
    let path = tree.path().to_str().or_fail("a path of ASCII");
    testkit::tools::filter("tar", ["-c", "-C", path, "."], b"")
}

fn compressed(codec: &str, tar: &[u8]) -> Vec<u8> {
    testkit::tools::filter(codec, ["-c"], tar)
}

fn origin(content: Vec<u8>) -> Origin {
    serve(Script::new(content))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).or_fail("a folder");
    let mut names: Vec<_> = entries
        .map(|entry| entry.or_fail("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
#[ignore = "tools: xz, zstd"]
fn an_archive_becomes_files_whatever_its_compression() {
    let tar = tar();
    for content in
        [tar.clone(), compressed("gzip", &tar), compressed("xz", &tar), compressed("zstd", &tar)]
    {
        let origin = origin(content);
        let pod = Pod::http(&origin.url("/tree.tar"), &[ARCHIVE, ("PREALLOCATION", "true")]);
        // Nothing is preallocated in a directory.
        let finished = pod.assert_succeeds_with(SUCCESS);
        assert_eq!(names(&pod.path("data")), ["disk.img", "etc", "motd"]);
        let motd = std::fs::read_to_string(pod.path("data/motd")).or_fail("through the link");
        assert_eq!(motd, "hello");
        assert_eq!(std::fs::read(pod.disk()).or_fail("the disk"), disk::content(7, MIB));
        assert!(finished.stderr.contains("New phase: TransferDataDir"), "{}", finished.stderr);
    }
}

/// A pod whose volume already has a file on it.
fn used_pod(origin: &Origin, env: &[(&str, &str)]) -> Pod {
    let pod = Pod::http(&origin.url("/tree.tar"), &[&[ARCHIVE], env].concat());
    std::fs::write(pod.disk(), "of somebody else").or_fail("a file");
    pod
}

#[test]
fn a_failed_archive_leaves_the_volume_as_it_was() {
    let iso = disk::content(3, MIB);
    let cut = tar().split_at(1 << 19).0.to_vec();
    for (content, env, sentence) in [
        (
            iso,
            ("CACHE_MODE", ""),
            "Unable to process data: Unable to transfer source data to target directory: unable to untar files from \
             endpoint: this does not look like a tar archive",
        ),
        (
            cut,
            ("CACHE_MODE", ""),
            "Unable to process data: Unable to transfer source data to target directory: ",
        ),
        (
            tar(),
            ("IMPORTER_CHECKSUM", "md5:00000000000000000000000000000000"),
            "checksum validation failed: checksum mismatch: expected md5:00000000000000000000000000000000",
        ),
    ] {
        let origin = origin(content);
        let pod = used_pod(&origin, &[env]);
        let finished = pod.run();
        let message = pod.message().or_fail("a message");
        assert!(message.contains(sentence), "{message}");
        // A wrong checksum is final: with exit code 0 the controller does not try again.
        assert_eq!(finished.code(), i32::from(env.0 != "IMPORTER_CHECKSUM"));
        assert_eq!(names(&pod.path("data")), ["disk.img"], "{message}");
        let kept = std::fs::read_to_string(pod.disk()).or_fail("what was there");
        assert_eq!(kept, "of somebody else");
    }
}
