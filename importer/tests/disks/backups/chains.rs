//! Long chains.

use std::path::PathBuf;

use testkit::fail::OrFail;
use testkit::tools;

use super::{MIB, restoring};

const CLUSTER: u64 = 4096;

fn at(offset: u64) -> usize {
    usize::try_from(offset).or_fail("a small disk")
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_hundred_files_are_restored_with_few_open_files() {
    let folder = testkit::tmpfs::fast_folder();
    let mut disk = vec![0; at(MIB)];
    let files: Vec<PathBuf> = (0..100u64)
        .map(|number| {
            let file = folder.path().join(format!("{number}.qcow2"));
            let create = ["create", "-q", "-f", "qcow2", "-o", "cluster_size=4096"];
            let words = create.iter().map(AsRef::as_ref).chain([file.as_os_str(), "1M".as_ref()]);
            tools::run("qemu-img", words);
            let (offset, length) = (number * 7 % 200 * CLUSTER, 20 * CLUSTER);
            let write = format!("write -P {} {offset} {length}", number + 1);
            tools::run(
                "qemu-io",
                ["-f".as_ref(), "qcow2".as_ref(), "-c".as_ref(), write.as_ref(), file.as_os_str()],
            );
            let range = at(offset)..at(offset + length);
            disk[range].fill(u8::try_from(number + 1).or_fail("a byte"));
            file
        })
        .collect();
    let target = folder.path().join("disk.img");
    let limited = restoring(&[], &files, &target).under("prlimit", ["--nofile=160"]);
    let restored = limited.run();
    restored.assert_success("restore");
    assert!(std::fs::read(&target).or_fail("the disk") == disk);
}
