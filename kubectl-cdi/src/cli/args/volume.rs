//! The options of the commands that create a volume.

use clap::{Args, ValueEnum};

use crate::cluster::VolumeOptions;

/// Options of the created volume.
#[derive(Debug, Args)]
#[command(next_help_heading = "Volume")]
pub(crate) struct VolumeArgs {
    /// Use an existing volume
    #[arg(long)]
    pub(crate) no_create: bool,

    /// Size of the volume, such as 10Gi [default: the size of the disk in the image]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) size: Option<u64>,

    #[command(flatten)]
    pub(crate) options: VolumeOptions,

    /// Print the object instead of creating it
    #[arg(long, value_name = "WHERE", value_enum, conflicts_with = "no_create")]
    pub(crate) dry_run: Option<DryRun>,

    /// Output format of --dry-run [default: yaml]
    #[arg(short, long, value_name = "FORM", value_enum, requires = "dry_run")]
    pub(crate) output: Option<ManifestFormat>,
}

/// Values of `--dry-run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Contact no cluster; the size assumes CDI's default filesystem overhead
    Client,
    /// Read the filesystem overhead from the cluster, and let it validate the object
    Server,
}

/// Values of `-o` with `--dry-run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ManifestFormat {
    /// YAML
    Yaml,
    /// JSON
    Json,
}

/// Parses a Kubernetes quantity into bytes. Common spellings are accepted too: 10GB is read as
/// 10G, and 10GiB as 10Gi.
fn size(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.strip_prefix(number).unwrap_or_default();
    let unit = unit.strip_suffix(['B', 'b']).unwrap_or(unit);
    let unit = match unit {
        "K" => "k",
        // In Kubernetes `m` means a thousandth, and `k` is the only lower-case unit of size. The
        // user probably meant the upper-case unit.
        "ki" | "m" | "mi" | "g" | "gi" | "t" | "ti" | "p" | "pi" => {
            let letter = unit.trim_end_matches('i').to_uppercase();
            let decimal = if letter == "K" { "k" } else { &letter };
            return Err(format!(
                "{text:?} has an unknown unit: write {number}{decimal} or {number}{letter}i"
            ));
        }
        known => known,
    };
    program::quantity::parse_bytes(&format!("{number}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_accepted_in_the_usual_units() {
        for (text, bytes) in [
            ("10Gi", 10 << 30),
            ("10GiB", 10 << 30),
            ("10GB", 10_000_000_000),
            ("10G", 10_000_000_000),
            ("1.5TB", 1_500_000_000_000),
            ("3KB", 3000),
            ("512B", 512),
            ("1e9", 1_000_000_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for (text, words) in [
            ("10g", "write 10G or 10Gi"),
            ("10gb", "write 10G or 10Gi"),
            ("10m", "write 10M or 10Mi"),
            ("4ki", "write 4k or 4Ki"),
            ("ten", "is not a Kubernetes quantity"),
            ("GB", "is not a Kubernetes quantity"),
            ("", "is not a Kubernetes quantity"),
        ] {
            let said = size(text).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        }
    }
}
