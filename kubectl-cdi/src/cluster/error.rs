//! Failures of what is asked of the cluster, each a sentence that says what to do. Words of others are shown as by [`printable`], and
//! nothing of a kubeconfig or of a login.

use datapath::error::errno_text;
use kube::client::AuthError;
use kube::config::KubeconfigError;
use program::command_line::FailedCommand;
use program::exit::ExitReason;

use super::destination::VolumeTarget;
use super::object::printable_line;

/// A reason why the cluster could not be asked, or does not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No kubeconfig, or one that cannot be used.
    #[error(
        "no way to a cluster: {0}; give --kubeconfig or set KUBECONFIG, and choose a context by --context"
    )]
    Kubeconfig(String),
    /// A context that the kubeconfig does not have.
    #[error("there is no context {0}")]
    Context(String),
    /// A namespace that Kubernetes does not allow.
    #[error("{0:?} cannot be the name of a namespace: check --namespace")]
    Namespace(String),
    /// No credentials, such as from an exec plugin.
    #[error("cannot log in to the cluster at {host}: {words}; check the user of the context")]
    Login {
        /// The API server.
        host: String,
        /// What went wrong.
        words: String,
    },
    /// No connection to the API server.
    #[error(
        "the API server at {host} cannot be reached: {words}; check the network, or choose another cluster by --context"
    )]
    Unreachable {
        /// The API server.
        host: String,
        /// What went wrong.
        words: String,
    },
    /// An API server whose certificate no trusted authority has signed.
    #[error(
        "the certificate of the API server at {host} is not trusted: {words}; name the file of its authority in the kubeconfig: kubectl \
         config set-cluster NAME --certificate-authority FILE"
    )]
    Untrusted {
        /// The API server.
        host: String,
        /// The words of TLS.
        words: String,
    },
    /// A connection to the API server, and no answer.
    #[error("the API server at {host} does not answer within {seconds} s: try again later")]
    Silent {
        /// The API server.
        host: String,
        /// How long was waited.
        seconds: u64,
    },
    /// A server that fails, or has too much to do.
    #[error("the API server at {host} cannot answer now: {words}; try again later")]
    Busy {
        /// The API server.
        host: String,
        /// Its words.
        words: String,
    },
    /// An answer that no API server gives.
    #[error(
        "{host} is not a Kubernetes API server: {words}; check the server in the kubeconfig, or choose another cluster by --context"
    )]
    NotKubernetes {
        /// The server.
        host: String,
        /// What is wrong with its answer.
        words: String,
    },
    /// More than an API server may answer.
    #[error(
        "the API server at {host} answers to {verb} {resource} with {what}: choose another cluster by --context, or a namespace with \
         less in it"
    )]
    TooMuch {
        /// The API server.
        host: String,
        /// What was asked.
        verb: &'static str,
        /// The resource of RBAC.
        resource: String,
        /// What is too much, with the bound.
        what: String,
    },
    /// Credentials that the API server does not take.
    #[error(
        "the API server at {host} does not know you (401): log in again, or choose another user by --context"
    )]
    Unknown {
        /// The API server.
        host: String,
    },
    /// A right that is missing (RBAC).
    #[error(
        "you may not {verb} {resource} in {}: ask an administrator for a role with the verb {verb:?} on it",
        match namespace {
            Some(namespace) => format!("namespace {namespace}"),
            None => "the cluster".to_owned(),
        }
    )]
    Denied {
        /// The verb of RBAC.
        verb: &'static str,
        /// The resource of RBAC, `datavolumes.cdi.kubevirt.io`.
        resource: String,
        /// The namespace, if the resource has one.
        namespace: Option<String>,
    },
    /// A cluster without CDI.
    #[error("CDI is not installed in this cluster: install it, or choose another cluster by --context")]
    NoCdi,
    /// A namespace that is not there.
    #[error("there is no namespace {0}: check --namespace")]
    NoNamespace(String),
    /// An object that is not there.
    #[error("there is no {object} in namespace {namespace}: check the name and --namespace")]
    NotFound {
        /// The object, `dv/NAME`.
        object: String,
        /// Where it is not.
        namespace: String,
    },
    /// An object that was to be made.
    #[error("{0} is there already: give --no-create to fill it as it is, or choose another name")]
    Exists(String),
    /// A quota that has no room.
    #[error(
        "no room in the quota of the namespace: {0}; ask for less by --size, or remove what is not needed"
    )]
    Quota(String),
    /// A refusal by admission: a webhook, or the API server's own checks.
    #[error("the cluster refuses {object}: {words}")]
    Refused {
        /// The object, `dv/NAME`.
        object: String,
        /// The cluster's words, which say what to do.
        words: String,
    },
    /// A version of CDI that would import without a look at the checksum.
    #[error(
        "{0} was not made: the CDI of this cluster knows no checksums of sources; leave out --checksum, or ask for a newer CDI"
    )]
    NoChecksum(VolumeTarget),
    /// A volume into which the disk does not fit.
    #[error(
        "{target} is too small: the disk has {disk_bytes} bytes, and into the volume of {claim_bytes} bytes fit {usable_bytes}; \
         make it larger, or choose another name"
    )]
    TooSmall {
        /// The volume.
        target: VolumeTarget,
        /// Its size.
        claim_bytes: u64,
        /// What is left of that by a file system's overhead.
        usable_bytes: u64,
        /// The size of the disk.
        disk_bytes: u64,
    },
    /// A volume that has its content already.
    #[error("{0} is already filled: delete it first, or choose another name")]
    Filled(VolumeTarget),
    /// A volume that is filled in another way.
    #[error(
        "{0} does not wait for an upload: it has neither the source \"upload\" nor the annotation \
         cdi.kubevirt.io/storage.upload.target; choose another name"
    )]
    NoUpload(VolumeTarget),
    /// A disk for a volume of files, or files for a volume of a disk.
    #[error("{target} waits for {}", if *.is_archive { "an archive: give --archive" } else { "a disk image: leave out --archive" })]
    Content {
        /// The volume.
        target: VolumeTarget,
        /// What it waits for.
        is_archive: bool,
    },
    /// A volume that is deleted, or that something still keeps from being so.
    #[error("{0} has been deleted: make it again, or choose another name")]
    Gone(VolumeTarget),
    /// A claim that cannot exist as it was requested.
    #[error(
        "{target} gets no volume: {words}; check --storage-class, --access-mode and --volume-mode, and whether the cluster has a default \
         storage class"
    )]
    NoClaim {
        /// The volume.
        target: VolumeTarget,
        /// The words of CDI, or of Kubernetes.
        words: String,
    },
    /// A volume into which an import does not fit.
    #[error("{target} is too small: {words}; delete it, and import into a larger one, see --size")]
    Full {
        /// The volume.
        target: VolumeTarget,
        /// CDI's words.
        words: String,
    },
    /// A volume whose filling has failed for good.
    #[error(
        "{target} has failed: {words}{}",
        if *.is_retried { "; CDI retries until it is deleted" } else { "" }
    )]
    Failed {
        /// The volume.
        target: VolumeTarget,
        /// What its pod says.
        words: String,
        /// True if CDI does not know that retries are useless.
        is_retried: bool,
        /// True if that is about a checksum.
        is_checksum: bool,
    },
    /// The end of patience.
    #[error(
        "{target} is not there after {seconds} s: {waiting}; give a longer --timeout, or look at: kubectl cdi status {target}"
    )]
    TimedOut {
        /// The volume.
        target: VolumeTarget,
        /// How long was waited.
        seconds: u64,
        /// What was waited for at last.
        waiting: String,
    },
    /// A proxy that CDIConfig does not know of.
    #[error(
        "the cluster does not say where its upload proxy is reached from outside: an administrator can make an Ingress or a Route for the \
         service cdi-uploadproxy; or run `kubectl port-forward -n cdi service/cdi-uploadproxy 8443:443` and give \
         --uploadproxy-url https://localhost:8443"
    )]
    NoProxy,
    /// A proxy's address that is none.
    #[error(
        "CDIConfig says that the upload proxy is at {0:?}, which is not a host and a path of plain letters: give --uploadproxy-url"
    )]
    BadProxy(String),
    /// A UID that might lead to another file.
    #[error(
        "the uid of {target} cannot be {uid:?}, as its API server says: only 1 to 64 letters, digits and - can; choose another cluster by \
         --context"
    )]
    Uid {
        /// The object.
        target: VolumeTarget,
        /// What the API server says.
        uid: String,
    },
    /// A name that might lead to another object.
    #[error("{0:?} cannot be the name of an object of Kubernetes: use small letters, digits, - and .")]
    Name(String),
}

