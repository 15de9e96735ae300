//! The command line: subcommands, flags, their help and how their values are parsed.

mod evidence;
mod help;
mod pack;
mod source;
mod source_options;
mod write;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use diskimage::qcow2::Qcow2Compression;
use hypervisors::vddk::RUN_WITH_PARENT;
use program::command_line::LogArgs;
use sandbox::SandboxArgs;
use volume::limits::TransferLimits;
use volume::limits::memory_limit;

pub use self::evidence::EvidenceArgs;
use self::help::{
    APPLY_EXAMPLES, CHECK_EXAMPLES, COMPARE_EXAMPLES, CONVERT_EXAMPLES, IMPORT_EXAMPLES,
    INFO_EXAMPLES, PACK_EXAMPLES, RESTORE_EXAMPLES, UNPACK_EXAMPLES,
};
pub use self::pack::PackArgs;
pub use self::source::{ContentArgs, SourceArgs};
pub(super) use self::source_options::check_options;
pub use self::write::{DiskFormat, JobArgs, RouteOption, TransferArgs, WriteArgs};

/// CDI's default for `FILESYSTEM_OVERHEAD` (`spec.config.filesystemOverhead.global`).
pub const DEFAULT_OVERHEAD: f64 = 0.06;

/// Writes a disk image to a disk, in one pass.
///
/// Reads an image from a web server, an object store, a container registry, oVirt, VMware,
/// OpenStack, an NBD server or a file, decompresses it, converts it to a raw disk and writes only
/// the bytes that hold data. Nothing is stored on the way, and a failure leaves nothing that
/// looks complete.
///
/// Started with klog flags or with IMPORTER_SOURCE set, the program behaves as the importer pod
/// of KubeVirt CDI.
#[derive(Debug, Parser)]
#[command(name = "cdi-importer")]
pub struct ImporterCli {
    /// The limit of its memory.
    #[arg(long, global = true, help = volume::limits::memory_help(), value_name = "QUANTITY", value_parser = memory_limit, help_heading = "Transfer")]
    pub memory: Option<u64>,

    /// The sandbox.
    #[command(flatten)]
    pub sandbox: SandboxArgs,

    /// The command.
    #[command(subcommand)]
    pub command: ImporterCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum ImporterCommand {
    /// Write an image to a file or block device as a raw disk
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(Box<ImportArgs>),
    /// Convert an image on this machine to a raw disk or to qcow2
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert(Box<ConvertArgs>),
    /// Unpack a tar archive, compressed or not, into a directory
    #[command(after_help = UNPACK_EXAMPLES)]
    Unpack(Box<UnpackArgs>),
    /// Apply a delta (qcow2, or the changes of a VMware disk) to its base disk
    #[command(after_help = APPLY_EXAMPLES)]
    Apply(Box<ApplyArgs>),
    /// Restore a disk from a full backup and the incremental ones after it (qcow2)
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(Box<RestoreArgs>),
    /// Write one or several disks as an OCI artifact, as KubeVirt exports virtual machines
    #[command(after_help = PACK_EXAMPLES)]
    Pack(Box<PackArgs>),
    /// Show what an image is and how large a volume it needs, reading only metadata where possible
    #[command(after_help = INFO_EXAMPLES)]
    Info(Box<InfoArgs>),
    /// Check the tables of an image for damage: structure, references, overlaps, refcounts
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Box<CheckArgs>),
    /// Compare the bytes of two raw disks; zeros at the end of the longer one do not matter
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Run a program that ends when standard input does
    #[command(name = RUN_WITH_PARENT, hide = true)]
    RunWithParent(RunArgs),
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The source.
    #[command(flatten)]
    pub source: SourceArgs,

    /// Evidence of its publisher.
    #[command(flatten)]
    pub evidence: EvidenceArgs,

    /// Target of the disk: a file that does not exist yet, or a block device (its content is lost)
    // Without this, the heading of the source's options applies.
    #[arg(help_heading = None::<&str>, value_hint = ValueHint::FilePath)]
    pub target: PathBuf,

    /// Options for writing.
    #[command(flatten)]
    pub write: WriteArgs,
}

/// Arguments of `convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The image: a file, a block device, or `-` for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub image: PathBuf,

    /// Target of the disk: a file that does not exist yet, or a block device (its content is lost)
    #[arg(value_hint = ValueHint::FilePath)]
    pub target: PathBuf,

    /// Options for its content.
    #[command(flatten)]
    pub content: ContentArgs,

    /// Limits of the transfer.
    #[command(flatten, next_help_heading = "Source")]
    pub limits: TransferLimits,

    /// Compress the clusters of a qcow2 image [default: none]
    #[arg(long, value_name = "CODEC", value_parser = compression_parser(), help_heading = "Target")]
    pub compression: Option<Qcow2Compression>,

    /// Options for writing.
    #[command(flatten)]
    pub write: WriteArgs,
}

