//! The command line: subcommands, flags and their help.

mod volume;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use program::command_line::values::DurationValue;
use program::progress::ProgressArgs;
use publisher::{ListDemand, is_url, read_key_file, read_keyring_file};
use stream::digest::Checksum;
use stream::options::ChosenFormat;
use url::Url;

pub(super) use self::volume::{DryRun, ManifestFormat, VolumeArgs};
use super::download::{DOWNLOAD_EXAMPLES, DownloadArgs};
use super::images::{IMAGES_EXAMPLES, ImagesArgs};
use crate::cluster::{ClusterOptions, VolumeTarget, parse_endpoint};
use crate::error::PluginError;
use crate::evidence::PublisherDemand;
use crate::keyless::{ExpectedIdentity, KeylessSigner};
use crate::remote::REGISTRY;

const UPLOAD_EXAMPLES: &str = "\
Examples:
  # Upload into a new DataVolume, as large as the disk in the image
  kubectl cdi upload fedora.qcow2 dv/fedora

  # Upload into an existing claim, through a port-forward
  kubectl cdi upload disk.raw pvc/disk1 --no-create \\
      --uploadproxy-url https://localhost:8443 --insecure

  # Verify the image's checksum before the disk is complete
  kubectl cdi upload fedora.qcow2 dv/fedora --checksum sha256:9f86d0…0a08

  # Show what would be created
  kubectl cdi upload disk.raw dv/disk1 --storage-class fast --dry-run client";

const IMPORT_EXAMPLES: &str = "\
Examples:
  # Import an image into a volume as large as its disk
  kubectl cdi import https://example.org/fedora.qcow2 dv/fedora

  # Verify a checksum, and trust a certificate authority in a ConfigMap
  kubectl cdi import https://images.local/a.img dv/a --size 5Gi \\
      --checksum sha256:… --cert-configmap ca

  # Import only what a publisher has signed
  kubectl cdi import https://example.org/fedora.qcow2 dv/fedora \\
      --verify-sums https://example.org/CHECKSUM --keyring fedora.gpg

  # Import from an S3-compatible server
  kubectl cdi import s3://images/a.img dv/a --size 5Gi \\
      --secret keys --endpoint http://minio.storage:9000";

const STATUS_EXAMPLES: &str = "\
Examples:
  # Watch all DataVolumes of the namespace until Ctrl-C
  kubectl cdi status --watch

  # Print JSON for a script
  kubectl cdi status dv/fedora -o json";

const TOKEN_EXAMPLES: &str = "\
Examples:
  # Print only the token
  TOKEN=$(kubectl cdi token dv/fedora -o name)

  # Print the command that uploads
  kubectl cdi token dv/fedora -o curl";

/// Copies disk images into volumes of a Kubernetes cluster with KubeVirt CDI, and back.
///
/// Found in PATH, it is a plugin of kubectl: `kubectl cdi`. It needs no kubectl, only a kubeconfig.
#[derive(Debug, Parser)]
#[command(name = "kubectl-cdi", bin_name = "kubectl cdi")]
pub(super) struct PluginCli {
    /// The command.
    #[command(subcommand)]
    pub(super) command: PluginCommand,

    /// Users of kubectl write these options before the command.
    #[command(flatten)]
    pub(super) cluster: ClusterOptions,
}

#[derive(Debug, Subcommand)]
pub(super) enum PluginCommand {
    /// Upload an image from this machine
    #[command(after_help = UPLOAD_EXAMPLES)]
    Upload(Box<UploadArgs>),
    /// Download the disk of a volume to this machine
    #[command(after_help = DOWNLOAD_EXAMPLES)]
    Download(Box<DownloadArgs>),
    /// Let the cluster fetch an image
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(Box<ClusterImportArgs>),
    /// Show the progress of DataVolumes, and what blocks them
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Print a token and the curl command for an upload
    #[command(after_help = TOKEN_EXAMPLES)]
    Token(TokenArgs),
    /// Show or replace the images of CDI's workers
    #[command(after_help = IMAGES_EXAMPLES)]
    Images(ImagesArgs),
}

#[derive(Debug, Args)]
pub(super) struct UploadArgs {
    /// The image: any format, compressed or not
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub(super) image: PathBuf,

    /// The volume: `dv/NAME` or `pvc/NAME`
    #[arg(value_name = "TARGET", value_hint = ValueHint::Other)]
    pub(super) target: VolumeTarget,

    /// Upload a tar, whose files are unpacked into the volume
    #[arg(long)]
    pub(super) archive: bool,

    /// Read the image as this format instead of detecting it. `verbatim` takes all bytes as they
    /// are, while `raw` still removes compression
    #[arg(long, value_name = "FORMAT", conflicts_with = "archive", help_heading = "Upload")]
    pub(super) format: Option<ChosenFormat>,