impl ClusterError {
    /// The failure to use a kubeconfig, without anything that is written in it.
    pub(crate) fn from_kubeconfig(error: &KubeconfigError) -> Self {
        Self::Kubeconfig(match error {
            // kube's sentence shows the lines around, and those may be a token.
            KubeconfigError::Parse(error) => match error.location() {
                Some(place) => format!("the kubeconfig is no YAML of that kind (line {})", place.line()),
                None => "the kubeconfig is no YAML of that kind".to_owned(),
            },
            // kube's sentence has the path with quotes inside others.
            KubeconfigError::ReadConfig(cause, path) => {
                printable_line(&format!("cannot read {}: {}", path.display(), errno_text(cause)))
            }
            KubeconfigError::FindPath => "there is no kubeconfig".to_owned(),
            KubeconfigError::CurrentContextNotSet => "the kubeconfig has no current context".to_owned(),
            other => printable_line(&other.to_string()),
        })
    }

    /// The lack of the context `name` in `file`, which has those of `known`.
    pub(crate) fn no_context(name: &str, file: &str, known: &[String]) -> Self {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let words = format!("\"{name}\" in {file}: choose one by --context; there are: {known}");
        Self::Context(printable_line(&words))
    }

    /// The failure to ask at all.
    pub(crate) fn from_request(host: &str, error: kube::Error) -> Self {
        let host = host.to_owned();
        match error {
            kube::Error::Auth(error) => Self::Login { host, words: login_message(&error) },
            // kube's sentence has the proxy's URL, which may hold a password.
            kube::Error::ProxyProtocolUnsupported { .. } | kube::Error::ProxyProtocolDisabled { .. } => {
                Self::Kubeconfig(
                    "it, or HTTPS_PROXY, names a proxy of a kind that is not known here".to_owned(),
                )
            }
            source => {
                let words = printable_line(&program::report::error_chain(&source));
                match words.split_once(UNTRUSTED) {
                    Some((_, reason)) => Self::Untrusted { host, words: format!("{UNTRUSTED}{reason}") },
                    None => Self::Unreachable { host, words: without_layers(&words).to_owned() },
                }
            }
        }
    }

    /// True for what may be over in a moment: a network, a server that starts.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Silent { .. } | Self::Busy { .. })
    }
}

/// The words of rustls about a certificate; kube's error keeps nothing else of it.
const UNTRUSTED: &str = "invalid peer certificate: ";

/// The words of an error without the names of the libraries that passed it on.
fn without_layers(words: &str) -> &str {
    let layers = ["ServiceError: ", "client error (Connect): ", "tcp connect error: "];
    let words = layers.iter().fold(words, |words, layer| words.strip_prefix(layer).unwrap_or(words));
    words.split(" (os error ").next().unwrap_or(words)
}

/// What went wrong with a login, without what a plugin has printed to stdout: that may be a token.
fn login_message(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let words = printable_line(&String::from_utf8_lossy(&out.stderr));
            format!("its login program ended with {}: {words}", out.status)
        }
        AuthError::AuthExecParse(_) => "what its login program prints is no ExecCredential".to_owned(),
        other => printable_line(&other.to_string()),
    }
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
    fn no_sentence_holds_a_secret() {
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
    fn codes_are_those_of_the_family() {
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
