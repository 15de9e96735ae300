//! The command line: subcommands, flags, their help and how their values are parsed.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use datapath::digest::Checksum;
use datapath::transfer::Envelope;
use diskimage::Format;
use program::command_line::{self, byte_rate};

/// `FILESYSTEM_OVERHEAD` of a CDI that nobody configured (`spec.config.filesystemOverhead.global`).
pub const DEFAULT_OVERHEAD: f64 = 0.06;

const EXIT_CODES: &str = "\
Exit codes:
  0  success                              5  no space, or the target is too small
  1  internal error                       6  the checksum does not match
  2  wrong usage                          7  the target cannot be written
  3  the source cannot be read      128 + n  ended by signal n
  4  the image is corrupt or refused";

const IMPORT_EXAMPLES: &str = "\
Examples:
  cdi-importer import https://example.org/debian.qcow2 disk.img
  cdi-importer import --checksum sha256:9f86d0…0a08 https://example.org/disk.raw.xz /dev/vg0/vm1
  cdi-importer import --size 20Gi --preallocate ./fedora.qcow2 disk.img
  cdi-importer import docker://quay.io/containerdisks/fedora:40 disk.img
  AWS_ENDPOINT_URL=https://minio.example cdi-importer import s3://images/vm.qcow2 disk.img
  curl -s https://example.org/disk.img.gz | cdi-importer import - disk.img";

const UNPACK_EXAMPLES: &str = "\
Examples:
  cdi-importer unpack https://example.org/rootfs.tar.xz /mnt/volume
  cdi-importer unpack --checksum sha256:9f86d0…0a08 ./files.tar.zst .";

const APPLY_EXAMPLES: &str = "\
Examples:
  cdi-importer apply --base monday.qcow2 ./tuesday.qcow2 disk.img
  cdi-importer apply --base 51d2… --checkpoint 9f0c… --previous-checkpoint 51d2… \\
      --user admin@internal --password-file pw \\
      ovirt+https://engine/ovirt-engine/api/disks/4b1e… /dev/vg0/vm1";

const CONVERT_EXAMPLES: &str = "\
Examples:
  cdi-importer convert vm.vmdk vm.img
  cdi-importer convert --preallocate vm.vhdx /dev/vg0/vm1
  xz -dc disk.vdi.xz | cdi-importer convert - disk.img";

const CHECK_EXAMPLES: &str = "\
Examples:
  cdi-importer check disk.qcow2
  cdi-importer check --data --json https://example.org/disk.vmdk | jq .errors";

const INFO_EXAMPLES: &str = "\
Examples:
  cdi-importer info https://example.org/debian.qcow2
  cdi-importer info --json ./disk.qcow2 | jq .virtual_size";

/// Brings a disk image onto a disk, in one pass.
///
/// Reads an image from a web server, an object store, a container registry, oVirt, an NBD server or a file, undoes
/// its compression, converts it to a raw disk and writes only the bytes that hold data. Nothing is stored on the way,
/// and nothing that looks complete is left behind by a failure.
///
/// Started with klog flags or with IMPORTER_SOURCE set, the program behaves as the importer pod of KubeVirt CDI.
#[derive(Debug, Parser)]
#[command(
    name = "cdi-importer",
    version,
    max_term_width = 100,
    styles = command_line::STYLES,
    arg_required_else_help = true,
    after_help = EXIT_CODES
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write an image to a file or block device as a raw disk
    #[command(after_help = [IMPORT_EXAMPLES, "\n\n", EXIT_CODES].concat())]
    Import(Box<ImportArgs>),
    /// Convert an image of this machine to a raw disk; `import` for files, without the options of networks
    #[command(after_help = [CONVERT_EXAMPLES, "\n\n", EXIT_CODES].concat())]
    Convert(Box<ConvertArgs>),
    /// Unpack a tar archive, in any compression, into a directory
    #[command(after_help = [UNPACK_EXAMPLES, "\n\n", EXIT_CODES].concat())]
    Unpack(Box<UnpackArgs>),
    /// Apply a qcow2 delta to the disk that it is the difference to
    #[command(after_help = [APPLY_EXAMPLES, "\n\n", EXIT_CODES].concat())]
    Apply(Box<ApplyArgs>),
    /// Show what an image is and how large a volume it needs, reading only metadata where possible
    #[command(after_help = [INFO_EXAMPLES, "\n\n", EXIT_CODES].concat())]
    Info(Box<InfoArgs>),
    /// Look for damage in the tables of an image: structure, references, overlaps, refcounts
    #[command(after_help = [CHECK_EXAMPLES, "\n\n", EXIT_CODES].concat())]
    Check(Box<CheckArgs>),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page (roff)
    Man,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// What to read and how.
    #[command(flatten)]
    pub source: SourceArgs,

    /// Where the disk goes: a file that does not exist yet, or a block device (its content is lost)
    #[arg(value_hint = ValueHint::FilePath)]
    pub target: PathBuf,

    /// How it is written.
    #[command(flatten)]
    pub write: WriteArgs,
}

