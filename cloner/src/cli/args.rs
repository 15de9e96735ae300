//! The command line: subcommands, flags and their help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use codec::encode::{CompressionRule, Encoding};
use program::cdi::READER_PORT;
use program::command_line::LogArgs;
use program::command_line::values::DurationValue;
use program::progress::ProgressArgs;
use sandbox::SandboxArgs;

use crate::clone::zstd_for_network;

const CLONE_EXAMPLES: &str = "\
Examples:
  # Clone a logical volume to the upload server of the target volume
  cdi-cloner clone /dev/vg0/vm1 https://localhost:8443/v1beta1/upload \\
      --cacert certs/ca.crt --cert certs/client.crt --key certs/client.key

  # Clone the files in a directory
  cdi-cloner clone /var/lib/vm1 https://host:8443/v1beta1/upload \\
      --cacert ca.crt --cert c.crt --key c.key";

const STREAM_EXAMPLES: &str = "\
Examples:
  # Write the archive that CDI's cloner would send for a directory
  cdi-cloner pack /var/lib/vm1 > vm1.tar.sz

  # Write the plain tar archive
  cdi-cloner pack /var/lib/vm1 --encoding plain | tar -tv";

const SERVE_EXAMPLES: &str = "\
Examples:
  # Serve a volume to a client on the same machine
  cdi-cloner serve /dev/vg0/vm1 --port 8100
  curl http://127.0.0.1:8100/disk/0 | zstd -d > vm1.raw";

/// Sends a volume to the upload server that fills its copy.
///
/// A volume is a block device, a file with a disk, or a directory. It is read once, holes are
/// skipped, and nothing is stored on the way.
///
/// Started with klog flags, as cloner_startup.sh, or with VOLUME_MODE set, the program behaves as
/// the source pod of a host-assisted clone of KubeVirt CDI.
#[derive(Debug, Parser)]
#[command(name = "cdi-cloner")]
pub(super) struct ClonerCli {
    /// The sandbox.
    #[command(flatten)]
    pub(super) sandbox: SandboxArgs,

    /// The command.
    #[command(subcommand)]
    pub(super) command: ClonerCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum ClonerCommand {
    /// Send a volume to an upload server
    #[command(after_help = CLONE_EXAMPLES)]
    Clone(Box<CloneArgs>),
    /// Write the stream that `clone` would send to standard output
    #[command(name = "pack", after_help = STREAM_EXAMPLES)]
    Stream(StreamArgs),
    /// Serve a disk on the loopback address: the pod of `kubectl cdi download`
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeVolumeArgs),
}

#[derive(Debug, Args)]
pub(super) struct CloneArgs {
    /// The volume to read.
    #[command(flatten)]
    pub(super) source: VolumeSourceArgs,

    /// The upload server's path for clones: `https://HOST:PORT/v1beta1/upload`
    #[arg(value_hint = ValueHint::Url)]
    pub(super) url: String,

    /// Trust only servers whose certificate is signed by an authority in this file (PEM)
    #[arg(long, alias = "ca", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "TLS")]
    pub(super) cacert: PathBuf,

    /// Client certificate to show to the server (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "TLS")]
    pub(super) cert: PathBuf,

    /// Key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "TLS")]
    pub(super) key: PathBuf,

    /// Encode the stream in this way
    #[arg(long, value_enum, default_value = "auto", help_heading = "Stream")]
    pub(super) encoding: WireEncoding,

    /// The verbosity.
    #[command(flatten)]
    pub(super) shown: ProgressArgs,
}

#[derive(Debug, Args)]
pub(super) struct StreamArgs {
    /// The volume to read.
    #[command(flatten)]
    pub(super) source: VolumeSourceArgs,

    /// Encode the output in this way
    #[arg(long, value_enum, default_value = "snappy", help_heading = "Stream")]
    pub(super) encoding: FileEncoding,

    /// The verbosity.
    #[command(flatten)]
    pub(super) log: LogArgs,
}

#[derive(Debug, Args)]
pub(super) struct ServeVolumeArgs {
    /// The disk: a block device, or a file with a raw disk
    #[arg(value_name = "DISK", value_hint = ValueHint::FilePath)]
    pub(super) disk: PathBuf,

    /// Port on 127.0.0.1; 0 chooses a free one
    #[arg(long, default_value_t = READER_PORT)]
    pub(super) port: u16,

    /// End if no client is active for this long, or 10 s after one has received the whole disk
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub(super) idle: DurationValue,

    /// The verbosity.
    #[command(flatten)]
    pub(super) log: LogArgs,
}

#[derive(Debug, Clone, Args)]
pub(super) struct VolumeSourceArgs {
    /// The volume: a block device, a file with a disk, or a directory
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(super) source: PathBuf,

    /// Write holes of files as zeros, for a target that is fully allocated
    #[arg(long, help_heading = "Stream")]
    pub(super) no_holes: bool,
}

/// Values of `--encoding` for `clone`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum WireEncoding {
    /// zstd if the server accepts it, otherwise snappy
    Auto,
    /// The snappy framing format: what CDI's cloner sends
    Snappy,
    /// zstd: zeros take next to nothing, data is compressed only while the network is slow
    Zstd,
}

impl WireEncoding {
    /// Returns the encoding, unless the server decides.
    pub(super) fn fixed_encoding(self) -> Option<Encoding> {
        match self {
            Self::Auto => None,
            Self::Snappy => Some(Encoding::Snappy),
            Self::Zstd => Some(zstd_for_network()),
        }
    }
}

/// Values of `--encoding` for `pack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FileEncoding {
    /// The snappy framing format: what CDI's cloner sends
    Snappy,
    /// zstd: zeros take next to nothing, data is not compressed
    Zstd,
    /// No framing: the plain disk or tar
    Plain,
}

impl From<FileEncoding> for Encoding {
    fn from(encoding: FileEncoding) -> Self {
        match encoding {
            FileEncoding::Snappy => Self::Snappy,
            FileEncoding::Zstd => Self::Zstd(CompressionRule::IfSlow),
            FileEncoding::Plain => Self::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_definition_is_consistent() {
        ClonerCli::command().debug_assert();
        // --ca is the name of --cacert before this version.
        let clone = "cdi-cloner clone disk https://h/ --ca a --cert c --key k";
        assert!(ClonerCli::try_parse_from(clone.split_whitespace()).is_ok());
    }
}
