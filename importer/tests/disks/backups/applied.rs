//! One incremental backup on its base disk.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::process::Program;

use super::MIB;

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
    }
}
