//! Checks that volumes created for an image have enough space on ext4 and xfs, formatted with the
//! tools that kubelet uses.

use std::fs::File;
use std::path::Path;

use serde_json::json;
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::process::Program;
use testkit::tools;

use crate::upload::{BINARY, NAMESPACE, api};

const MIB: u64 = 1 << 20;

/// Disks of 1 MiB to 100 GiB: around the thresholds of both file systems, and CirrOS's 44 MiB.
const DISKS: [u64; 12] = [
    MIB,
    4 * MIB,
    16 * MIB,
    44 * MIB,
    128 * MIB,
    300 * MIB,
    512 * MIB,
    1 << 30,
    2 << 30,
    4 << 30,
    10 << 30,
    100 << 30,
];

/// The size below which `mkfs.xfs` refuses to create a file system.
const XFS_MIN_BYTES: u64 = 300 * MIB;

/// Returns the size that a dry run without `--size` requests for the disk in `image`.
fn requested(image: &Path, target: &str, class: &str) -> u64 {
    let finished = Program::new(BINARY)
        .args(["upload", &image.to_string_lossy(), target])
        .args(["--dry-run", "server", "--storage-class", class])
        .args(["--namespace", NAMESPACE, "--kubeconfig"])
        .arg(api().cluster.administrator())
        .run();
    finished.assert_success("a dry run");
    let mut lines = finished.stdout.lines();
    // The field, not the map of the same name.
    let size = lines.find_map(|line| line.trim().strip_prefix("storage: "));
    program::quantity::parse_bytes(size.or_fail(&finished.stdout)).or_fail(&finished.stdout)
}

/// Returns the size of the claim that CDI creates for a DataVolume of `bytes` (`GetRequiredSpace`,
/// with its default overhead of 6 %).
fn inflated(bytes: u64) -> u64 {
    let hundredths = u128::from(bytes.next_multiple_of(MIB)) * 106;
    u64::try_from(hundredths.div_ceil(100)).or_fail("a size")
}

/// Formats a volume of `bytes`, and returns how many of them a pod may use. Fails the test unless
/// a file of `disk` bytes fits.
fn usable(folder: &Path, bytes: u64, mkfs: &[&str], disk: u64) -> u64 {
    let device = LoopDevice::empty(folder, bytes / 512 * 512, 512);
    let words = mkfs[1..].iter().map(AsRef::as_ref);
    tools::run(mkfs[0], words.chain([device.path().as_os_str()]));
    let place = folder.join("volume");
    std::fs::create_dir_all(&place).or_fail(place.display());
    tools::run("mount", [device.path(), &place]);
    let volume = rustix::fs::statvfs(&place).or_fail(place.display());
    let file = File::create(place.join("disk.img")).or_fail("a disk");
    let allocated = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, disk);
    drop(file);
    tools::unmount(&place);
    let usable = volume.f_bavail * volume.f_frsize;
    assert!(
        usable >= disk,
        "{mkfs:?}: of {bytes} bytes {usable} are usable, and the disk has {disk}"
    );
    allocated.or_fail(format!("{mkfs:?}: a file of {disk} bytes on a volume of {bytes}"));
    usable
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_new_volume_has_space_for_its_disk_on_ext4_and_xfs() {
    let cluster = &api().cluster;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "on-xfs"},
        "provisioner": "example.org/any",
        "parameters": {"csi.storage.k8s.io/fstype": "xfs"},
    });
    cluster.create("/apis/storage.k8s.io/v1/storageclasses", &class);
    let overheads = json!({"unknown": "0.06", "on-xfs": "0.06"});
    cluster.set_cdi_config_status(&json!({"filesystemOverhead": {"storageClass": overheads}}));
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = folder.path().join("disk.raw");
    for disk in DISKS {
        File::create(&image).and_then(|file| file.set_len(disk)).or_fail("an image");
        for (target, class) in
            [("dv/a", "unknown"), ("pvc/a", "unknown"), ("dv/a", "on-xfs"), ("pvc/a", "on-xfs")]
        {
            let requested = requested(&image, target, class);
            let claim = if target == "dv/a" { inflated(requested) } else { requested };
            let mut line =
                format!("disk {disk} {target} {class}: requested {requested}, claim {claim}");
            if class == "unknown" {
                let usable =
                    usable(folder.path(), claim, &["mkfs.ext4", "-q", "-F", "-m", "0"], disk);
                line += &format!(", ext4 {usable}");
            }
            if class == "on-xfs" || claim >= XFS_MIN_BYTES {
                let usable = usable(folder.path(), claim, &["mkfs.xfs", "-q", "-f"], disk);
                line += &format!(", xfs {usable}");
            }
            println!("{line}");
            // Not much more than CDI's 6 % alone: the metadata of xfs or, where only ext4 is
            // possible, a tenth and 10 MiB.
            let spare = match class {
                "on-xfs" => XFS_MIN_BYTES + XFS_MIN_BYTES / 10,
                _ if claim < XFS_MIN_BYTES => disk / 20 + 10 * MIB,
                _ => 90 * MIB,
            };
            assert!(claim <= inflated(disk) + spare, "wasteful: {line}");
        }
    }
}