    /// Fail unless the image file has this hash: md5, sha1, sha256 or sha512
    #[arg(long, value_name = "ALG:HEX", help_heading = "Upload")]
    pub(super) checksum: Option<Checksum>,

    /// URL of the upload proxy [default: from CDI's configuration]
    #[arg(long, value_name = "URL", help_heading = "Upload")]
    pub(super) uploadproxy_url: Option<String>,

    /// Trust these certificates (PEM) for the upload proxy, besides the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Upload")]
    pub(super) cacert: Option<PathBuf>,

    /// Do not verify the upload proxy's certificate
    #[arg(long, help_heading = "Upload")]
    pub(super) insecure: bool,

    /// Encode the upload in this way
    #[arg(long, value_enum, default_value_t = EncodingOption::Auto, help_heading = "Upload")]
    pub(super) encoding: EncodingOption,

    /// Wait this long for the volume, and retry an interrupted upload for this long
    #[arg(long, value_name = "TIME", default_value = "1h", help_heading = "Upload")]
    pub(super) timeout: DurationValue,

    #[command(flatten)]
    pub(super) volume: VolumeArgs,

    #[arg(skip)]
    pub(super) cluster: ClusterOptions,

    #[command(flatten)]
    pub(super) shown: ProgressArgs,
}

#[derive(Debug, Args)]
pub(super) struct ClusterImportArgs {
    /// The image: `http(s)://`, `docker://`, `s3://` or `gs://`, as the cluster reaches it
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(super) url: String,

    /// The volume: `dv/NAME` or `pvc/NAME`
    #[arg(value_name = "TARGET", value_hint = ValueHint::Other)]
    pub(super) target: VolumeTarget,

    /// Server of an s3:// URL, such as https://minio.example.org:9000 [default:
    /// https://s3.us-east-1.amazonaws.com]
    #[arg(long, value_name = "URL", value_parser = parse_endpoint, help_heading = "Source")]
    pub(super) endpoint: Option<Url>,

    /// Read the image as this format instead of detecting it. `verbatim` takes all bytes as they
    /// are, while `raw` still removes compression
    #[arg(long, value_name = "FORMAT", help_heading = "Source")]
    pub(super) format: Option<ChosenFormat>,

    /// Secret with credentials for the source
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    pub(super) secret: Option<String>,

    /// ConfigMap with certificates for the source
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    pub(super) cert_configmap: Option<String>,

    /// Checksum of the image: `ALGORITHM:HEX`
    #[arg(long, value_name = "ALG:HEX", conflicts_with = "no_create", help_heading = "Source")]
    pub(super) checksum: Option<Checksum>,

    #[command(flatten)]
    pub(super) evidence: ClusterEvidenceArgs,

    /// Wait this long for the import
    #[arg(long, value_name = "TIME", default_value = "24h", help_heading = "Source")]
    pub(super) timeout: DurationValue,

    /// Create the volume, but do not wait for the import
    #[arg(long, help_heading = "Source")]
    pub(super) no_wait: bool,

    #[command(flatten)]
    pub(super) volume: VolumeArgs,

    #[arg(skip)]
    pub(super) cluster: ClusterOptions,

    #[command(flatten)]
    pub(super) shown: ProgressArgs,
}

/// Evidence of an image's publisher. It is verified here, and the volume gets the checksum or
/// digest, which CDI verifies.
#[derive(Debug, Args)]
pub(super) struct ClusterEvidenceArgs {
    /// Take the checksum from this list (SHA256SUMS, CHECKSUM), which this machine reads
    #[arg(long, value_name = "URL|FILE", conflicts_with_all = ["checksum", "no_create"], value_hint = ValueHint::AnyPath, help_heading = "Source")]
    pub(super) verify_sums: Option<String>,

    /// Fail unless a key of this file (OpenPGP) has signed the list
    #[arg(long, value_name = "FILE", requires = "verify_sums", value_hint = ValueHint::FilePath, help_heading = "Source")]
    pub(super) keyring: Option<PathBuf>,

    /// Detached signature of the list [default: the list with .gpg, .sign or .asc]
    #[arg(long, value_name = "URL|FILE", requires = "keyring", value_hint = ValueHint::AnyPath, help_heading = "Source")]
    pub(super) signature: Option<String>,

    /// Import a container image by its digest, if this public key (PEM) has signed it with cosign
    #[arg(long, value_name = "FILE", conflicts_with_all = ["verify_sums", "no_create"], value_hint = ValueHint::FilePath, help_heading = "Source")]
    pub(super) verify_key: Option<PathBuf>,

