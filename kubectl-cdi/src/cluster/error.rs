//! Errors of requests to the cluster. Each message states what to do. Text from other programs is
//! escaped as by [`printable`]; no message contains parts of a kubeconfig or credentials.

use kube::client::{AuthError, RustlsTlsError};
use kube::config::KubeconfigError;
use program::command_line::FailedCommand;
use program::exit::ExitReason;
use stream::error::errno_text;

use super::destination::VolumeTarget;
use super::object::printable_line;

/// Reasons why the cluster cannot be reached, or does not perform a request.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The kubeconfig is missing or cannot be used.
    #[error(
        "cannot find a cluster: {0}; give --kubeconfig or set KUBECONFIG, and choose a context with --context"
    )]
    Kubeconfig(String),
    /// The kubeconfig does not contain the context.
    #[error("no context {0}")]
    Context(String),
    /// The namespace has a name that is not valid in Kubernetes.
    #[error("{0:?} cannot be the name of a namespace: check --namespace")]
    Namespace(String),
    /// Credentials are not available, for example because an exec plugin failed.
    #[error("cannot log in to the cluster at {host}: {words}; check the user of the context")]
    Login {
        /// The API server.
        host: String,
        /// The cause of the failure.
        words: String,
    },
    /// A connection to the API server cannot be established, or breaks.
    #[error(
        "the API server at {host} cannot be reached: {words}; check the network, or choose another cluster with --context"
    )]
    Unreachable {
        /// The API server.
        host: String,
        /// The cause of the failure.
        words: String,
    },
    /// The certificate of the API server is not signed by a trusted authority.
    #[error(
        "the certificate of the API server at {host} is not trusted: {words}; set the file of its authority in the kubeconfig: kubectl \
         config set-cluster NAME --certificate-authority FILE"
    )]
    Untrusted {
        /// The API server.
        host: String,
        /// The message of the TLS library.
        words: String,
    },
    /// The API server does not respond in time.
    #[error("the API server at {host} does not answer within {seconds} s: try again later")]
    Silent {
        /// The API server.
        host: String,
        /// Time that was waited, in seconds.
        seconds: u64,
    },
    /// The API server fails, or is overloaded.
    #[error("the API server at {host} cannot answer now: {words}; try again later")]
    Busy {
        /// The API server.
        host: String,
        /// The message of the API server.
        words: String,
    },
    /// The response does not come from a Kubernetes API server.
    #[error(
        "{host} is not a Kubernetes API server: {words}; check the server in the kubeconfig, or choose another cluster with --context"
    )]
    NotKubernetes {
        /// Host and port of the server.
        host: String,
        /// The reason why the response is not from an API server.
        words: String,
    },
    /// The response exceeds a limit.
    #[error(
        "the API server at {host} answers to {verb} {resource} with {what}: choose another cluster with --context, or a smaller \
         namespace"
    )]
    TooMuch {
        /// The API server.
        host: String,
        /// The verb, as used in RBAC rules.
        verb: &'static str,
        /// The resource, as used in RBAC rules.
        resource: String,
        /// The limit that was exceeded, with its value.
        what: String,
    },
    /// The API server does not accept the credentials (status 401).
    #[error(
        "the API server at {host} rejected your credentials (401): log in again, or choose another user with --context"
    )]
    Unknown {
        /// The API server.
        host: String,
    },
    /// The user lacks a permission (RBAC).
    #[error(
        "you may not {verb} {resource} in {}: ask an administrator for a role with the verb {verb:?} on it",
        match namespace {
            Some(namespace) => format!("namespace {namespace}"),
            None => "the cluster".to_owned(),
        }
    )]
    Denied {
        /// The verb, as used in RBAC rules.
        verb: &'static str,
        /// The resource, as used in RBAC rules: `datavolumes.cdi.kubevirt.io`.
        resource: String,
        /// The namespace, if the resource has one.
        namespace: Option<String>,
    },
    /// CDI is not installed in the cluster.
    #[error(
        "CDI is not installed in this cluster: install it, or choose another cluster with --context"
    )]
    NoCdi,
    /// The namespace does not exist.
    #[error("namespace {0} not found: check --namespace")]
    NoNamespace(String),
    /// The object does not exist.
    #[error("{object} not found in namespace {namespace}: check the name and --namespace")]
    NotFound {
        /// The object, such as `dv/NAME`.
        object: String,
        /// The namespace that was searched.
        namespace: String,
    },
    /// An object that should be created already exists.
    #[error("{0} already exists: give --no-create to fill it, or choose another name")]
    Exists(String),
    /// A quota of the namespace is exhausted.
    #[error(
        "the quota of the namespace is exceeded: {0}; request less with --size, or delete what is not needed"
    )]
    Quota(String),
    /// The object was rejected by admission: by a webhook, or by the API server's own checks.
    #[error("the cluster rejected {object}: {words}")]
    Refused {
        /// The object, such as `dv/NAME`.
        object: String,
        /// The cluster's message, which states what to do.
        words: String,
    },
    /// The installed version of CDI would import without verifying the checksum.
    #[error(
        "{0} was not created: the CDI of this cluster does not support checksums of sources; leave out --checksum, or ask for a newer \
         CDI"
    )]
    NoChecksum(VolumeTarget),
    /// The disk does not fit into the volume.
    #[error(
        "{target} is too small: the disk has {disk_bytes} bytes, and of the volume's {claim_bytes} bytes {usable_bytes} are usable; \
         make it larger, or choose another name"
    )]
    TooSmall {
        /// The volume.
        target: VolumeTarget,
        /// The size of the claim.
        claim_bytes: u64,
        /// The size of the claim minus the overhead of the file system.
        usable_bytes: u64,
        /// The size of the disk.
        disk_bytes: u64,
    },
    /// The volume is already filled.
    #[error("{0} is already filled: delete it first, or choose another name")]
    Filled(VolumeTarget),
    /// The volume is not meant for uploads.
    #[error(
        "{0} is not waiting for an upload: it has neither the source \"upload\" nor the annotation \
         cdi.kubevirt.io/storage.upload.target; choose another name"
    )]
    NoUpload(VolumeTarget),
    /// The volume expects an archive but gets a disk image, or vice versa.
    #[error("{target} expects {}", if *.is_archive { "an archive: give --archive" } else { "a disk image: leave out --archive" })]
    Content {
        /// The volume.
        target: VolumeTarget,
        /// True if the volume expects an archive, false if it expects a disk image.
        is_archive: bool,
    },
    /// The volume was deleted, or is marked for deletion.
    #[error("{0} has been deleted: create it again, or choose another name")]
    Gone(VolumeTarget),
    /// The claim cannot be bound to a volume as requested.
    #[error(
        "{target} is not getting a volume: {words}; check --storage-class, --access-mode and --volume-mode, and whether the cluster has \
         a default storage class"
    )]
    NoClaim {
        /// The volume.
        target: VolumeTarget,
        /// The message of CDI or of Kubernetes.
        words: String,
    },
    /// The imported disk does not fit into the volume.
    #[error("{target} is too small: {words}; delete it, and import into a larger one, see --size")]
    Full {
        /// The volume.
        target: VolumeTarget,
        /// The message of CDI.
        words: String,
    },
    /// Filling the volume has failed, and retries cannot succeed.
    #[error(
        "{target} has failed: {words}{}",
        if *.is_retried { "; CDI retries until it is deleted" } else { "" }
    )]
    Failed {
        /// The volume.
        target: VolumeTarget,
        /// The last message from the pod.
        words: String,
        /// True if CDI still retries, because it cannot know that retries are useless.
        is_retried: bool,
        /// True if the checksum did not match.
        is_checksum: bool,
    },
    /// The volume was not ready within the time limit.
    #[error(
        "{target} is not ready after {seconds} s: {waiting}; give a longer --timeout, or look at: kubectl cdi status {target}"
    )]
    TimedOut {
        /// The volume.
        target: VolumeTarget,
        /// Time that was waited, in seconds.
        seconds: u64,
        /// The last reason for waiting.
        waiting: String,
    },
    /// CDIConfig does not contain the URL of the upload proxy.
    #[error(
        "the cluster does not publish an external address of its upload proxy: an administrator can create an Ingress or a Route for \
         the service cdi-uploadproxy; or run `kubectl port-forward -n cdi service/cdi-uploadproxy 8443:443` and give --uploadproxy-url \
         https://localhost:8443"
    )]
    NoProxy,
    /// The URL of the upload proxy in CDIConfig is not valid.
    #[error(
        "CDIConfig says that the upload proxy is at {0:?}, which is not a host and a path of plain letters: give --uploadproxy-url"
    )]
    BadProxy(String),
    /// The API server sent a UID that is not safe as part of a file name.
    #[error(
        "the API server returned {uid:?} as the uid of {target}: expected 1 to 64 letters, digits and -; choose another cluster with \
         --context"
    )]
    Uid {
        /// The object.
        target: VolumeTarget,
        /// The UID, as sent by the API server.
        uid: String,
    },
    /// A name is not safe as part of a request path.
    #[error("{0:?} cannot be the name of a Kubernetes object: use small letters, digits, - and .")]
    Name(String),
}

