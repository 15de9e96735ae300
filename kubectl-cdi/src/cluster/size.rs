//! Sizes of claims, computed in the same way as in CDI's controllers and its data plane.

use program::exit::ExitReason;
use program::space::usable_space;

use super::destination::{VolumeTarget, VolumeTargetKind};
use super::mode::VolumeMode;
use crate::error::PluginError;

/// Claims are requested in whole MiB, because CDI rounds disks up to whole MiB.
const MIB: u64 = 1 << 20;

/// The smallest volume that `mkfs.xfs` formats (since xfsprogs 5.19), in bytes.
const XFS_MIN_BYTES: u64 = 300 * MIB;

/// CDI's overhead for file systems, used if its configuration contains no other value.
const DEFAULT_OVERHEAD: f64 = 0.06;

/// The size of a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeSize {
    /// As the user says, in bytes.
    Given(u64),
    /// Enough for a disk of so many bytes.
    ForDisk(u64),
}

/// The properties of the file systems of a storage class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FileSystem {
    /// CDI's overhead as a fraction: 0.06 means 6 %.
    pub overhead: f64,
    /// True if volumes are known to be formatted with xfs.
    pub is_xfs: bool,
}

impl Default for FileSystem {
    fn default() -> Self {
        Self { overhead: DEFAULT_OVERHEAD, is_xfs: false }
    }
}

/// Returns the size to request so that a disk of `disk_bytes` fits on both ext4 and xfs. CDI adds
/// its overhead to the size of a DataVolume, but uses the size of a claim unchanged.
pub fn request_bytes(
    kind: VolumeTargetKind,
    disk_bytes: u64,
    mode: VolumeMode,
    file_system: FileSystem,
) -> u64 {
    let disk = round_up(disk_bytes);
    if mode == VolumeMode::Block {
        return disk;
    }
    let factor = 1.0 + file_system.overhead;
    // The inverse of `usable_space`.
    let inflated = whole_bytes(disk as f64 * factor);
    let formatted = with_metadata(disk, file_system.is_xfs);
    match kind {
        // CDI checks the disk against its overhead, and the file system occupies space for
        // metadata: the size must satisfy both.
        VolumeTargetKind::Claim => round_up(inflated.max(formatted)),
        VolumeTargetKind::DataVolume if formatted <= inflated => disk,
        // The size that becomes at least `formatted` when CDI adds its overhead.
        VolumeTargetKind::DataVolume => round_up(whole_bytes(formatted as f64 / factor)),
    }
}

/// Returns the size of a volume whose file system can hold a file of `disk` bytes.
///
/// CDI's overhead of 6 % alone is too small for disks below 2 GiB. The table shows how many MiB of
/// a volume are not available according to statfs, measured with mke2fs 1.47.0 (`-m 0`, the option
/// that the kubelet uses) and mkfs.xfs 6.1.0.
///
/// | volume, MiB | ext4    | xfs     |
/// | ----------- | ------- | ------- |
/// | 2           | 1.13    |         |
/// | 16          | 2.59    |         |
/// | 32          | 7.42    |         |
/// | 64          | 10.57   |         |
/// | 256         | 30.10   |         |
/// | 300         | 32.90   | 80.91   |
/// | 640         | 39.81   | 100.26  |
/// | 1024        | 66.61   | 102.97  |
/// | 2048        | 118.17  | 110.11  |
/// | 8192        | 244.56  | 152.95  |
/// | 131072      | 3157.02 | 1009.68 |
fn with_metadata(disk: u64, is_xfs: bool) -> u64 {
    // ext4 below 512 MiB needs 6.25 % for inodes, 2 % for reserved clusters, a journal of 1 MiB (4
    // MiB from 32 MiB on), and spare group descriptors.
    let small = disk.saturating_add(disk / 10).saturating_add(8 * MIB);
    // The limit is two MiB lower, because the result is rounded up twice: by `request_bytes` and
    // by CDI.
    if !is_xfs && small <= XFS_MIN_BYTES - 2 * MIB {
        return small;
    }
    // xfs needs a log of 64 MiB, or of 1 % in larger volumes. ext4 needs 1.6 % for inodes, 16 MiB
    // of reserved clusters, and a journal of up to 1 GiB. The relative size of the journal is
    // largest at 128 GiB, where these three together take 2.4 %.
    let large = disk.saturating_add(disk / 32).saturating_add(88 * MIB);
    large.max(XFS_MIN_BYTES)
}

/// Fails with both sizes if a disk of `disk_bytes` does not fit into a claim of `claim_bytes`.
pub fn check_fits(
    target: &VolumeTarget,
    claim_bytes: u64,
    mode: VolumeMode,
    overhead: f64,
    disk_bytes: u64,
) -> Result<(), PluginError> {
    let usable_bytes = match mode {
        VolumeMode::Filesystem => usable_space(claim_bytes, overhead),
        VolumeMode::Block => claim_bytes,
    };
    if disk_bytes <= usable_bytes {
        return Ok(());
    }
    Err(PluginError::new(
        ExitReason::NoSpace,
        format!(
            "{target} is too small: the disk has {disk_bytes} bytes, and of the volume's {claim_bytes} bytes {usable_bytes} are usable; \
             make it larger, or choose another name"
        ),
    ))
}

