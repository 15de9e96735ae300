//! Ranges that a backup's map lists, from a web server.

use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};

use super::MIB;

const DISK_BYTES: u64 = 16 * MIB;

/// A map of these extents: offset, length and type, all in MiB.
fn write_map(folder: &Path, extents: &[(u64, u64, u64)]) -> String {
    let extents: Vec<String> = extents
        .iter()
        .map(|(offset, length, kind)| {
            format!(
                r#"{{"offset":{},"length":{},"type":{kind},"description":"x"}}"#,
                offset * MIB,
                length * MIB
            )
        })
        .collect();
    let map = folder.join("map.json");
    std::fs::write(&map, format!(r#"{{"extents":[{}],"next_offset":null}}"#, extents.join(",")))
        .or_fail("a map");
    map.to_str().or_fail("a path of ASCII").to_owned()
}

fn apply(words: &[&str], url: &str, target: &Path) -> Finished {
    Program::new(crate::BINARY).arg("apply").args(words).arg(url).arg(target).run()
}

fn range(from: u64, to: u64) -> std::ops::Range<usize> {
    let at = |mib: u64| usize::try_from(mib * MIB).or_fail("a small disk");
    at(from)..at(to)
}

#[test]
fn only_the_changed_ranges_are_fetched_and_written() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let (old, new) = (disk::content(1, DISK_BYTES), disk::content(2, DISK_BYTES));
    let target = folder.path().join("disk.img");
    std::fs::write(&target, &old).or_fail("the base");
    let origin = Origin::start(Script::new(new.clone())).or_fail("a server");
    // Clean, changed, changed to zero, clean zero; nothing about 13 to 14; clean.
    let map = write_map(folder.path(), &[(0, 4, 0), (4, 1, 1), (5, 3, 3), (8, 5, 2), (14, 2, 0)]);
    let url = origin.url("/disk.img");
    apply(&["--ranges", &map, "--backup-type", "incremental"], &url, &target)
        .assert_success("apply");
    let mut expected = old.clone();
    expected[range(4, 5)].copy_from_slice(&new[range(4, 5)]);
    expected[range(5, 8)].fill(0);
    expected[range(13, 14)].copy_from_slice(&new[range(13, 14)]);
    assert!(std::fs::read(&target).or_fail("the disk") == expected);

    // The same map of a full backup says the opposite.
    apply(&["--ranges", &map, "--backup-type", "full"], &url, &target).assert_success("apply");
    let mut expected = new;
    expected[range(5, 13)].fill(0);
    assert!(std::fs::read(&target).or_fail("the disk") == expected);
}

#[test]
fn wrong_maps_leave_the_disk_as_it_is() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let old = disk::content(1, DISK_BYTES);
    let target = folder.path().join("disk.img");
    std::fs::write(&target, &old).or_fail("the base");
    let origin = Origin::start(Script::new(disk::content(2, DISK_BYTES))).or_fail("a server");
    let url = origin.url("/disk.img");
    let refused = |extents: &[(u64, u64, u64)], sentence: &str| {
        let map = write_map(folder.path(), extents);
        let finished = apply(&["--ranges", &map, "--backup-type", "incremental"], &url, &target);
        finished.assert_failure(3, sentence);
        assert!(std::fs::read(&target).or_fail("the disk") == old, "{sentence}");
    };
    refused(&[(0, 4, 1), (3, 4, 1)], "overlapping extents");
    refused(&[(0, 17, 1)], "but the backup's disk has 16777216 bytes");
    refused(&[(0, 16, 7)], "unknown extent type 7");
    refused(&[], "it has no extents");

    // 400,000 extents and the gaps between them are more ranges than the memory has room for. Empty
    // pages take none.
    let extents: Vec<String> = (0..400_000)
        .map(|number| format!(r#"{{"offset":{},"length":1,"type":3}}"#, 2 * number + 1))
        .collect();
    let many = folder.path().join("many.json");
    for (map, sentence) in [
        (format!(r#"{{"extents":[{}]}}"#, extents.join(",")), "give the process more memory"),
        ("{}".repeat(3_000_000), "it has no extents"),
    ] {
        std::fs::write(&many, map).or_fail("a map");
        let words = ["--memory", "64Mi", "--backup-type", "incremental", "--ranges"];
        let words = [&words[..], &[many.to_str().or_fail("ASCII")]].concat();
        apply(&words, &url, &target).assert_failure(3, sentence);
        assert!(std::fs::read(&target).or_fail("the disk") == old);
    }

    let map = write_map(folder.path(), &[(0, 16, 1)]);
    let itself = target.to_str().or_fail("ASCII");
    let finished = apply(&["--ranges", &map, "--backup-type", "full"], itself, &target);
    finished.assert_failure(7, "it is the source");
    apply(&["--ranges", &map], &url, &target).assert_failure(2, "--backup-type");
}