impl ClusterError {
    /// Creates the error for an unusable kubeconfig. The message quotes nothing from the file.
    pub(crate) fn from_kubeconfig(error: &KubeconfigError) -> Self {
        Self::Kubeconfig(match error {
            // kube's message quotes the surrounding lines, which may contain a token.
            KubeconfigError::Parse(error) => match error.location() {
                Some(place) => format!("the kubeconfig is not valid (line {})", place.line()),
                None => "the kubeconfig is not valid".to_owned(),
            },
            // kube's message contains the path in nested quotes.
            KubeconfigError::ReadConfig(cause, path) => {
                printable_line(&format!("cannot read {}: {}", path.display(), errno_text(cause)))
            }
            KubeconfigError::FindPath => "no kubeconfig found".to_owned(),
            KubeconfigError::CurrentContextNotSet => {
                "the kubeconfig has no current context".to_owned()
            }
            other => printable_line(&other.to_string()),
        })
    }

    /// Creates the error for a context `name` that is missing in `file`. `known` are the contexts
    /// in it.
    pub(crate) fn no_context(name: &str, file: &str, known: &[String]) -> Self {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let words = format!("\"{name}\" in {file}: choose one with --context; there are: {known}");
        Self::Context(printable_line(&words))
    }

    /// Creates the error for a request that received no response.
    pub(crate) fn from_request(host: &str, error: kube::Error) -> Self {
        let host = host.to_owned();
        match error {
            kube::Error::Auth(error) => Self::Login { host, words: login_message(&error) },
            kube::Error::RustlsTls(RustlsTlsError::InvalidPrivateKey(error)) => {
                Self::Login { host, words: identity_message(&error.to_string()) }
            }
            // kube's message contains the URL of the proxy, which may include a password.
            kube::Error::ProxyProtocolUnsupported { .. }
            | kube::Error::ProxyProtocolDisabled { .. } => Self::Kubeconfig(
                "the kubeconfig or HTTPS_PROXY names a proxy of an unsupported kind".to_owned(),
            ),
            source => {
                let words = printable_line(&program::report::error_chain(&source));
                match words.split_once(UNTRUSTED) {
                    Some((_, reason)) => {
                        Self::Untrusted { host, words: format!("{UNTRUSTED}{reason}") }
                    }
                    None => Self::Unreachable { host, words: without_layers(&words).to_owned() },
                }
            }
        }
    }

