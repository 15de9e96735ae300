//! The command line: subcommands, flags, their help and how their values are parsed.

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};
use program::command_line::values::{DurationValue, LISTEN, at_least_one, byte_rate, listen};
use program::command_line::{ServerOutputArgs, TlsArgs};
use program::names::{is_label, is_subdomain};
use uploadproxy::UploadLimits;

/// The lifetime of a token of CDI's API server.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

const SERVE_EXAMPLE: &str = "\
Routes are written like this, one block for each PVC:
  [[route]]
  namespace = \"default\"
  pvc = \"disk1\"
  url = \"https://127.0.0.1:9443\"
  content = \"kubevirt\"             # or \"archive\"; may be left out

Example:
  uploadproxy-dev serve --static routes.toml \\
      --public-key token.pub --self-signed certs

Paths:
  /                            a page for browsers
  /v1beta1/upload, …-async, …-form, …-form-async
                               an upload in one request, as in CDI
  /v1beta1/upload-resumable    a resumable upload by tus 1.0
  /v1beta1/status              what the upload server is doing
  /healthz, /readyz";

/// The upload proxy without a cluster: upload servers from a file, and tokens made locally.
#[derive(Debug, Parser)]
#[command(name = "uploadproxy-dev")]
pub(super) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(super) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Forward uploads, without a cluster
    #[command(after_help = SERVE_EXAMPLE)]
    Serve(Box<ServeArgs>),
    /// Print a token for an upload
    Token(TokenArgs),
    /// Create keys and certificates, start an upload server, and print the command to try it
    Dev(Box<DevArgs>),
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(mut_arg("self_signed", |folder| folder.required_unless_present("cert")))]
pub(super) struct ServeArgs {
    /// Upload server of each PVC (TOML)
    #[arg(long = "static", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Uploads")]
    pub(super) routes: PathBuf,

    /// Verify tokens with this public key (RSA, PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Uploads")]
    pub(super) public_key: PathBuf,

    /// Certificate authority of the upload servers (PEM) [default: ca.crt of --self-signed]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "self_signed", help_heading = "Uploads")]
    pub(super) upload_ca: Option<PathBuf>,

    /// Client certificate to show to upload servers (PEM) [default: client.crt of --self-signed]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "self_signed", help_heading = "Uploads")]
    pub(super) upload_cert: Option<PathBuf>,

    /// Key of the client certificate (PEM) [default: client.key of --self-signed]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "self_signed", help_heading = "Uploads")]
    pub(super) upload_key: Option<PathBuf>,

    /// The certificate that clients are shown.
    #[command(flatten)]
    pub(super) tls: TlsArgs,

    /// The listener.
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Arguments of every server.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// Listen on this address and port; port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = LISTEN, value_parser = listen, help_heading = "Server")]
    pub(super) listen: (String, u16),

    /// Serve metrics over HTTPS on this address [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Server")]
    pub(super) metrics: Option<SocketAddr>,

    /// Maximum number of uploads at a time [default: as many as the cgroup's memory limit allows,
    /// otherwise unlimited]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Limits")]
    pub(super) max_uploads: Option<NonZeroUsize>,

    /// Maximum number of uploads at a time from one address [default: unlimited]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Limits")]
    pub(super) max_uploads_per_client: Option<NonZeroUsize>,

    /// Limit all uploads together to this many bytes per second; the suffixes K, M and G are
    /// powers of 1024
    #[arg(long, value_name = "BYTES", value_parser = byte_rate, help_heading = "Limits")]
    pub(super) limit_rate: Option<NonZeroU64>,

    /// Limit all uploads from one address together to this many bytes per second
    #[arg(long, value_name = "BYTES", value_parser = byte_rate, help_heading = "Limits")]
    pub(super) limit_rate_per_client: Option<NonZeroU64>,

    /// Verbosity.
    #[command(flatten)]
    pub(super) output: ServerOutputArgs,
}

impl ServerArgs {
    pub(super) fn allowed(&self) -> UploadLimits {
        UploadLimits {
            uploads: self.max_uploads,
            uploads_per_client: self.max_uploads_per_client,
            rate: self.limit_rate,
            rate_per_client: self.limit_rate_per_client,
        }
    }
}

/// Arguments of `token`.
#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    /// The private key (RSA, PEM): id_rsa of CDI's Secret cdi-api-signing-key, or token.key of
    /// `dev`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) key: PathBuf,

    /// The PVC to upload to
    #[arg(long, value_name = "NAME", value_parser = pvc)]
    pub(super) pvc: String,

    /// The namespace of the PVC
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = namespace)]
    pub(super) namespace: String,

    /// Lifetime of the token (90s, 10m, 2h)
    #[arg(long, value_name = "TIME", default_value_t = DurationValue(LIFETIME))]
    pub(super) lifetime: DurationValue,
}

/// Arguments of `dev`.
#[derive(Debug, Args)]
pub(super) struct DevArgs {
    /// Directory for keys, certificates and the uploaded disk, created if missing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "cdi-dev")]
    pub(super) dir: PathBuf,

    /// The listener.
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

fn pvc(text: &str) -> Result<String, &'static str> {
    let valid = is_subdomain(text).then(|| text.to_owned());
    valid.ok_or("a PVC's name has lower-case letters, digits, '-' and '.'")
}

fn namespace(text: &str) -> Result<String, &'static str> {
    let valid = is_label(text).then(|| text.to_owned());
    valid.ok_or("a namespace's name has lower-case letters, digits and '-'")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_server_needs_certificates_for_both_sides() {
        let parse = |line: &str| {
            let arguments = ["uploadproxy-dev", "serve", "--static", "r", "--public-key", "k"];
            let arguments = arguments.into_iter().chain(line.split_whitespace());
            Cli::try_parse_from(arguments).is_ok()
        };
        let upload = "--upload-ca c --upload-cert c --upload-key k";
        assert!(parse("--self-signed d"));
        assert!(parse(&format!("--self-signed d {upload}")));
        assert!(parse(&format!("--cert c --key k {upload}")));
        assert!(!parse("--cert c --key k"));
        assert!(!parse(&format!("--cert c {upload}")));
        assert!(!parse(upload));
    }
}
