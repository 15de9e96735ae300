//! Whole chains and single increments, compared with qemu-img.

use std::ffi::OsStr;
use std::path::PathBuf;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::qcow2::{Guest, Qcow2};
use testkit::images::{Compression, Content, Spec};
use testkit::loopdev::LoopDevice;
use testkit::process::Program;
use testkit::tools;

use super::{Chain, MIB, restore, restoring};

#[test]
#[ignore = "root: loop devices"]
fn a_full_backup_and_ten_others_are_the_disk_of_qemu_img() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let chain = Chain::build(folder.path(), 10);
    let target = folder.path().join("disk.img");
    let restored = restore(&[], &chain.files, &target);
    restored.assert_success("restore");
    assert!(restored.stdout.starts_with("restored qcow2: "), "{}", restored.stdout);
    disk::assert_same(&target, &chain.raw, chain.virtual_size, "restored");

    // The way of KubeVirt's documents: each file becomes the backing file of the next, and the
    // last is converted.
    chain.name_bases();
    let oracle = folder.path().join("oracle.img");
    assert!(tools::qemu_converts("qcow2", chain.files.last().or_fail("a file"), &oracle));
    disk::assert_same(&target, &oracle, chain.virtual_size, "rebased");
    let list = chain.write_manifest(folder.path());
    let list = list.to_str().or_fail("a path of ASCII");
    restore(&["--force", "--manifest", list], &chain.files, &target).assert_success("by names");
    disk::assert_same(&target, &chain.raw, chain.virtual_size, "by names");

    let old = folder.path().join("device");
    std::fs::write(&old, disk::content(9, chain.virtual_size.next_multiple_of(MIB)))
        .or_fail("the device");
    let device = LoopDevice::of_file(&old);
    restore(&[], &chain.files, device.path()).assert_success("a device with other content");
    disk::assert_same(device.path(), &chain.raw, chain.virtual_size, "the device");
}

/// The increment states that its backing file is raw, whatever the guest wrote into it.
#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_full_backup_that_is_stated_to_be_raw_is_raw() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let (full, increment, target) = (path("guest.raw"), path("inc.qcow2"), path("disk.img"));
    let heads = [Qcow2::new(16, vec![Guest::Data(1)]).build().image, b"U".repeat(20_480)];
    for mut disk in heads {
        disk.resize(8 << 20, 0);
        std::fs::write(&full, &disk).or_fail("the full backup");
        let create = "create -q -f qcow2 -F raw -b".split(' ').map(OsStr::new);
        tools::run("qemu-img", create.chain([full.as_os_str(), increment.as_os_str()]));
        let words = [OsStr::new("-f"), OsStr::new("qcow2"), increment.as_os_str()];
        tools::filter("qemu-io", words, b"write -P 5 4M 64k\n");
        let files = [full.clone(), increment.clone()];
        restore(&["--force"], &files, &target).assert_success("restore");
        disk[4 << 20..(4 << 20) + (64 << 10)].fill(5);
        assert!(std::fs::read(&target).or_fail("the disk") == disk);
    }
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

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn an_incremental_backup_without_a_backing_name_is_applied() {
    for (cluster_size, compression, extended_l2) in [
        (64 << 10, Compression::Plain, false),
        (4096, Compression::Zlib, false),
        (64 << 10, Compression::Zstd, true),
    ] {
        let folder = tempfile::tempdir().or_fail("a folder");
        let spec = Spec {
            cluster_size,
            compression,
            extended_l2,
            virtual_size: 6 * MIB,
            resized_to: Some(7 * MIB),
            ..Spec::new(Content::Empty)
        };
        let delta = spec.build_delta(6 * MIB, folder.path(), "delta");
        delta.rename_base("");
        let target = folder.path().join("disk.img");
        std::fs::copy(&delta.base, &target).or_fail("the base");
        let apply = || Program::new(crate::BINARY).arg("apply");
        let refused = apply().args(["--base", "delta.base"]).arg(&delta.qcow2).arg(&target).run();
        refused.assert_failure(4, "--no-backing-name applies KubeVirt's incremental backups");
        disk::assert_same(&target, &delta.base, 6 * MIB, "refused");
        let applied = apply().arg("--no-backing-name").arg(&delta.qcow2).arg(&target).run();
        applied.assert_success("apply");
        disk::assert_same(&target, &delta.raw, delta.virtual_size, &delta.name);

        // The full backup may be a raw disk.
        let restored = folder.path().join("restored.img");
        restore(&[], &[delta.base, delta.qcow2], &restored).assert_success("restore");
        disk::assert_same(&restored, &delta.raw, delta.virtual_size, &delta.name);
    }
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_hundred_files_are_restored_with_few_open_files() {
    let at = |offset: u64| usize::try_from(offset).or_fail("a small disk");
    let folder = testkit::tmpfs::fast_folder();
    let mut disk = vec![0; at(MIB)];
    let files: Vec<PathBuf> = (0..100u64)
        .map(|number| {
            let file = folder.path().join(format!("{number}.qcow2"));
            let create = "create -q -f qcow2 -o cluster_size=4096".split(' ').map(OsStr::new);
            tools::run("qemu-img", create.chain([file.as_os_str(), OsStr::new("1M")]));
            let (offset, length) = (number * 7 % 200 * 4096, 20 * 4096);
            let write = format!("write -P {} {offset} {length}", number + 1);
            let words = ["-f", "qcow2", "-c", &write].map(OsStr::new);
            tools::run("qemu-io", words.into_iter().chain([file.as_os_str()]));
            let range = at(offset)..at(offset + length);
            disk[range].fill(u8::try_from(number + 1).or_fail("a byte"));
            file
        })
        .collect();
    let target = folder.path().join("disk.img");
    let limited = restoring(&[], &files, &target).under("prlimit", ["--nofile=160"]);
    limited.run().assert_success("restore");
    assert!(std::fs::read(&target).or_fail("the disk") == disk);
}
