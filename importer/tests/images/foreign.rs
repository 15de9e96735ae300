//! Files that are not disk images: a web page is refused, most other content is stored as it is.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};
use testkit::random::Random;
use testkit::tools;

const PAGE: &[u8] =
    b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Who are you?</body></html>\n";

/// Imports `source`. Returns how the importer ended, and the disk if there is one.
fn import(source: &str, args: &[&str]) -> (Finished, Option<Vec<u8>>) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let target = folder.path().join("disk.img");
    let program = Program::new(crate::BINARY)
        .args(["import", source])
        .arg(&target)
        .args(args.iter().copied());
    let finished = program.run();
    (finished, std::fs::read(&target).ok())
}

#[test]
fn a_web_page_is_refused_and_quoted() {
    let html = Script {
        headers: vec![("Content-Type".into(), "text/html".into())],
        ..Script::new(PAGE.repeat(200))
    };
    let origin = Origin::start(html).or_fail("a server");
    let (finished, disk) = import(&origin.url("/disk.img"), &[]);
    finished.assert_failure(
        4,
        "this is text, not a disk: it begins with \"<!DOCTYPE html> <html><head><title>Sign in",
    );
    let described = format!("(text/html, {} bytes): check the address", PAGE.len() * 200);
    assert!(finished.stderr.contains(&described), "{}", finished.stderr);
    assert!(finished.stderr.contains("--format raw"), "{}", finished.stderr);
    assert_eq!(disk, None);
    // The advice of the error works.
    let (finished, disk) = import(&origin.url("/disk.img"), &["--format", "raw"]);
    finished.assert_success("--format raw");
    assert!(disk.or_fail("a disk").starts_with(PAGE));
}

#[test]
fn content_that_may_be_a_disk_is_stored_as_it_is() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let file = folder.path().join("file");
    let name = file.to_str().or_fail("a path of ASCII");
    let inside = folder.path().join("inside");
    std::fs::write(&inside, disk::content(1, 100_000)).or_fail("a file");
    let tar =
        tools::filter("tar", ["-C", folder.path().to_str().or_fail("ASCII"), "-c", "inside"], b"");
    let luks = [b"LUKS\xBA\xBE\0\x02".to_vec(), disk::content(2, 8184)].concat();
    for (bytes, warning) in [
        (
            tar,
            Some(
                "warning: this is a tar archive, stored unchanged as a disk: use --ova for the disk in an OVA",
            ),
        ),
        (luks, Some("warning: this disk is encrypted by LUKS")),
        (vec![0; 512], None),
        (disk::content(3, 4096), None),
        ([b"a label".to_vec(), vec![0; 505]].concat(), None),
    ] {
        std::fs::write(&file, &bytes).or_fail("write the file");
        let (finished, disk) = import(name, &[]);
        finished.assert_success(warning.unwrap_or("a disk"));
        assert!(disk.or_fail("a disk") == bytes);
        match warning {
            Some(warning) => {
                assert!(finished.stderr.contains(warning), "{warning:?} in {}", finished.stderr)
            }
            None => assert!(!finished.stderr.contains("warning"), "{}", finished.stderr),
        }
    }
}

#[test]
#[ignore = "tools: mkfs.ext4, mkfs.xfs"]
fn filesystems_without_partitions_and_noise_are_disks() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    // The smallest size of each filesystem; xfs requires 300 MiB, of which it writes little.
    for (program, options, name, size) in [
        ("mkfs.ext4", &["-q", "-F"][..], "ext4", 4 << 20),
        ("mkfs.xfs", &["-q", "-f"], "xfs", 300 << 20),
    ] {
        let file = std::fs::File::create(path(name)).or_fail(name);
        file.set_len(size).or_fail(name);
        tools::run(program, options.iter().copied().chain([path(name).as_str()]));
    }
    let mut noise = vec![0; 1 << 20];
    Random::new(7).fill(&mut noise);
    std::fs::write(path("noise"), noise).or_fail("noise");
    for name in ["ext4", "xfs", "noise"] {
        let (finished, disk) = import(&path(name), &[]);
        finished.assert_success(name);
        assert!(!finished.stderr.contains("warning"), "{name}: {}", finished.stderr);
        assert!(disk.or_fail(name) == std::fs::read(path(name)).or_fail(name), "{name}");
    }
}
