//! Whole chains, compared with qemu-img.

use std::ffi::OsStr;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::loopdev::LoopDevice;
use testkit::tools;

use super::{Chain, MIB, restore, restoring};

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_full_backup_and_ten_others_are_the_disk_of_qemu_img() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let chain = Chain::build(folder.path(), 10);
    let target = folder.path().join("disk.img");
    let restored = restoring(&[], &chain.files, &target).run();
    restored.assert_success("restore");
    assert!(restored.stdout.starts_with("restored qcow2 (ranged): "), "{}", restored.stdout);
    disk::assert_same(&target, &chain.raw, chain.virtual_size, "restored");

    // The way of KubeVirt's documents: each file becomes the backing file of the next, and the last is converted.
    chain.name_bases();
    let oracle = folder.path().join("oracle.img");
    assert!(tools::qemu_converts("qcow2", chain.files.last().or_fail("a file"), &oracle));
    disk::assert_same(&target, &oracle, chain.virtual_size, "rebased");
    let list = chain.write_manifest(folder.path());
    let list = list.to_str().or_fail("a path of ASCII");
    restore(&["--force", "--manifest", list], &chain.files, &target).assert_success("by names");
    disk::assert_same(&target, &chain.raw, chain.virtual_size, "by names");
}

#[test]
#[ignore = "root: loop devices"]
fn a_device_with_other_content_becomes_the_disk() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let chain = Chain::build(folder.path(), 3);
    let old = folder.path().join("device");
    std::fs::write(&old, disk::content(9, chain.virtual_size.next_multiple_of(MIB)))
        .or_fail("the device");
    let device = LoopDevice::of_file(&old);
    restore(&[], &chain.files, device.path()).assert_success("restore");
    disk::assert_same(device.path(), &chain.raw, chain.virtual_size, "the device");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn the_full_backup_may_be_a_raw_disk() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let spec =
        Spec { compression: Compression::Zlib, virtual_size: 5 * MIB, ..Spec::new(Content::Empty) };
    let delta = spec.build_delta(5 * MIB, folder.path(), "delta");
    delta.rename_base("");
    let target = folder.path().join("disk.img");
    restore(&[], &[delta.base.clone(), delta.qcow2.clone()], &target).assert_success("restore");
    disk::assert_same(&target, &delta.raw, delta.virtual_size, "restored");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn clusters_in_the_same_chunk_as_a_tiny_full_backup_are_restored() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let (base, delta) = (folder.path().join("full.raw"), folder.path().join("delta.qcow2"));
    std::fs::write(&base, [0xA5; 100]).or_fail("the full backup");
    let create = "create -q -f qcow2 -F raw -o cluster_size=4096 -b".split(' ').map(OsStr::new);
    let words = create.chain([base.as_os_str(), delta.as_os_str(), OsStr::new("65536")]);
    tools::run("qemu-img", words);
    let commands = "write -c -P 7 4096 4096\nwrite -c -P 9 16384 4096\n";
    let words = [OsStr::new("-f"), OsStr::new("qcow2"), delta.as_os_str()];
    tools::filter("qemu-io", words, commands.as_bytes());
    let target = folder.path().join("disk.img");
    restore(&[], &[base, delta], &target).assert_success("restore");
    let mut expected = vec![0; 65536];
    expected[..100].fill(0xA5);
    expected[4096..8192].fill(7);
    expected[16384..20480].fill(9);
    assert!(std::fs::read(&target).or_fail("the disk") == expected);
}
