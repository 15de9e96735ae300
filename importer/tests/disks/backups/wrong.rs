//! Chains that are not what the user says: refused, and nothing is left.

use std::path::PathBuf;

use testkit::disk;
use testkit::fail::OrFail;

use super::{Chain, restore};

/// The order of the files of a chain, by number.
type Order = Vec<usize>;

/// Wrong orders of five files: neighbours swapped, all in reverse, and one left out.
fn wrong_orders() -> Vec<Order> {
    let all: Order = (0..5).collect();
    let mut orders: Vec<Order> = (0..4)
        .map(|at| {
            let mut order = all.clone();
            order.swap(at, at + 1);
            order
        })
        .collect();
    orders.push(all.iter().rev().copied().collect());
    orders
        .extend((0..5).map(|left_out| all.iter().copied().filter(|at| *at != left_out).collect()));
    orders
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn wrong_orders_and_missing_links_are_refused() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let chain = Chain::build(folder.path(), 4);
    let list = chain.write_manifest(folder.path());
    let list = list.to_str().or_fail("a path of ASCII");
    let target = folder.path().join("disk.img");
    let pick =
        |order: &Order| order.iter().map(|at| chain.files[*at].clone()).collect::<Vec<PathBuf>>();
    let mut refused = 0;
    for order in wrong_orders() {
        let finished = restore(&["--manifest", list], &pick(&order), &target);
        assert_eq!(finished.code(), 2, "{order:?}: {}", finished.stderr);
        assert!(finished.stderr.contains("chain.sha256"), "{order:?}: {}", finished.stderr);
        assert!(!target.exists(), "{order:?}");
        refused += 1;
    }
    chain.name_bases();
    for order in wrong_orders() {
        // Without the newest backup the chain is an older state of the disk, so nothing contradicts it.
        let order = if order == [0, 1, 2, 3] { vec![0, 1, 2, 3, 3] } else { order };
        let finished = restore(&[], &pick(&order), &target);
        assert_eq!(finished.code(), 4, "{order:?}: {}", finished.stderr);
        assert!(!target.exists(), "{order:?}");
        refused += 1;
    }
    assert_eq!(refused, 20);
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_file_that_was_exchanged_is_found_by_its_digest() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let chain = Chain::build(folder.path(), 2);
    let list = chain.write_manifest(folder.path());
    std::fs::copy(&chain.files[2], &chain.files[1]).or_fail("another backup");
    let target = folder.path().join("disk.img");
    let finished = restore(&["--manifest", list.to_str().or_fail("ASCII")], &chain.files, &target);
    finished.assert_failure(3, "backup1.qcow2 is not the file listed in the manifest");
    assert!(!target.exists());
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_smaller_disk_cannot_follow_a_larger_one() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let chain = Chain::build(folder.path(), 4);
    let target = folder.path().join("disk.img");
    let swapped = [0, 4, 3].map(|at| chain.files[at].clone());
    restore(&[], &swapped, &target).assert_failure(4, "a disk never shrinks");
    assert!(!target.exists());
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn the_folders_of_kubevirt_show_the_order() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let chain = Chain::build(folder.path(), 2);
    let files: Vec<PathBuf> = (0..3)
        .map(|number| {
            let backup =
                folder.path().join(format!("vm/b{number}-2026-01-0{}_00-00-00", number + 1));
            std::fs::create_dir_all(&backup).or_fail("a folder");
            let file = backup.join(format!("b{number}-disk.qcow2"));
            std::fs::rename(&chain.files[number], &file).or_fail("a backup");
            file
        })
        .collect();
    let target = folder.path().join("disk.img");
    let swapped = [0, 2, 1].map(|at| files[at].clone());
    restore(&[], &swapped, &target).assert_failure(4, "its directory is dated 2026-01-02_00-00-00");
    assert!(!target.exists());
    restore(&[], &files, &target).assert_success("restore");
    disk::assert_same(&target, &chain.raw, chain.virtual_size, "restored");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn one_dated_folder_does_not_show_the_order() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let chain = Chain::build(folder.path(), 2);
    let place = |name: &str, number: usize, from: &PathBuf| {
        let backup = folder.path().join(name);
        std::fs::create_dir_all(&backup).or_fail("a folder");
        let file = backup.join(format!("b{number}.qcow2"));
        std::fs::rename(from, &file).or_fail("a backup");
        file
    };
    let together = "b-2026-01-01_00-00-00";
    let mut files: Vec<PathBuf> =
        (0..3).map(|number| place(together, number, &chain.files[number])).collect();
    // The same folder by another path.
    files[1] = folder.path().join(together).join("..").join(together).join("b1.qcow2");
    let target = folder.path().join("disk.img");
    restore(&[], &files, &target).assert_success("restore");
    disk::assert_same(&target, &chain.raw, chain.virtual_size, "restored");

    files[2] = place("other-2026-01-01_00-00-00", 2, &files[2]);
    let words = "its directory is dated 2026-01-01_00-00-00";
    restore(&["--force"], &files, &target).assert_failure(4, words);
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn damaged_files_and_targets_that_are_sources_are_refused() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let chain = Chain::build(folder.path(), 2);
    let target = folder.path().join("disk.img");
    let [full, first, last] = &chain.files[..] else { panic!("three files") };
    let before = std::fs::read(first).or_fail("a backup");
    restore(&["--force"], &chain.files, first).assert_failure(7, "it is the source");
    assert!(std::fs::read(first).or_fail("a backup") == before);

    let link = folder.path().join("link.qcow2");
    std::fs::hard_link(first, &link).or_fail("a link");
    let twice = [full.clone(), first.clone(), link];
    restore(&[], &twice, &target).assert_failure(4, "are the same file");

    let whole = std::fs::read(last).or_fail("the newest");
    std::fs::write(last, &whole[..whole.len() / 2]).or_fail("the newest");
    let finished = restore(&[], &chain.files, &target);
    finished.assert_failure(4, "the image is truncated");
    assert!(finished.stderr.contains("backup2.qcow2"), "{}", finished.stderr);

    let noise = folder.path().join("noise.qcow2");
    std::fs::write(&noise, disk::content(1, 1 << 20)).or_fail("noise");
    restore(&[], &[full.clone(), noise], &target).assert_failure(4, "the format is raw");
    let pages = folder.path().join("page.html");
    std::fs::write(&pages, "<html>").or_fail("a page");
    restore(&[], &[pages, first.clone()], &target).assert_failure(4, "text, not a disk");
    assert!(!target.exists());
}
