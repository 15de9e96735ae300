//! Calculates the part of a volume that a disk image may use.

/// Sizes of disk images are multiples of this number of bytes, because qemu-img and CDI's
/// controllers round to whole MiB.
pub const ALIGNMENT_BYTES: u64 = 1 << 20;

/// Parses the share of a volume that is reserved for its filesystem (`FILESYSTEM_OVERHEAD`), as a
/// fraction of the image size. Any text other than a non-negative number counts as 0, as in CDI.
pub fn parse_overhead(text: &str) -> f64 {
    text.parse()
        .ok()
        .filter(|fraction: &f64| fraction.is_finite() && *fraction >= 0.0)
        .unwrap_or(0.0)
}

/// Returns the maximum size in bytes of an image on a volume with `available` bytes. It is
/// `available / (1 + overhead)`, rounded up to a byte and then down to [`ALIGNMENT_BYTES`].
///
/// The division uses `f64` on purpose. The controllers compute the size of the volume in
/// `float64`, and an exact division would sometimes differ from their result by a whole MiB.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is not negative, and `as` saturates where the spelled-out conversion does not exist"
)]
pub fn usable_space(available: u64, overhead: f64) -> u64 {
    let bytes = (available as f64 / (1.0 + overhead)).ceil() as u64;
    // Above 2^53 the conversion to `f64` may round up to more than the available bytes.
    let bytes = bytes.min(available);
    bytes - bytes % ALIGNMENT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_space_matches_the_vectors_of_the_controllers() {
        for (text, available, usable) in [
            ("0.06", 1_073_741_824, 1_012_924_416),
            ("0.06", 104_857_600, 98_566_144),
            ("0", 1_073_741_824, 1_073_741_824),
            ("0", 1_000_000_000, 999_292_928),
            ("0.055", 5_368_709_120, 5_088_739_328),
            ("0.06", 2_276_332_667, 2_147_483_648),
            ("0", ALIGNMENT_BYTES - 1, 0),
            ("0", u64::MAX, u64::MAX - (ALIGNMENT_BYTES - 1)),
        ] {
            assert_eq!(
                usable_space(available, parse_overhead(text)),
                usable,
                "{text} of {available}"
            );
        }
        for text in ["", "six", "-0.5", "NaN", "inf"] {
            assert_eq!(parse_overhead(text), 0.0, "{text}");
        }
    }
}
