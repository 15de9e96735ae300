//! The options for the source, which several subcommands share.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use diskimage::Format;
use fetch::RetryPolicy;
use fetch::scheme::listed_schemes;
use hypervisors::vddk::VmwareTransport;
use oci::LayerSelector;
use program::command_line::values::{DurationValue, whole_number};
use stream::options::{ChosenFormat, PayloadKind};
use volume::limits::TransferLimits;

/// Options of the source, which several subcommands share.
#[derive(Debug, Clone, Args)]
pub struct SourceArgs {
    /// URL, path, or `-`.
    #[arg(value_hint = ValueHint::AnyPath, help = source_help())]
    pub source: String,

    /// How its content is taken.
    #[command(flatten)]
    pub content: ContentArgs,

    /// User name, or access key, for the server
    #[arg(long, value_name = "NAME", requires = "password_file", help_heading = "Source")]
    pub user: Option<String>,

    /// File with the password of --user; a line break at its end is ignored
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Source")]
    pub password_file: Option<PathBuf>,

    /// Access S3 and GCS without credentials, even if the environment has some
    #[arg(long, conflicts_with = "user", help_heading = "Object stores and clouds")]
    pub anonymous: bool,

    /// Use this machine's identity (keys in variables, mounted files, metadata service) for any
    /// S3 or GCS server, not only Amazon's and Google's, and the variables OS_… for any OpenStack
    /// cloud, not only the one of OS_AUTH_URL
    #[arg(long, conflicts_with_all = ["anonymous", "user"], help_heading = "Object stores and clouds")]
    pub ambient_identity: bool,

    /// Architecture of a multi-arch container image, as Go spells it: amd64, arm64, s390x, …
    /// [default: this machine's]
    #[arg(long, value_name = "ARCH", help_heading = "Container images")]
    pub architecture: Option<String>,

    /// Layer of a container image or artifact that holds the disk: its digest, an annotation
    /// KEY=VALUE, its title, or its disk name, as listed by `info`; a digest or an annotation can
    /// also select an image of an index
    #[arg(long, value_name = "LAYER", help_heading = "Container images")]
    pub layer: Option<LayerSelector>,

    /// Refuse a container image unless this public key (PEM; ECDSA P-256, Ed25519 or RSA) has
    /// signed it with cosign
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Container images")]
    pub verify_key: Option<PathBuf>,

    /// Allow sending a registry's password to the token service on this host, besides hosts in the
    /// registry's own domain; may be repeated
    #[arg(long = "token-service", value_name = "HOST", help_heading = "Container images")]
    pub token_services: Vec<String>,

    /// Read this snapshot of an oVirt or VMware disk instead of its current state
    #[arg(long, value_name = "ID", help_heading = "oVirt and VMware")]
    pub checkpoint: Option<String>,

    /// Read only the changes since this snapshot of an oVirt or VMware disk, or since this
    /// vSphere change id (for `apply`)
    #[arg(long, value_name = "ID", requires = "checkpoint", help_heading = "oVirt and VMware")]
    pub previous_checkpoint: Option<String>,

    /// Verify vSphere by this SHA-1 or SHA-256 thumbprint instead of a certificate authority
    #[arg(long, value_name = "HEX", conflicts_with_all = ["cacert", "insecure"], help_heading = "oVirt and VMware")]
    pub thumbprint: Option<String>,

    /// Directory of VMware's library, which nbdkit loads [default:
    /// /opt/vmware-vix-disklib-distrib]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "oVirt and VMware")]
    pub vddk_library: Option<PathBuf>,

    /// Read a VMware disk with VMware's library (`vddk`), from port 902 of its ESXi host (`nfc`),
    /// or once over HTTPS (`lease`); `auto` takes the library if it is installed, otherwise `nfc`,
    /// and `lease` if that port is closed. With `nfc-zlib`, the host compresses; with `nfc-clear`,
    /// the disk's bytes travel unencrypted
    #[arg(long, value_name = "HOW", value_parser = transport_parser(), help_heading = "oVirt and VMware")]
    pub transport: Option<VmwareTransport>,

    /// Send an extra HTTP header, such as 'Accept: text/plain'; may be repeated
    #[arg(long = "header", value_name = "N: V", help_heading = "HTTP")]
    pub headers: Vec<String>,

    /// Send the extra HTTP header in this file, whose value is secret; may be repeated
    #[arg(long = "secret-header-file", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "HTTP")]
    pub secret_header_files: Vec<PathBuf>,

    /// Trust the certificate authorities in this file or directory (PEM) as well
    #[arg(long, alias = "ca-dir", value_name = "PATH", value_hint = ValueHint::AnyPath, help_heading = "Source")]
    pub cacert: Option<PathBuf>,

