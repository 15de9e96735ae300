//! Errors of requests to the cluster.

use kube::client::{AuthError, RustlsTlsError};
use kube::config::KubeconfigError;
use program::exit::ExitReason;
use stream::error::errno_text;

use super::ANSWER_LIMIT;
use super::destination::VolumeTarget;
use super::object::printable_line;
use crate::error::{PluginError, PluginErrorKind};

/// Creates the error for a cluster that cannot be found. `words` quote nothing from a kubeconfig.
fn no_cluster(words: &str) -> PluginError {
    let advice = "give --kubeconfig or set KUBECONFIG, and choose a context with --context";
    PluginError::usage(format!("cannot find a cluster: {words}; {advice}"))
}

/// Creates the error for an unusable kubeconfig.
pub(super) fn kubeconfig_error(error: &KubeconfigError) -> PluginError {
    no_cluster(&match error {
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
        KubeconfigError::CurrentContextNotSet => "the kubeconfig has no current context".to_owned(),
        other => printable_line(&other.to_string()),
    })
}

/// Creates the error for a context `name` that is missing in `file`. `known` are the contexts in
/// it.
pub(super) fn no_context(name: &str, file: &str, known: &[String]) -> PluginError {
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let words =
        format!("no context \"{name}\" in {file}: choose one with --context; there are: {known}");
    PluginError::usage(printable_line(&words))
}

/// Creates the error for a request to `host` that received no response.
pub(super) fn request_error(host: &str, error: kube::Error) -> PluginError {
    let login = |words: String| {
        let advice = "check the user of the context";
        PluginError::target(format!("cannot log in to the cluster at {host}: {words}; {advice}"))
    };
    match error {
        kube::Error::Auth(error) => login(login_message(&error)),
        kube::Error::RustlsTls(RustlsTlsError::InvalidPrivateKey(error)) => {
            login(identity_message(&error.to_string()))
        }
        // kube's message contains the URL of the proxy, which may include a password.
        kube::Error::ProxyProtocolUnsupported { .. }
        | kube::Error::ProxyProtocolDisabled { .. } => {
            no_cluster("the kubeconfig or HTTPS_PROXY names a proxy of an unsupported kind")
        }
        source => {
            let words = printable_line(&program::report::error_chain(&source));
            if let Some((_, reason)) = words.split_once(UNTRUSTED) {
                // Another authority does not help.
                if reason.starts_with("certificate expired") {
                    return PluginError::target(format!(
                        "the certificate of the API server at {host} has expired: renew it, or check the clock of this machine"
                    ));
                }
                return PluginError::target(format!(
                    "the certificate of the API server at {host} is not trusted: {UNTRUSTED}{reason}; set the file of its \
                     authority in the kubeconfig: kubectl config set-cluster NAME --certificate-authority FILE"
                ));
            }
            let words = without_layers(&words);
            PluginError::passing(format!(
                "the API server at {host} cannot be reached: {words}; check the network, or choose another cluster with --context"
            ))
        }
    }
}

/// Creates the error for an API server that does not respond within [`ANSWER_LIMIT`].
pub(super) fn silent_server(host: &str) -> PluginError {
    let seconds = ANSWER_LIMIT.as_secs();
    PluginError::passing(format!(
        "the API server at {host} does not answer within {seconds} s: try again later"
    ))
}

/// Creates the error for an API server that fails, or is overloaded. `words` is its message.
pub(super) fn busy_server(host: &str, words: &str) -> PluginError {
    PluginError::passing(format!(
        "the API server at {host} cannot answer now: {words}; try again later"
    ))
}

/// Creates the error for a response that does not come from a Kubernetes API server.
pub(super) fn not_kubernetes(host: &str, words: &str) -> PluginError {
    let advice = "check the server in the kubeconfig, or choose another cluster with --context";
    PluginError::of_kind(
        PluginErrorKind::NotKubernetes,
        format!("{host} is not a Kubernetes API server: {words}; {advice}"),
    )
}

/// Creates the error for a user who lacks a permission. `verb` and `resource` are named as in RBAC
/// rules; the namespace is empty for all namespaces, and for objects without one.
pub(super) fn denied(verb: &str, resource: &str, namespace: &str) -> PluginError {
    let place = match namespace {
        "" => "the cluster".to_owned(),
        namespace => format!("namespace {namespace}"),
    };
    let advice = format!("ask an administrator for a role with the verb {verb:?} on it");
    PluginError::of_kind(
        PluginErrorKind::Denied,
        format!("you may not {verb} {resource} in {place}: {advice}"),
    )
}

/// Creates the error for a cluster without CDI.
pub(super) fn no_cdi() -> PluginError {
    let advice = "install it, or choose another cluster with --context";
    PluginError::of_kind(
        PluginErrorKind::NoCdi,
        format!("CDI is not installed in this cluster: {advice}"),
    )
}

/// Creates the error for a missing object, such as `dv/NAME`.
pub(super) fn not_found(object: &str, namespace: &str) -> PluginError {
    let advice = "check the name and --namespace";
    PluginError::of_kind(
        PluginErrorKind::NotFound,
        format!("{object} not found in namespace {namespace}: {advice}"),
    )
}

/// Creates the error for an object that admission rejected: a webhook, or the API server's own
/// checks. `words` state what to do.
pub(super) fn refused_object(object: &str, words: &str) -> PluginError {
    PluginError::target(format!("the cluster rejected {object}: {words}"))
}

/// Creates the error for an exhausted quota of the namespace.
pub(super) fn exceeded_quota(words: &str) -> PluginError {
    let advice = "request less with --size, or delete what is not needed";
    PluginError::new(
        ExitReason::NoSpace,
        format!("the quota of the namespace is exceeded: {words}; {advice}"),
    )
}

/// Creates the error for a claim that cannot be bound to a volume as requested. `words` is the
/// message of CDI or of Kubernetes.
pub(super) fn unbound_claim(target: &VolumeTarget, words: &str) -> PluginError {
    PluginError::target(format!(
        "{target} is not getting a volume: {words}; check --storage-class, --access-mode and --volume-mode, and whether the cluster \
         has a default storage class"
    ))
}

/// Creates the error for a volume that is filled already.
pub(super) fn filled_volume(target: &VolumeTarget) -> PluginError {
    PluginError::target(format!(
        "{target} is already filled: delete it first, or choose another name"
    ))
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
        let login = request_error("h", kube::Error::Auth(run));
        assert!(login.to_string().contains("no browser\\u{1b}"), "{login}");
        for error in [kubeconfig_error(&error), login] {
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
        }
    }
}
