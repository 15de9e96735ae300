//! The command line: subcommands, flags, their help and how their values are parsed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use program::cdi::CLIENT_NAME;
use program::command_line::values::{DurationValue, LISTEN, listen, writable_folder};
use program::command_line::{ServerOutputArgs, TlsArgs};
use sandbox::SandboxArgs;
use volume::limits::TransferLimits;

use crate::config::{RESUME, STALL};

const EXAMPLES: &str = "\
Examples:
  cdi-uploadserver serve --dir . --insecure --self-signed certs
  curl --fail-with-body --cacert certs/ca.crt -T disk.qcow2 \\
      https://localhost:8443/v1beta1/upload

  cdi-uploadserver serve --device /dev/vg0/vm1 --self-signed certs --once
  curl --fail-with-body --cacert certs/ca.crt \\
      --cert certs/client.crt --key certs/client.key \\
      -T disk.raw.xz https://localhost:8443/v1beta1/upload

Paths:
  /v1beta1/upload              a disk image in any format and compression
  /v1beta1/upload-form         the same, as the field `file` of a form
  /v1beta1/upload-async, /v1beta1/upload-form-async
                               the same, answered as soon as all is verified
  /v1beta1/upload-archive      a tar for the directory
  /v1beta1/upload-resumable    a disk image by tus 1.0
  /v1beta1/status, /metrics, /healthz, /readyz";

/// Receives a disk image over HTTPS and writes it to a disk, in one pass.
///
/// Decompresses the image, converts it to a raw disk and writes only the bytes that hold data.
/// Nothing is stored on the way, and a failed upload leaves nothing that looks complete.
///
/// Started with klog flags or with TLS_KEY_FILE set, the program behaves as the upload pod of
/// KubeVirt CDI.
#[derive(Debug, Parser)]
#[command(name = "cdi-uploadserver")]
pub(super) struct ServerCli {
    /// The sandbox.
    #[command(flatten)]
    pub(super) sandbox: SandboxArgs,

    /// The command.
    #[command(subcommand)]
    pub(super) command: ServerCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum ServerCommand {
    /// Run the server and wait for uploads
    #[command(after_help = EXAMPLES)]
    Serve(Box<ServeArgs>),
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Write disks to the file disk.img in this directory, and archives into the directory itself
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        required_unless_present = "device",
        help_heading = "Target"
    )]
    pub(super) dir: Option<PathBuf>,

    /// Write the disk to this block device; its content is lost
    #[arg(
        long,
        value_name = "PATH",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["dir", "size"],
        help_heading = "Target"
    )]
    pub(super) device: Option<PathBuf>,

    /// Replace a disk.img that exists when the server starts
    #[arg(long, conflicts_with = "device", help_heading = "Target")]
    pub(super) force: bool,

    /// Set the size of the disk (500Mi, 20Gi, 2e9); a larger image is refused
    #[arg(long, value_name = "QUANTITY", value_parser = program::quantity::parse_size, help_heading = "Target")]
    pub(super) size: Option<u64>,

    /// Allocate the whole disk, zeros included
    #[arg(long, help_heading = "Target")]
    pub(super) preallocate: bool,

    /// Directory for temporary data of the few images that need more memory than is allowed
    /// [default: none]
    #[arg(long, value_name = "DIR", value_parser = writable_folder, value_hint = ValueHint::DirPath, help_heading = "Target")]
    pub(super) scratch: Option<PathBuf>,

    /// Listen on this address and port; port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = LISTEN, value_parser = listen, help_heading = "Server")]
    pub(super) listen: (String, u16),

    /// Exit after the first successful upload [default: each upload replaces the previous disk]
    #[arg(long, help_heading = "Server")]
    pub(super) once: bool,

    /// Print only the listening address to standard output, for scripts
    #[arg(long, help_heading = "Server")]
    pub(super) print_address: bool,

    /// Give up on a client that sends nothing for this long (90s, 10m, 2h)
    #[arg(long, value_name = "TIME", default_value_t = DurationValue(STALL), help_heading = "Server")]
    pub(super) stall_timeout: DurationValue,

    /// Keep an interrupted resumable upload for this long, so that it can be resumed
    #[arg(long, value_name = "TIME", default_value_t = DurationValue(RESUME), help_heading = "Server")]
    pub(super) resume_timeout: DurationValue,

    /// Limits of an upload.
    #[command(flatten, next_help_heading = "Server")]
    pub(super) limits: TransferLimits,

    /// The limit of its memory.
    #[arg(long, help = volume::limits::memory_help(), value_name = "QUANTITY", value_parser = volume::limits::memory_limit, help_heading = "Server")]
    pub(super) memory: Option<u64>,

    /// The certificate that clients are shown.
    #[command(flatten)]
    pub(super) tls: TlsArgs,

    /// Accept clients with a certificate from this authority (PEM)
    #[arg(long, alias = "client-ca", value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "self_signed", help_heading = "TLS")]
    pub(super) cacert: Option<PathBuf>,

    /// Require this common name in the client's certificate
    #[arg(long, value_name = "CN", default_value = CLIENT_NAME, help_heading = "TLS")]
    pub(super) client_name: String,

    /// Accept every client, even without a certificate
    #[arg(long, conflicts_with = "cacert", help_heading = "TLS")]
    pub(super) insecure: bool,

    /// The verbosity.
    #[command(flatten)]
    pub(super) output: ServerOutputArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        ServerCli::command().debug_assert();
    }

    #[test]
    fn help_shows_the_defaults_of_pods() {
        let mut command = ServerCli::command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let help = serve.render_long_help().to_string();
        let shown = |option: &str, default: String| {
            let text = help.split(option).nth(1).unwrap_or_default();
            let text = text.split("--").next().unwrap_or_default();
            assert!(text.contains(&format!("[default: {default}]")), "{option}{text}");
        };
        shown("--stall-timeout", DurationValue(STALL).to_string());
        shown("--resume-timeout", DurationValue(RESUME).to_string());
        shown("--client-name", CLIENT_NAME.to_owned());
    }

    #[test]
    fn serve_needs_one_target_and_a_key_for_its_certificate() {
        let parse = |arguments: &[&str]| {
            let arguments = ["cdi-uploadserver", "serve"].iter().chain(arguments);
            ServerCli::try_parse_from(arguments).is_ok()
        };
        assert!(parse(&["--dir", ".", "--self-signed", "c"]));
        assert!(parse(&["--device", "d", "--self-signed", "c", "--insecure", "--once"]));
        assert!(parse(&["--dir", ".", "--cert", "a", "--key", "b", "--insecure"]));
        assert!(parse(&["--dir", ".", "--cert", "a", "--key", "b", "--cacert", "c"]));
        // The names before this version.
        assert!(parse(&["--dir", ".", "--tls-cert", "a", "--tls-key", "b", "--client-ca", "c"]));
        assert!(!parse(&["--self-signed", "c"]));
        assert!(!parse(&["--dir", ".", "--cert", "a"]));
        assert!(!parse(&["--dir", ".", "--device", "d", "--self-signed", "c"]));
        assert!(!parse(&["--device", "d", "--size", "1Gi", "--self-signed", "c"]));
    }
}