fn compression_parser() -> impl TypedValueParser<Value = Qcow2Compression> {
    let names = Qcow2Compression::ALL.map(Qcow2Compression::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Qcow2Compression>())
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The source.
    #[command(flatten)]
    pub source: SourceArgs,

    /// Also decompress every compressed cluster, which reads the whole image
    #[arg(long, help_heading = "Check")]
    pub data: bool,

    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// Verbosity.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// One disk: a file or a block device
    #[arg(value_hint = ValueHint::FilePath)]
    pub first: PathBuf,

    /// The other disk
    #[arg(value_hint = ValueHint::FilePath)]
    pub second: PathBuf,

    /// Verbosity.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Arguments of `unpack`.
#[derive(Debug, Args)]
pub struct UnpackArgs {
    /// The source.
    #[command(flatten)]
    pub source: SourceArgs,

    /// Existing directory that receives the files; existing files are replaced only with
    /// `--overwrite`
    #[arg(help_heading = None::<&str>, value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,

    /// Replace existing files, for example after an attempt that was killed
    #[arg(long, help_heading = "Target")]
    pub overwrite: bool,

    /// Options of the job.
    #[command(flatten)]
    pub job: JobArgs,
}

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// The source.
    #[command(flatten)]
    pub source: SourceArgs,

    /// Raw disk to change, a file or a block device; after an interruption, apply the delta again
    #[arg(help_heading = None::<&str>, value_hint = ValueHint::FilePath)]
    pub target: PathBuf,

    /// Require this backing file name in a qcow2 delta (without directories), to guard against
    /// applying it to the wrong disk
    #[arg(long, value_name = "NAME", help_heading = "Target")]
    pub base: Option<String>,

    /// Apply a qcow2 delta that does not name a backing file, such as an incremental backup of
    /// KubeVirt; it is not checked then that the delta belongs to the disk
    #[arg(long, conflicts_with = "base", help_heading = "Target")]
    pub no_backing_name: bool,

    /// Fetch and write only the ranges that this map of KubeVirt's pull-mode backup lists; the
    /// source is the raw disk, on a server that supports ranges; repeat for more pages of the map
    #[arg(long, value_name = "MAP.json", value_hint = ValueHint::FilePath, requires = "backup_type",
          conflicts_with_all = ["base", "no_backing_name"], help_heading = "Source")]
    pub ranges: Vec<PathBuf>,

    /// Type of the backup that --ranges belongs to (status.type); the types of extents in a map
    /// have opposite meanings in full and in incremental backups
    #[arg(long, value_name = "TYPE", value_enum, requires = "ranges", help_heading = "Source")]
    pub backup_type: Option<BackupTypeOption>,

    /// Options of the job.
    #[command(flatten)]
    pub job: JobArgs,
}

/// `--backup-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackupTypeOption {
    /// The map lists the whole disk
    Full,
    /// The map lists the ranges that have changed
    Incremental,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backups, oldest first: a full one (qcow2 without a backing file, or raw), then each
    /// incremental one (qcow2)
    #[arg(required = true, num_args = 2.., value_name = "BACKUP", value_hint = ValueHint::FilePath)]
    pub backups: Vec<PathBuf>,

    /// Target of the disk: a file that does not exist yet, or a block device (its content is lost)
    #[arg(value_hint = ValueHint::FilePath)]
    pub target: PathBuf,

    /// Verify names, order and content of the backups against this output of `sha256sum`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Source")]
    pub manifest: Option<PathBuf>,

    /// Limits of the transfer.
    #[command(flatten, next_help_heading = "Source")]
    pub limits: TransferLimits,

    /// Options for writing.
    #[command(flatten)]
    pub write: WriteArgs,
}

/// Arguments of `run-with-parent`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The program
    pub program: PathBuf,

    /// Arguments of the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Arguments of `info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// The source.
    #[command(flatten)]
    pub source: SourceArgs,

    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// Overhead of the volume's filesystem, as a fraction of the disk
    #[arg(long, value_name = "FRACTION", default_value_t = DEFAULT_OVERHEAD, value_parser = fraction,
          help_heading = "Output")]
    pub overhead: f64,

    /// Verbosity.
    #[command(flatten)]
    pub log: LogArgs,
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..1.0).contains(&value) => Ok(value),
        _ => Err("use a number from 0 to below 1, such as 0.055".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_definition_is_consistent() {
        ImporterCli::command().debug_assert();
    }

    #[test]
    fn overheads_are_fractions() {
        assert_eq!(fraction("0"), Ok(0.0));
        assert_eq!(fraction("0.055"), Ok(0.055));
        for text in ["1", "-0.1", "NaN", "inf", "5%"] {
            assert!(fraction(text).is_err(), "{text}");
        }
    }
}