    /// Returns true for temporary failures, such as a broken network or a server that is starting.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Silent { .. } | Self::Busy { .. })
    }
}

/// The beginning of rustls's message about a certificate. The text is compared because kube's
/// error preserves nothing else of the cause.
const UNTRUSTED: &str = "invalid peer certificate: ";

/// Removes the names of the libraries through which an error was passed.
fn without_layers(words: &str) -> &str {
    let layers = ["ServiceError: ", "client error (Connect): ", "tcp connect error: "];
    let words =
        layers.iter().fold(words, |words, layer| words.strip_prefix(layer).unwrap_or(words));
    words.split(" (os error ").next().unwrap_or(words)
}

/// Describes a failed login. The stdout of an exec plugin is omitted, because it may contain a
/// token.
fn login_message(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let words = printable_line(&String::from_utf8_lossy(&out.stderr));
            format!("its credential plugin failed with {}: {words}", out.status)
        }
        AuthError::AuthExecParse(_) => {
            "its credential plugin did not print an ExecCredential".to_owned()
        }
        other => printable_line(&other.to_string()),
    }
}

/// Describes a certificate or key of the user that rustls refuses with `reason`. The text is
/// compared because the error of webpki inside has no public type.
fn identity_message(reason: &str) -> String {
    if reason.contains("UnsupportedCertVersion") {
        return "its client certificate is of X.509 version 1, and only version 3 is supported: sign it again with extensions \
                (openssl x509 -req -extfile FILE)"
            .to_owned();
    }
    format!("its client certificate or key cannot be used: {}", printable_line(reason))
}

impl FailedCommand for ClusterError {
    fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Kubeconfig(_) | Self::Context(_) | Self::Namespace(_) | Self::Content { .. } => {
                ExitReason::Usage
            }
            Self::Quota(_) | Self::TooSmall { .. } | Self::Full { .. } => ExitReason::NoSpace,
            Self::Failed { is_checksum: true, .. } => ExitReason::Checksum,
            Self::Failed { .. } => ExitReason::Source,
            _ => ExitReason::Target,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{ExitStatus, Output};

    use super::*;

    #[test]
    fn no_error_contains_a_secret() {
        let yaml = "users: [{name: me, user: {token: s3cret}}\ncontexts: {";
        let error = kube::config::Kubeconfig::from_yaml(yaml).unwrap_err();
        let run = AuthError::AuthExecRun {
            cmd: "login --password s3cret".to_owned(),
            out: Box::new(Output {
                status: ExitStatus::from_raw(1 << 8),
                stdout: b"s3cret".to_vec(),
                stderr: b"no browser\x1b".to_vec(),
            }),
        };
        let login = ClusterError::from_request("h", kube::Error::Auth(run));
        assert!(login.to_string().contains("no browser\\u{1b}"), "{login}");
        for error in [ClusterError::from_kubeconfig(&error), login] {
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
        }
    }

    #[test]
    fn exit_codes_follow_from_the_error() {
        let target: VolumeTarget = "dv/disk".parse().unwrap();
        let failed = |is_checksum| ClusterError::Failed {
            target: target.clone(),
            words: String::new(),
            is_retried: false,
            is_checksum,
        };
        for (error, exit) in [
            (ClusterError::Namespace(String::new()), ExitReason::Usage),
            (ClusterError::Quota(String::new()), ExitReason::NoSpace),
            (failed(true), ExitReason::Checksum),
            (failed(false), ExitReason::Source),
            (ClusterError::NoCdi, ExitReason::Target),
            (ClusterError::Filled(target.clone()), ExitReason::Target),
        ] {
            assert_eq!(error.exit_reason(), exit, "{error}");
        }
    }
}
