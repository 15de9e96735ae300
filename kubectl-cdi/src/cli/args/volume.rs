//! The options of the commands that create a volume.

use clap::{Args, ValueEnum};
use program::quantity::parse_size;

use crate::cluster::VolumeOptions;

/// Options of the created volume.
#[derive(Debug, Args)]
#[command(next_help_heading = "Volume")]
pub(crate) struct VolumeArgs {
    /// Use an existing volume
    #[arg(long)]
    pub(crate) no_create: bool,

    /// Size of the volume, such as 10Gi [default: the size of the disk in the image]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
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