/// Arguments of `convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The image: a file, a block device, or `-` for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub image: PathBuf,

    /// Where the disk goes: a file that does not exist yet, or a block device (its content is lost)
    #[arg(value_hint = ValueHint::FilePath)]
    pub target: PathBuf,

    /// How its content is taken.
    #[command(flatten)]
    pub content: ContentArgs,

    /// How the disk is written.
    #[command(flatten)]
    pub write: WriteArgs,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// What to read and how.
    #[command(flatten)]
    pub source: SourceArgs,

    /// Inflate every compressed cluster as well, which reads the whole image
    #[arg(long, help_heading = "Check")]
    pub data: bool,

    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// How much to log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// How a disk is written: shared by `import` and `convert`.
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// Fail unless the source's bytes, as transferred, have this hash: md5, sha1, sha256 or sha512
    #[arg(long, value_name = "ALG:HEX", help_heading = "Source")]
    pub checksum: Option<Checksum>,

    /// Read at most this many bytes a second; the suffixes K, M and G are powers of 1024
    #[arg(long, value_name = "BYTES", value_parser = byte_rate, help_heading = "Source")]
    pub limit_rate: Option<NonZeroU64>,

    /// Leave unwritten what is zero (default)
    #[arg(long, conflicts_with = "preallocate", help_heading = "Target")]
    pub sparse: bool,

    /// Allocate the whole disk, zeros included
    #[arg(long, help_heading = "Target")]
    pub preallocate: bool,

    /// Write whole pages past the page cache (O_DIRECT) where the target can [default: large pieces only]
    #[arg(long, help_heading = "Target")]
    pub direct: bool,

    /// Write everything through the page cache, flushed as it fills
    #[arg(long, conflicts_with = "direct", help_heading = "Target")]
    pub cached: bool,

    /// Replace a file that exists
    #[arg(long, help_heading = "Target")]
    pub force: bool,

    /// Make the disk this large (500Mi, 20Gi, 2e9); an image that is larger is refused. Files only
    #[arg(long, value_name = "QUANTITY", value_parser = daemon::quantity::parse_bytes, help_heading = "Target")]
    pub size: Option<u64>,

    /// How to read an image
    #[arg(long, value_enum, default_value_t = Route::Auto, help_heading = "Transfer")]
    pub route: Route,

    /// Folder for images whose order needs more memory than is allowed; most never do [default: none]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Transfer")]
    pub scratch: Option<PathBuf>,

    /// Threads that decompress and write [default: the CPUs that this process may use]
    #[arg(long, value_name = "N", help_heading = "Transfer")]
    pub threads: Option<NonZeroUsize>,

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Progress::Auto, help_heading = "Output")]
    pub progress: Progress,

    /// Print nothing but errors
    #[arg(short, long, conflicts_with = "progress", help_heading = "Output")]
    pub quiet: bool,

    /// How much to log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Arguments of `unpack`.
#[derive(Debug, Args)]
pub struct UnpackArgs {
    /// What to read and how.
    #[command(flatten)]
    pub source: SourceArgs,

    /// The directory, which exists; what is in it stays, except for files that the archive has as well
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,

    /// How the job is done.
    #[command(flatten)]
    pub job: JobArgs,
}

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// What to read and how.
    #[command(flatten)]
    pub source: SourceArgs,

    /// The raw disk, a file or a block device; interrupted, it is neither old nor new until the delta is applied again
    #[arg(value_hint = ValueHint::FilePath)]
    pub target: PathBuf,

    /// What the delta must call its backing file (folders aside), so that no disk gets the delta of another
    #[arg(long, value_name = "NAME", help_heading = "Target")]
    pub base: String,

    /// How the job is done.
    #[command(flatten)]
    pub job: JobArgs,
}

/// How a job is done that has no target of its own making: shared by `unpack` and `apply`.
#[derive(Debug, Clone, Args)]
pub struct JobArgs {
    /// Fail unless the source's bytes, as transferred, have this hash: md5, sha1, sha256 or sha512
    #[arg(long, value_name = "ALG:HEX", help_heading = "Source")]
    pub checksum: Option<Checksum>,

    /// Read at most this many bytes a second; the suffixes K, M and G are powers of 1024
    #[arg(long, value_name = "BYTES", value_parser = byte_rate, help_heading = "Source")]
    pub limit_rate: Option<NonZeroU64>,

    /// Threads that decompress [default: the CPUs that this process may use]
    #[arg(long, value_name = "N", help_heading = "Transfer")]
    pub threads: Option<NonZeroUsize>,

    /// Print nothing but errors
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,

