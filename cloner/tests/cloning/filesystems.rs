//! Clones of block volumes into file systems as small as CDI makes them: what upstream's server
//! stores is stored.

use std::fs;
use std::path::PathBuf;

use crate::BINARY;
use tempfile::TempDir;
use testkit::clone_pod::ClonePod;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::loopdev::{LoopDevice, Mount};
use testkit::upload_pod::UploadPod;
use testkit::upload_proxy::beside;

const MIB: u64 = 1 << 20;

/// The size of the claim for a disk, with CDI's default overhead of 6 %.
fn claim_bytes(disk: u64) -> u64 {
    (disk * 106).div_ceil(100)
}

/// Clones a device of `disk_bytes`, of which the first `data_bytes` are data, into a claim of CDI.
/// Returns the last line of the cloner's log, which a pod shows, if it was refused.
fn clone(kind: &str, disk_bytes: u64, data_bytes: u64) -> Result<(), String> {
    let scratch: TempDir = tempfile::tempdir().or_fail("a folder");
    let case = format!("{kind}, {data_bytes} of {disk_bytes} bytes");
    let source: PathBuf = scratch.path().join("source");
    fs::write(&source, disk::content(data_bytes, data_bytes)).or_fail(&case);
    let file = fs::File::options().write(true).open(&source).or_fail(&case);
    file.set_len(disk_bytes).or_fail(&case);
    let device = LoopDevice::of_file(&source);

    let claim = claim_bytes(disk_bytes);
    let pod = UploadPod::new(&beside(BINARY, "cdi-uploadserver"))
        .env("FILESYSTEM_OVERHEAD", "0.06")
        .env("UPLOAD_IMAGE_SIZE", &claim.to_string());
    let data = pod.path("data");
    let volume = LoopDevice::empty(scratch.path(), claim.next_multiple_of(4096), 512);
    let mkfs = if kind == "ext4" { "mkfs.ext4 -q -m 0" } else { "mkfs.xfs -q" };
    let _mounted = Mount::of_device(volume.path(), mkfs, "rw", &data);
    let server = pod.start();
    let url = server.url("/v1beta1/upload");
    let cloner = ClonePod::new(BINARY, pod.authority(), pod.client(), &url).block(device.path());
    let finished = cloner.program().run();
    if finished.code() == 0 {
        server.wait().assert_success(&case);
        assert_eq!(fs::metadata(pod.disk()).or_fail(&case).len(), disk_bytes, "{case}");
        disk::assert_same(&pod.disk(), &source, disk_bytes, &case);
        return Ok(());
    }
    assert!(!pod.disk().exists(), "{case}: a partial disk looks complete");
    let last = finished.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("400"), "{case}: {last}\n{}", server.log());
    Err(last.to_owned())
}

/// CDI's specs `cloner_test.go` 756 and `clone-populator_test.go` 301.
#[test]
#[ignore = "root: loop devices"]
fn a_block_volume_fits_into_the_claim_that_cdi_sized_for_it() {
    clone("ext4", 64 * MIB, 16 * MIB).or_fail("a quarter of 64 MiB");
}

#[test]
#[ignore = "slow: 40 s, file systems up to 4 GiB"]
fn disks_of_any_size_fit_if_their_data_do() {
    for (kind, sizes) in [("ext4", &[64, 100, 256, 1024, 4096][..]), ("xfs", &[300, 512, 4096])] {
        for size in sizes {
            for part in [16, 2] {
                let data = (size * MIB / part).min(300 * MIB);
                clone(kind, size * MIB, data).or_fail(format!("{kind}, {size} MiB, 1/{part}"));
            }
        }
    }
    // The data do not fit, which nobody can change.
    let message = clone("ext4", 64 * MIB, 64 * MIB).expect_err("64 MiB do not fit");
    for word in [
        "is larger than the reported available storage",
        " bytes were stored, and ",
        " were available at the beginning",
    ] {
        assert!(message.contains(word), "{message}");
    }
}