/// Formats a size as a Kubernetes quantity, in the largest of the units Ti, Gi and Mi that divides
/// it, or otherwise in bytes.
pub fn format_quantity(bytes: u64) -> String {
    let units = [("Ti", 40), ("Gi", 30), ("Mi", 20)];
    let unit = units.into_iter().find(|&(_, shift)| bytes > 0 && bytes.trailing_zeros() >= shift);
    let (name, shift) = unit.unwrap_or(("", 0));
    format!("{}{name}", bytes >> shift)
}

fn round_up(bytes: u64) -> u64 {
    // This is the largest possible claim, because Linux has signed file offsets.
    let most = i64::MAX.unsigned_abs() / MIB;
    bytes.div_ceil(MIB).min(most) * MIB
}

/// Rounds a size up to whole bytes. Sizes with an overhead are computed in `f64` as in CDI's
/// controllers, because an exact product would sometimes differ from their result by a byte.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is not negative, and `as` saturates where the spelled-out conversion does not exist"
)]
fn whole_bytes(bytes: f64) -> u64 {
    bytes.ceil() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cdi(overhead: f64, is_xfs: bool) -> FileSystem {
        FileSystem { overhead, is_xfs }
    }

    #[test]
    fn the_examples_of_the_controllers_give_back_the_disk_size() {
        // Contract, A.1: the largest disk that fits. The volume has `ceil(disk * (1 + overhead))`
        // bytes.
        assert_eq!(whole_bytes(2_147_483_648.0 * 1.06), 2_276_332_667);
        for (overhead, claim, usable) in [
            (0.06, 1_073_741_824, 1_012_924_416),
            (0.06, 104_857_600, 98_566_144),
            (0.0, 1_073_741_824, 1_073_741_824),
            (0.055, 5_368_709_120, 5_088_739_328),
        ] {
            let target: VolumeTarget = "pvc/disk".parse().unwrap();
            let fits = |disk| check_fits(&target, claim, VolumeMode::Filesystem, overhead, disk);
            fits(usable).unwrap();
            let said = fits(usable + 1).unwrap_err().to_string();
            for number in [claim, usable + 1] {
                assert!(said.contains(&number.to_string()), "{said}");
            }
        }
    }

    #[test]
    fn a_data_volume_requests_the_disk_size_and_a_claim_adds_the_overhead() {
        let ask = |kind, mode| request_bytes(kind, (4 << 30) - 1, mode, cdi(0.06, false));
        for mode in [VolumeMode::Block, VolumeMode::Filesystem] {
            assert_eq!(ask(VolumeTargetKind::DataVolume, mode), 4 << 30);
        }
        assert_eq!(ask(VolumeTargetKind::Claim, VolumeMode::Block), 4 << 30);
        // 4552665334 bytes, rounded up to a MiB.
        assert_eq!(ask(VolumeTargetKind::Claim, VolumeMode::Filesystem), 4342 << 20);
    }

    #[test]
    fn only_volumes_known_to_be_xfs_get_its_minimum_size() {
        let ask = |kind, is_xfs| request_bytes(kind, MIB, VolumeMode::Filesystem, cdi(0.0, is_xfs));
        for kind in [VolumeTargetKind::DataVolume, VolumeTargetKind::Claim] {
            assert_eq!((ask(kind, false), ask(kind, true)), (10 << 20, 300 << 20));
        }
        assert_eq!(
            request_bytes(VolumeTargetKind::Claim, MIB, VolumeMode::Block, cdi(0.06, true)),
            MIB
        );
    }

    #[test]
    fn quantities_use_the_largest_exact_unit() {
        for (bytes, text) in [
            (0, "0"),
            (1, "1"),
            (1 << 20, "1Mi"),
            (10 << 30, "10Gi"),
            (1 << 40, "1Ti"),
            ((1 << 30) + (1 << 20), "1025Mi"),
            (1 << 10, "1024"),
        ] {
            assert_eq!(format_quantity(bytes), text);
            assert_eq!(program::quantity::parse_bytes(text), Ok(bytes));
        }
    }

    proptest! {
        #[test]
        fn the_requested_size_is_always_enough(
            disk in prop_oneof![1_u64..(1 << 33), 1_u64..(1 << 50)], percent in 0_u32..100, block: bool, is_xfs: bool,
        ) {
            let mode = if block { VolumeMode::Block } else { VolumeMode::Filesystem };
            let overhead = f64::from(percent) / 100.0;
            for kind in [VolumeTargetKind::Claim, VolumeTargetKind::DataVolume] {
                let asked = request_bytes(kind, disk, mode, cdi(overhead, is_xfs));
                let claim = match (kind, mode) {
                    (VolumeTargetKind::DataVolume, VolumeMode::Filesystem) => whole_bytes(asked as f64 * (1.0 + overhead)),
                    _ => asked,
                };
                let target: VolumeTarget = "pvc/disk".parse().unwrap();
                prop_assert!(check_fits(&target, claim, mode, overhead, disk).is_ok());
                prop_assert!(block || claim >= with_metadata(disk, is_xfs));
            }
        }
    }
}
