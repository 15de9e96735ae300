//! Chains that are not what the user says: refused, and nothing is left.

use std::path::PathBuf;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::tools;

use super::{Chain, restore};

/// The order of the files of a chain, by number.
type Order = Vec<usize>;

/// Wrong orders of five files: neighbours swapped, all in reverse, and one left out.
fn wrong_orders() -> Vec<Order> {
    let swapped = |at: usize| {
        let mut order: Order = (0..5).collect();
        order.swap(at, at + 1);
        order
    };
    let without = |left_out: usize| (0..5).filter(|at| *at != left_out).collect();
    let mut orders: Vec<Order> = (0..4).map(swapped).collect();
    orders.push((0..5).rev().collect());
    orders.extend((0..5).map(without));
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
    let refused = |options: &[&str], order: &Order, code| {
        let finished = restore(options, &pick(order), &target);
        assert_eq!(finished.code(), code, "{order:?}: {}", finished.stderr);
        assert!(!target.exists(), "{order:?}");
        finished.stderr
    };
    for order in wrong_orders() {
        let said = refused(&["--manifest", list], &order, 2);
        assert!(said.contains("chain.sha256"), "{order:?}: {said}");
    }
    chain.name_bases();
    for order in wrong_orders() {
        // Without the newest backup the chain is an older state of the disk, so nothing
        // contradicts it.
        let order = if order == [0, 1, 2, 3] { vec![0, 1, 2, 3, 3] } else { order };
        refused(&[], &order, 4);
    }
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn several_dated_folders_show_the_order_and_one_does_not() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let chain = Chain::build(folder.path(), 2);
    let target = folder.path().join("disk.img");
    let place = |name: &str, number: usize, from: &PathBuf| {
        let backup = folder.path().join(name);
        std::fs::create_dir_all(&backup).or_fail("a folder");
        let file = backup.join(format!("b{number}-disk.qcow2"));
        std::fs::rename(from, &file).or_fail("a backup");
        file
    };
    let restored = |files: &[PathBuf]| {
        restore(&["--force"], files, &target).assert_success("restore");
        disk::assert_same(&target, &chain.raw, chain.virtual_size, "restored");
        std::fs::remove_file(&target).or_fail("the disk");
    };
    // As KubeVirt names them.
    let dated = |number| format!("vm/b{number}-2026-01-0{}_00-00-00", number + 1);
    let files = [0, 1, 2].map(|number| place(&dated(number), number, &chain.files[number]));
    let swapped = [0, 2, 1].map(|at| files[at].clone());
    restore(&[], &swapped, &target).assert_failure(4, "its directory is dated 2026-01-02_00-00-00");
    assert!(!target.exists());
    restored(&files);

    let together = "b-2026-01-01_00-00-00";
    let mut files = [0, 1, 2].map(|number| place(together, number, &files[number]));
    // The same folder by another path.
    files[1] = folder.path().join(together).join("..").join(together).join("b1-disk.qcow2");
    restored(&files);
    files[2] = place("other-2026-01-01_00-00-00", 2, &files[2]);
    let words = "its directory is dated 2026-01-01_00-00-00";
    restore(&[], &files, &target).assert_failure(4, words);
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn damaged_and_exchanged_files_and_targets_that_are_sources_are_refused() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let chain = Chain::build(folder.path(), 4);
    let list = chain.write_manifest(folder.path());
    let list = list.to_str().or_fail("a path of ASCII");
    let target = path("disk.img");
    let [full, first, second, third, larger] = &chain.files[..] else { panic!("five files") };
    let before = std::fs::read(first).or_fail("a backup");
    let words = ["--force", "--output-format", "raw"];
    restore(&words, &chain.files, first).assert_failure(7, "it is the source");
    assert!(std::fs::read(first).or_fail("a backup") == before);

    std::fs::hard_link(first, path("link.qcow2")).or_fail("a link");
    let whole = std::fs::read(second).or_fail("a backup");
    std::fs::write(path("half.qcow2"), &whole[..whole.len() / 2]).or_fail("half a backup");
    std::fs::write(path("noise.qcow2"), disk::content(1, 1 << 20)).or_fail("noise");
    std::fs::write(path("page.html"), "<html>").or_fail("a page");
    for (files, sentence) in [
        ([full, first, &path("link.qcow2")], "are the same file"),
        ([full, first, &path("half.qcow2")], "the image is truncated"),
        ([full, first, &path("half.qcow2")], "half.qcow2"),
        ([full, first, &path("noise.qcow2")], "the format is raw"),
        ([&path("page.html"), first, second], "text, not a disk"),
        ([full, larger, third], "a disk never shrinks"),
    ] {
        restore(&[], &files.map(PathBuf::clone), &target).assert_failure(4, sentence);
    }
    std::fs::copy(second, first).or_fail("another backup");
    let finished = restore(&["--manifest", list], &chain.files, &target);
    finished.assert_failure(6, "backup1.qcow2 is not the file listed in the manifest");
    assert!(!target.exists());

    tools::run("mkfifo", [&path("pipe.qcow2")]);
    for files in [[full, &path("pipe.qcow2")], [&path("pipe.qcow2"), first]] {
        let finished = restore(&[], &files.map(PathBuf::clone), &target);
        finished.assert_failure(3, "pipe.qcow2: not a regular file or block device");
    }
    assert!(!target.exists());
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn apply_refuses_qcow2_files_and_larger_disks() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let chain = Chain::build(folder.path(), 1);
    chain.name_bases();
    let [full, first, ..] = &chain.files[..] else { panic!("two files") };
    let larger = folder.path().join("larger.img");
    let file = std::fs::File::create(&larger).or_fail("a file");
    file.set_len(chain.virtual_size + 512).or_fail("its size");
    let base = full.file_name().or_fail("a name");
    for (target, sentence) in [
        (full, "the target is a qcow2 file, expected a raw disk"),
        (&larger, "the delta is for a disk of"),
    ] {
        let before = std::fs::read(target).or_fail("the target");
        let program = Program::new(crate::BINARY).args(["apply", "--base"]).arg(base);
        program.arg(first).arg(target).run().assert_failure(4, sentence);
        assert!(std::fs::read(target).or_fail("the target") == before, "{sentence}");
    }
}