    /// Do not verify the server's certificate
    #[arg(long, conflicts_with = "cacert", help_heading = "Source")]
    pub insecure: bool,

    /// Allow passwords, tokens and secret headers over plain HTTP, where anybody on the path can
    /// read them
    #[arg(long, help_heading = "Source")]
    pub cleartext_secrets: bool,

    /// Give up after this many retries in a row without a new byte [default: 2 for `info` and
    /// `check`, otherwise limited only by time]
    #[arg(long, value_name = "N", value_parser = whole_number, help_heading = "Source")]
    pub retries: Option<u32>,

    /// The default of `--retries`.
    #[arg(skip)]
    pub default_retries: Option<u32>,

    /// Read over this many connections at once (1 to 16), if the server supports ranges. `auto`
    /// begins with one and, over HTTP, adds others while they make it faster; with an ESXi host, it
    /// is 4
    #[arg(long, value_name = "N", default_value = "auto", help_heading = "Source")]
    pub connections: ConnectionCount,

    /// Give up after this time without a new byte.
    #[arg(long, value_name = "TIME", help = no_progress_help(), help_heading = "Source")]
    pub no_progress_timeout: Option<DurationValue>,

    /// Limits of the transfer.
    #[command(flatten, next_help_heading = "Source")]
    pub limits: TransferLimits,
}

impl SourceArgs {
    /// Gives up after three attempts unless an option says otherwise: nobody waits long to learn
    /// what an image is.
    pub fn limit_retries(&mut self) {
        self.default_retries = Some(2).filter(|_| self.no_progress_timeout.is_none());
    }
}

/// The value of `--connections`; `None` for `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCount(pub Option<NonZeroUsize>);

/// Most connections that may be asked for. With 16, each may read 1 MiB ahead.
const MAX_CONNECTIONS: usize = 16;

impl FromStr for ConnectionCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self(None));
        }
        let number =
            text.parse().ok().filter(|number: &NonZeroUsize| number.get() <= MAX_CONNECTIONS);
        number
            .map(|number| Self(Some(number)))
            .ok_or_else(|| format!("use auto, or 1 to {MAX_CONNECTIONS}"))
    }
}

/// How the content of a source is taken.
#[derive(Debug, Clone, Args)]
pub struct ContentArgs {
    /// Read the image as this format instead of detecting it. `verbatim` takes all bytes as they
    /// are, while `raw` still removes compression
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(), help_heading = "Source")]
    pub format: Option<ChosenFormat>,

    /// Read the one disk image in an OVA (a tar), and verify its checksum in the manifest
    #[arg(long, help_heading = "Source")]
    pub ova: bool,
}

impl ContentArgs {
    /// Returns the kind of content to expect: either an image, or an OVA that contains one.
    pub fn payload_kind(&self) -> PayloadKind {
        match (self.ova, self.format) {
            (true, None) => PayloadKind::Appliance(None),
            (true, Some(ChosenFormat::Image(format))) => PayloadKind::Appliance(Some(format)),
            (_, chosen) => chosen.into(),
        }
    }

    /// True if the options contradict each other.
    pub fn is_contradictory(&self) -> bool {
        self.ova && !matches!(self.format, None | Some(ChosenFormat::Image(_)))
    }
}

/// Returns a parser for the names of supported formats. QEMU's names for them are accepted too.
fn format_parser() -> impl TypedValueParser<Value = ChosenFormat> {
    let names = Format::readable_formats()
        .map(|format| PossibleValue::new(format.flag_name()).alias(format.qemu_name()))
        .chain([PossibleValue::new(ChosenFormat::VERBATIM)]);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<ChosenFormat>())
}

/// Returns a parser for the ways to read VMware disks.
fn transport_parser() -> impl TypedValueParser<Value = VmwareTransport> {
    PossibleValuesParser::new(VmwareTransport::ALL.map(|(name, _)| name))
        .try_map(|name| name.parse::<VmwareTransport>())
}

/// Returns the help text of `--no-progress-timeout`.
fn no_progress_help() -> String {
    let default = DurationValue(RetryPolicy::default().no_progress_limit);
    let first = DurationValue(RetryPolicy::UNKNOWN_HOST_LIMIT);
    format!(
        "Give up after this time without a new byte (90s, 10m, 2h); if a host name is unknown, after {first} at most [default: {default}; \
         {first} before the first contact if --retries is not given either]"
    )
}

/// Returns the help text of the source, which lists all schemes.
fn source_help() -> String {
    format!("URL ({}), path, or `-` for standard input", listed_schemes().join(", "))
}
