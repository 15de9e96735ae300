//! The files, ports and system calls that the importer keeps when it reads untrusted bytes.

use std::path::{Path, PathBuf};

use fetch::pod::CERT_DIR;
use https::metrics;
use hypervisors::vddk::VddkSourceOptions;
use program::env::NamedStrings;
use program::paths::PodPaths;
use sandbox::{SandboxRules, TcpConnections};
use sources::{SourceLocation, SourceOptions};

/// Variables that name files with an identity. They are read when a request is signed, possibly
/// again during the transfer, because their tokens expire.
const IDENTITY_FILES: [&str; 3] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

/// The file in the home directory with an identity for Google Cloud Storage, without a variable
/// (`gcloud auth application-default login`).
const GOOGLE_IDENTITY: &str = ".config/gcloud/application_default_credentials.json";

/// Allows reading the files with identities that `env` names.
pub(crate) fn add_identities(rules: &mut SandboxRules, env: &dyn NamedStrings) {
    for file in IDENTITY_FILES.iter().filter_map(|name| env.get(name)) {
        rules.read(file);
    }
    if let Some(home) = env.get("HOME") {
        rules.read(Path::new(&home).join(GOOGLE_IDENTITY));
    }
}

/// Allows reading the source at the address `text`; `vddk` says how VMware disks are read. An
/// address that cannot be parsed counts as a server: the command fails later, with its message.
pub(crate) fn add_location(rules: &mut SandboxRules, text: &str, vddk: VddkSourceOptions) {
    match SourceLocation::parse(text, SourceOptions { vddk, ..SourceOptions::default() }) {
        Ok(SourceLocation::File(path)) => {
            rules.read(path);
        }
        Ok(place) if place.is_local() => {
            // `oci:DIR`, or `oci:DIR:NAME`.
            let path = text.split_once(':').map_or(text, |(_, path)| path);
            rules.read(path);
            for (end, _) in path.match_indices(':') {
                rules.read(&path[..end]);
            }
        }
        Ok(SourceLocation::Vddk(options)) if options.access.uses_nbdkit() => {
            rules.defer();
        }
        Ok(SourceLocation::Nbd(uri)) if is_unix_address(&uri) => {
            rules.connect_unix();
        }
        _ => {
            rules.connect(TcpConnections::Any);
        }
    }
}

fn is_unix_address(uri: &str) -> bool {
    uri.split_once("://").is_some_and(|(scheme, _)| scheme.to_ascii_lowercase().ends_with("+unix"))
}

/// Returns rules for what every pod of the importer needs besides its source and its target.
pub(crate) fn pod_rules(env: &dyn NamedStrings) -> SandboxRules {
    let paths = PodPaths::from_env(env);
    let mut rules = SandboxRules::new(env);
    for path in [
        paths.proxy_certs(),
        paths.trusted_certs(),
        paths.metrics_certs(),
        paths.extra_headers(),
        env.get(CERT_DIR).map(PathBuf::from).unwrap_or_default(),
    ] {
        rules.read(path);
    }
    add_identities(&mut rules, env);
    rules.write_file(paths.termination_log());
    rules.listen(metrics::metrics_port(env)).connect(TcpConnections::Any);
    rules
}

/// Restricts a pod to `rules`. The error is the reason why it must not continue.
pub(crate) fn enter_pod(env: &dyn NamedStrings, rules: SandboxRules) -> Result<(), String> {
    sandbox::enter_pod(env, rules).map_err(|error| error.to_string())
}
