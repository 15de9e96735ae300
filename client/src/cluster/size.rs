//! Sizes of claims, as CDI's controllers and its data plane compute them.

use daemon::space::usable_space;

use super::error::ClusterError;
use super::mode::VolumeMode;
use super::target::{Kind, Target};

/// Claims are whole MiB: what CDI rounds disks up to.
const MIB: u64 = 1 << 20;

/// The size that is to be asked for, so that a disk of `disk_bytes` fits. Of a DataVolume CDI itself adds the file system's overhead.
pub fn request(kind: Kind, disk_bytes: u64, mode: VolumeMode, overhead: f64) -> u64 {
    let disk = round_up(disk_bytes);
    match (kind, mode) {
        (Kind::Claim, VolumeMode::Filesystem) => round_up(with_overhead(disk, overhead)),
        _ => disk,
    }
}

/// Fails with both numbers unless a disk of `disk_bytes` fits into a claim of `claim_bytes`.
pub fn fits(
    target: &Target,
    claim_bytes: u64,
    mode: VolumeMode,
    overhead: f64,
    disk_bytes: u64,
) -> Result<(), ClusterError> {
    let usable_bytes = match mode {
        VolumeMode::Filesystem => usable_space(claim_bytes, overhead),
        VolumeMode::Block => claim_bytes,
    };
    if disk_bytes <= usable_bytes {
        return Ok(());
    }
    Err(ClusterError::TooSmall {
        target: target.clone(),
        claim_bytes,
        usable_bytes,
        disk_bytes,
    })
}

/// A quantity of Kubernetes: in the largest binary unit of which it is a whole number, from MiB on.
pub fn quantity(bytes: u64) -> String {
    let units = [("Ti", 40), ("Gi", 30), ("Mi", 20)];
    let unit = units
        .into_iter()
        .find(|&(_, shift)| bytes > 0 && bytes.trailing_zeros() >= shift);
    let (name, shift) = unit.unwrap_or(("", 0));
    format!("{}{name}", bytes >> shift)
}

fn round_up(bytes: u64) -> u64 {
    // The largest claim: Linux counts offsets in a signed number.
    let most = i64::MAX.unsigned_abs() / MIB;
    bytes.div_ceil(MIB).min(most) * MIB
}

/// The inverse of [`usable_space`], in `f64` as in CDI's controllers: an exact product would now and then differ by a byte.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is not negative, and `as` saturates where the spelled-out conversion does not exist"
)]
fn with_overhead(bytes: u64, overhead: f64) -> u64 {
    (bytes as f64 * (1.0 + overhead)).ceil() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_vectors_of_the_controllers_lead_back_to_the_disk() {
        // Contract, A.1: the disk that fits, and the volume with `ceil(disk * (1 + overhead))` bytes.
        assert_eq!(with_overhead(2_147_483_648, 0.06), 2_276_332_667);
        for (overhead, claim, usable) in [
            (0.06, 1_073_741_824, 1_012_924_416),
            (0.06, 104_857_600, 98_566_144),
            (0.0, 1_073_741_824, 1_073_741_824),
            (0.055, 5_368_709_120, 5_088_739_328),
        ] {
            let target: Target = "pvc/disk".parse().unwrap();
            let fits = |disk| fits(&target, claim, VolumeMode::Filesystem, overhead, disk);
            fits(usable).unwrap();
            let said = fits(usable + 1).unwrap_err().to_string();
            for number in [claim, usable + 1] {
                assert!(said.contains(&number.to_string()), "{said}");
            }
        }
    }

    #[test]
    fn a_data_volume_is_the_disk_and_a_claim_of_files_is_more() {
        let ask = |kind, mode| request(kind, (2 << 30) - 1, mode, 0.06);
        for mode in [VolumeMode::Block, VolumeMode::Filesystem] {
            assert_eq!(ask(Kind::DataVolume, mode), 2 << 30);
        }
        assert_eq!(ask(Kind::Claim, VolumeMode::Block), 2 << 30);
        // 2276332667 bytes, rounded up.
        assert_eq!(ask(Kind::Claim, VolumeMode::Filesystem), 2171 << 20);
    }

    #[test]
    fn quantities_are_short() {
        for (bytes, text) in [
            (0, "0"),
            (1, "1"),
            (1 << 20, "1Mi"),
            (10 << 30, "10Gi"),
            (1 << 40, "1Ti"),
            ((1 << 30) + (1 << 20), "1025Mi"),
            (1 << 10, "1024"),
        ] {
            assert_eq!(quantity(bytes), text);
            assert_eq!(daemon::quantity::parse_bytes(text), Ok(bytes));
        }
    }

    proptest! {
        #[test]
        fn what_is_asked_for_is_enough(disk in 1_u64..(1 << 50), percent in 0_u32..100, block: bool) {
            let mode = if block { VolumeMode::Block } else { VolumeMode::Filesystem };
            let overhead = f64::from(percent) / 100.0;
            let asked = request(Kind::Claim, disk, mode, overhead);
            let target: Target = "pvc/disk".parse().unwrap();
            prop_assert!(fits(&target, asked, mode, overhead, disk).is_ok());
        }
    }
}