    /// Import a container image by its digest, if this identity (e-mail address or URL of a
    /// workflow) has signed it with cosign and without a key
    #[arg(long, value_name = "IDENTITY", group = "identity", requires_all = ["certificate_oidc_issuer", "trusted_root"], conflicts_with_all = ["verify_key", "verify_sums", "no_create"], value_hint = ValueHint::Other, help_heading = "Source")]
    certificate_identity: Option<String>,

    /// The same, with a regular expression that matches whole identities
    #[arg(long, value_name = "REGEX", group = "identity", requires_all = ["certificate_oidc_issuer", "trusted_root"], conflicts_with_all = ["verify_key", "verify_sums", "no_create"], value_parser = ExpectedIdentity::parse_pattern, value_hint = ValueHint::Other, help_heading = "Source")]
    certificate_identity_regexp: Option<ExpectedIdentity>,

    /// URL of the OpenID Connect provider that has authenticated the identity
    #[arg(long, value_name = "URL", requires = "identity", value_hint = ValueHint::Url, help_heading = "Source")]
    certificate_oidc_issuer: Option<String>,

    /// The keys of Sigstore's authorities and logs (`cosign trusted-root create`)
    #[arg(long, value_name = "FILE", requires = "identity", value_hint = ValueHint::FilePath, help_heading = "Source")]
    trusted_root: Option<PathBuf>,
}

impl ClusterEvidenceArgs {
    /// Reads who must have signed the container image at `url`, or the list with its checksum.
    pub(super) fn publisher_demand(&self, url: &str) -> Result<PublisherDemand, PluginError> {
        let exact = self.certificate_identity.clone().map(ExpectedIdentity::Exact);
        let identity = exact.or(self.certificate_identity_regexp.clone());
        if (self.verify_key.is_some() || identity.is_some()) && !url.starts_with(REGISTRY) {
            let options = "--verify-key and --certificate-identity";
            return Err(PluginError::usage(format!("{options} are only for {REGISTRY}")));
        }
        if let Some(path) = &self.verify_key {
            return Ok(PublisherDemand::Signature(Box::new(read_key_file(path)?)));
        }
        // The three options require each other.
        if let (Some(identity), Some(issuer), Some(trusted_root)) =
            (identity, self.certificate_oidc_issuer.clone(), &self.trusted_root)
        {
            let signer = KeylessSigner::new(identity, issuer, trusted_root)?;
            return Ok(PublisherDemand::Signature(Box::new(signer)));
        }
        let Some(place) = self.verify_sums.clone() else { return Ok(PublisherDemand::None) };
        if !is_url(url) {
            return Err(PluginError::usage("--verify-sums is only for http:// and https://"));
        }
        let keyring = self.keyring.as_deref().map(read_keyring_file).transpose()?;
        let signature = self.signature.clone();
        Ok(PublisherDemand::List(ListDemand { place, keyring, signature }))
    }
}

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// One volume: `dv/NAME` or `pvc/NAME` [default: all DataVolumes of the namespace]
    #[arg(value_name = "TARGET", value_hint = ValueHint::Other)]
    pub(super) target: Option<VolumeTarget>,

    /// Show the DataVolumes of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["target", "namespace"])]
    pub(super) all_namespaces: bool,

    /// Keep showing changes until Ctrl-C
    #[arg(short, long)]
    pub(super) watch: bool,

    /// Output format [default: a table]
    #[arg(short, long, value_name = "FORM", value_enum)]
    pub(super) output: Option<StatusFormat>,

    #[arg(skip)]
    pub(super) cluster: ClusterOptions,
}

/// Values of `status -o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum StatusFormat {
    /// A JSON array; with --watch, one per line
    Json,
}

#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    /// The volume: `dv/NAME` or `pvc/NAME`
    #[arg(value_name = "TARGET", value_hint = ValueHint::Other)]
    pub(super) target: VolumeTarget,

    /// Output format [default: the token and the command]
    #[arg(short, long, value_name = "FORM", value_enum)]
    pub(super) output: Option<TokenFormat>,

    /// URL of the upload proxy [default: from CDI's configuration]
    #[arg(long, value_name = "URL")]
    pub(super) uploadproxy_url: Option<String>,

    /// Certificates (PEM) for the command [default: from CDI's configuration]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) cacert: Option<PathBuf>,

    #[arg(skip)]
    pub(super) cluster: ClusterOptions,
}

/// Values of `token -o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TokenFormat {
    /// Only the token
    Name,
    /// A JSON object
    Json,
    /// Only the command
    Curl,
}

/// Values of `--encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum EncodingOption {
    /// Skip zeros; compress while the network is the bottleneck, unless the image is already
    /// compressed
    Auto,
    /// Send the file as it is
    None,
}