    /// How much to log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Arguments of `info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// What to read and how.
    #[command(flatten)]
    pub source: SourceArgs,

    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// Part of a volume that its filesystem keeps for itself, as a fraction of the disk
    #[arg(long, value_name = "FRACTION", default_value_t = DEFAULT_OVERHEAD, value_parser = fraction,
          help_heading = "Output")]
    pub overhead: f64,

    /// How much to log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// What to read and how: shared by the subcommands.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// URL (http, https, s3, gs, docker, oci, oci-archive, nbd, ovirt+https, file), path, or `-` for standard input
    #[arg(value_hint = ValueHint::AnyPath)]
    pub source: String,

    /// How its content is taken.
    #[command(flatten)]
    pub content: ContentArgs,

    /// User name, or access key, for the server
    #[arg(
        long,
        value_name = "NAME",
        requires = "password_file",
        help_heading = "Source"
    )]
    pub user: Option<String>,

    /// File with the password of --user; a line break at its end does not count
    #[arg(long, value_name = "FILE", requires = "user", value_hint = ValueHint::FilePath, help_heading = "Source")]
    pub password_file: Option<PathBuf>,

    /// Region of an S3 bucket [default: AWS_REGION, the endpoint's, else what the server says]
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    pub region: Option<String>,

    /// Ask S3 and GCS without credentials, whatever the environment has
    #[arg(long, conflicts_with = "user", help_heading = "Source")]
    pub anonymous: bool,

    /// Key file of a Google service account [default: GOOGLE_APPLICATION_CREDENTIALS]
    #[arg(long, value_name = "FILE", conflicts_with = "anonymous", value_hint = ValueHint::FilePath, help_heading = "Source")]
    pub key_file: Option<PathBuf>,

    /// Platform of a multi-arch container image, as Go spells it: amd64, arm64, s390x, … [default: this machine's]
    #[arg(long, value_name = "ARCH", help_heading = "Source")]
    pub architecture: Option<String>,

    /// Snapshot of an oVirt disk to read, instead of the disk as it is now
    #[arg(long, value_name = "ID", help_heading = "Source")]
    pub checkpoint: Option<String>,

    /// Read only what changed since this snapshot of an oVirt disk (for `apply`)
    #[arg(long, value_name = "ID", requires = "checkpoint", help_heading = "Source")]
    pub previous_checkpoint: Option<String>,

    /// Extra HTTP header, such as 'Accept: text/plain'; may be repeated
    #[arg(long = "header", value_name = "N: V", help_heading = "Source")]
    pub headers: Vec<String>,

    /// File with one extra HTTP header whose value is secret; may be repeated
    #[arg(long = "secret-header-file", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Source")]
    pub secret_header_files: Vec<PathBuf>,

    /// Folder with PEM certificates of further authorities to trust
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Source")]
    pub ca_dir: Option<PathBuf>,

    /// Do not verify the server's certificate
    #[arg(long, conflicts_with = "ca_dir", help_heading = "Source")]
    pub insecure: bool,

    /// Attempts in a row without a new byte before giving up [default: only the time limit counts]
    #[arg(long, value_name = "N", help_heading = "Source")]
    pub retries: Option<u32>,

    /// Read over this many connections at once, where the server has ranges [default: 4 for S3 and GCS, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8), help_heading = "Source")]
    pub connections: Option<u8>,

    /// Give up after this many seconds without a new byte
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds, help_heading = "Source")]
    pub no_progress_timeout: Duration,
}

/// How the content of a source is taken.
#[derive(Debug, Clone, Args)]
pub struct ContentArgs {
    /// Take the image for this format (raw, qcow2, vmdk, vdi, vhd, vhdx) instead of recognizing it by content
    #[arg(long, value_name = "FORMAT", help_heading = "Source")]
    pub format: Option<Format>,

    /// The source is an OVA, a tar with one disk image in it: take that one, and verify what the manifest says of it
    #[arg(long, help_heading = "Source")]
    pub ova: bool,
}

/// How much to log: shared by the subcommands.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// Say more: -v what happens, -vv details, -vvv everything
    #[arg(short, long = "verbose", action = clap::ArgAction::Count, help_heading = "Output")]
    pub verbose: u8,
}

impl ContentArgs {
    /// What lies around the image.
    pub fn envelope(&self) -> Envelope {
        if self.ova {
            Envelope::Ova
        } else {
            Envelope::Sniffed
        }
    }
}

impl LogArgs {
    /// The number for klog's `-v` that shows what this many `-v` ask for.
    pub fn verbosity(&self) -> u8 {
        match self.verbose {
            0 => 0,
            1 => 1,
            2 => 3,
            _ => 5,
        }
    }
}

/// `--route`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Route {
    /// Its map first, where the source has ranges
    Auto,
    /// From the first byte to the last, with one request
    OnePass,
}

/// `--progress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// A bar on a terminal, else plain
    Auto,
    /// A bar on stderr
    Bar,
    /// One line a second on stderr
    Plain,
    /// One JSON object a second on stdout
    Json,
    /// Nothing
    None,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(0) => Err("at least one second is needed".to_owned()),
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => Err("use a whole number of seconds".to_owned()),
    }
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
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
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
