//! The command line: subcommands, flags and their help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use datapath::digest::Checksum;
use program::command_line::values::DurationValue;
use program::progress::ProgressArgs;
use url::Url;

use super::download::{DOWNLOAD_EXAMPLES, DownloadArgs};
use crate::cluster::{ClusterOptions, VolumeMode, VolumeTarget, parse_access_mode};

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

    #[command(flatten)]
    pub(super) cluster: ClusterArgs,

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
    #[arg(long, value_name = "URL", value_parser = endpoint, help_heading = "Source")]
    pub(super) endpoint: Option<Url>,

    /// Secret with credentials for the source
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    pub(super) secret: Option<String>,

    /// ConfigMap with certificates for the source
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    pub(super) cert_configmap: Option<String>,

    /// Checksum of the image: `ALGORITHM:HEX`
    #[arg(long, help_heading = "Source")]
    pub(super) checksum: Option<String>,

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

    #[command(flatten)]
    pub(super) cluster: ClusterArgs,

    #[command(flatten)]
    pub(super) shown: ProgressArgs,
}

/// Evidence of an image's publisher. It is verified here, and the volume gets the checksum or
/// digest, which CDI verifies.
#[derive(Debug, Clone, Args)]
pub(super) struct ClusterEvidenceArgs {
    /// Take the checksum from this list (SHA256SUMS, CHECKSUM), which this machine reads
    #[arg(long, value_name = "URL|FILE", conflicts_with = "checksum", value_hint = ValueHint::AnyPath, help_heading = "Source")]
    pub(super) verify_sums: Option<String>,

    /// Fail unless a key of this file (OpenPGP) has signed the list
    #[arg(long, value_name = "FILE", requires = "verify_sums", value_hint = ValueHint::FilePath, help_heading = "Source")]
    pub(super) keyring: Option<PathBuf>,

    /// Detached signature of the list [default: the list with .gpg, .sign or .asc]
    #[arg(long, value_name = "URL|FILE", requires = "keyring", value_hint = ValueHint::AnyPath, help_heading = "Source")]
    pub(super) signature: Option<String>,

    /// Import a container image by its digest, if this public key (PEM) has signed it with cosign
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Source")]
    pub(super) verify_key: Option<PathBuf>,
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

    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
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

    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
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

/// Options of the created volume.
#[derive(Debug, Args)]
#[command(next_help_heading = "Volume")]
pub(super) struct VolumeArgs {
    /// Use an existing volume
    #[arg(long)]
    pub(super) no_create: bool,

    /// Size of the volume, such as 10Gi [default: the size of the disk in the image]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) size: Option<u64>,

    /// Storage class [default: the cluster's]
    #[arg(long, value_name = "NAME")]
    pub(super) storage_class: Option<String>,

    /// Access mode, such as ReadWriteMany or RWX [default: chosen by CDI for the storage]
    #[arg(long, value_name = "MODE", value_parser = parse_access_mode)]
    pub(super) access_mode: Option<String>,

    /// Filesystem or Block [default: chosen by CDI for the storage]
    #[arg(long, value_name = "MODE")]
    pub(super) volume_mode: Option<VolumeMode>,

    /// Allocate all space in advance
    #[arg(long)]
    pub(super) preallocation: bool,

    /// Bind the volume before a VM uses it
    #[arg(long)]
    pub(super) force_bind: bool,

    /// Default instance type of VMs with this disk
    #[arg(long, alias = "default-instancetype", value_name = "NAME")]
    pub(super) instancetype: Option<String>,

    /// Scope of --instancetype [default: cluster]
    #[arg(long, value_name = "SCOPE", value_enum, requires = "instancetype")]
    pub(super) instancetype_scope: Option<ObjectScope>,

    /// Default preference of VMs with this disk
    #[arg(long, alias = "default-preference", value_name = "NAME")]
    pub(super) preference: Option<String>,

    /// Scope of --preference [default: cluster]
    #[arg(long, value_name = "SCOPE", value_enum, requires = "preference")]
    pub(super) preference_scope: Option<ObjectScope>,

    /// Print the object instead of creating it
    #[arg(long, value_name = "WHERE", value_enum, conflicts_with = "no_create")]
    pub(super) dry_run: Option<DryRun>,

    /// Output format of --dry-run [default: yaml]
    #[arg(short, long, value_name = "FORM", value_enum, requires = "dry_run")]
    pub(super) output: Option<ManifestFormat>,
}

/// Values of `--instancetype-scope` and `--preference-scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ObjectScope {
    /// VirtualMachineClusterInstancetype, VirtualMachineClusterPreference
    Cluster,
    /// VirtualMachineInstancetype, VirtualMachinePreference
    Namespace,
}

/// Values of `--dry-run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DryRun {
    /// Contact no cluster; the size assumes CDI's default filesystem overhead
    Client,
    /// Read the filesystem overhead from the cluster, and let it validate the object
    Server,
}

/// Values of `-o` with `--dry-run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ManifestFormat {
    /// YAML
    Yaml,
    /// JSON
    Json,
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

/// Options that select the cluster and the namespace.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArgs {
    /// Kubeconfig file [default: the files of KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Namespace [default: the namespace of the context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
}

impl ClusterArgs {
    /// Returns the value of `--namespace`.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the options that were given, as text for a command that is printed for the user.
    pub(super) fn to_words(&self) -> String {
        let file = self.kubeconfig.as_ref().map(|path| path.to_string_lossy().into_owned());
        let flags = [
            ("--kubeconfig", file.as_ref()),
            ("--context", self.context.as_ref()),
            ("--namespace", self.namespace.as_ref()),
        ];
        let given = flags.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
        given.map(|(flag, value)| format!(" {flag} {}", super::shell_word(value))).collect()
    }
}

impl From<ClusterArgs> for ClusterOptions {
    fn from(arguments: ClusterArgs) -> Self {
        Self {
            kubeconfig: arguments.kubeconfig,
            context: arguments.context,
            namespace: arguments.namespace,
        }
    }
}

/// Parses the URL of an S3 server. The URL must not contain a path, because CDI takes the first
/// part of the path as the bucket.
fn endpoint(text: &str) -> Result<Url, String> {
    let wrong = || "use http://HOST, https://HOST, or either with a port".to_owned();
    let url = Url::parse(text).map_err(|_| wrong())?;
    let is_server = matches!(url.scheme(), "http" | "https")
        && matches!(url.path(), "" | "/")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    match is_server {
        true => Ok(url),
        false => Err(wrong()),
    }
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
    program::quantity::parse_bytes(&format!("{number}{unit}")).map_err(|error| error.to_string())
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
