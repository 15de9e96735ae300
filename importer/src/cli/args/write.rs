//! The options for writing a disk, and for jobs that do not create their target.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use program::command_line::OutputArgs;
use program::command_line::values::{at_least_one, writable_folder};
use program::progress::ProgressArgs;
use stream::digest::Checksum;

/// The options of every transfer.
#[derive(Debug, Clone, Args)]
pub struct TransferArgs {
    /// Fail unless the source's bytes, as transferred, have this hash: md5, sha1, sha256 or
    /// sha512
    #[arg(long, value_name = "ALG:HEX", help_heading = "Source")]
    pub checksum: Option<Checksum>,

    /// Use this many threads to decompress and write [default: the CPUs of this process]
    // Hidden, like `direct`, `cached` and `route`: for benchmarks and searches for faults.
    #[arg(long, value_name = "N", value_parser = at_least_one, hide = true)]
    pub threads: Option<NonZeroUsize>,
}

/// The options for writing a disk, shared by `import` and `convert`.
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// Options of the transfer.
    #[command(flatten)]
    pub transfer: TransferArgs,

    /// Leave zeros unwritten, as holes (default)
    #[arg(long, conflicts_with = "preallocate", help_heading = "Target")]
    pub sparse: bool,

    /// Allocate the whole disk, zeros included
    #[arg(long, help_heading = "Target")]
    pub preallocate: bool,

    /// Bypass the page cache (O_DIRECT) for whole pages, if the target supports it [default: for
    /// large pieces only]
    #[arg(long, hide = true)]
    pub direct: bool,

    /// Write everything through the page cache, flushed as it fills
    #[arg(long, conflicts_with = "direct", hide = true)]
    pub cached: bool,

    /// Replace an existing file
    #[arg(long, help_heading = "Target")]
    pub force: bool,

    /// Write the disk in this format [default: raw; convert writes qcow2 to a name that ends in
    /// .qcow2]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Target")]
    pub output_format: Option<DiskFormat>,

    /// Set the size of the disk (500Mi, 20Gi, 2e9), for files only; a larger image is refused
    #[arg(long, value_name = "QUANTITY", value_parser = program::quantity::parse_size, help_heading = "Target")]
    pub size: Option<u64>,

    /// Choose how to read the image
    #[arg(long, value_enum, default_value_t = RouteOption::Auto, hide = true)]
    pub route: RouteOption,

    /// Directory for temporary data of the few images that need more memory than is allowed
    /// [default: none]
    #[arg(long, value_name = "DIR", value_parser = writable_folder, value_hint = ValueHint::DirPath, help_heading = "Transfer")]
    pub scratch: Option<PathBuf>,

    /// Verbosity.
    #[command(flatten)]
    pub shown: ProgressArgs,
}

/// The options of a job that makes no target of its own, shared by `unpack` and `apply`.
#[derive(Debug, Clone, Args)]
pub struct JobArgs {
    /// Options of the transfer.
    #[command(flatten)]
    pub transfer: TransferArgs,

    /// Verbosity.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Values of `--output-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiskFormat {
    /// The bytes of the disk
    Raw,
    /// A qcow2 image, in a new file (convert only)
    Qcow2,
}

/// Values of `--route`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RouteOption {
    /// Read the image's tables first if the source supports ranges, otherwise as one-pass
    Auto,
    /// Read from the first byte to the last, with one request
    OnePass,
}
