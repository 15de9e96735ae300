//! Reads the flags and the environment of the Deployment, and the settings that are stored in the
//! cluster.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use https::metrics;
use https::tls::ServerFiles;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use program::cluster;
use program::command_line::values;
use program::env::{EnvReader, NamedStrings};
use program::flags::KlogFlags;
use program::paths::PodPaths;
use sandbox::{SandboxRules, TcpConnections};

use super::KEY_VARIABLE;
use crate::api;
use crate::config::Config;
use crate::identity::{AuthorityBundle, ProxyIdentity};
use crate::limits::UploadLimits;
use crate::profile;
use crate::token::TokenVerifier;
use crate::volumes::ClaimDirectory;
use crate::volumes::cluster::ClusterClaims;

const SERVER_CERTIFICATE: (&str, &str) =
    ("SERVER_CERT_FILE", "/var/run/certs/cdi-uploadproxy-server-cert/tls.crt");
const SERVER_KEY: (&str, &str) =
    ("SERVER_KEY_FILE", "/var/run/certs/cdi-uploadproxy-server-cert/tls.key");
const CLIENT_CERTIFICATE: (&str, &str) =
    ("UPLOAD_CLIENT_CERT_FILE", "/var/run/certs/cdi-uploadserver-client-cert/tls.crt");
const CLIENT_KEY: (&str, &str) =
    ("UPLOAD_CLIENT_KEY_FILE", "/var/run/certs/cdi-uploadserver-client-cert/tls.key");
const CA_BUNDLE: (&str, &str) =
    ("UPLOAD_SERVER_CA_BUNDLE_CONFIG_MAP", "cdi-uploadserver-signer-bundle");

/// Silence after which the connection to the API server counts as dead. It is longer than the time
/// limit of any single request.
const API_PATIENCE: Duration = Duration::from_secs(12);

/// The folder with the pod's own namespace, and the token and authority of the API server.
pub(super) const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// CDI's namespace, used if that file is missing or empty.
const NAMESPACE: &str = "cdi";

/// Our own variable: `ADDRESS:PORT` of the listener.
const LISTEN: (&str, &str) = ("CDI_UPLOADPROXY_LISTEN", ":8443");
/// Our own variable: `ADDRESS:PORT` of the metrics, or `off`.
const METRICS: (&str, &str) = ("CDI_UPLOADPROXY_METRICS", ":8444");
/// Our own variables for [`UploadLimits`].
const MAX_UPLOADS: &str = "CDI_UPLOADPROXY_MAX_UPLOADS";
const MAX_UPLOADS_PER_CLIENT: &str = "CDI_UPLOADPROXY_MAX_UPLOADS_PER_CLIENT";
const LIMIT_RATE: &str = "CDI_UPLOADPROXY_LIMIT_RATE";
const LIMIT_RATE_PER_CLIENT: &str = "CDI_UPLOADPROXY_LIMIT_RATE_PER_CLIENT";
/// For tests: the address to connect to instead of the upload server's own address.
const UPSTREAM: &str = "CDI_WORKERS_TEST_UPSTREAM";

/// The settings in the environment.
pub(super) struct ProxySettings {
    verifier: TokenVerifier,
    tls: ServerFiles,
    client_certificate: PathBuf,
    client_key: PathBuf,
    /// The name of the ConfigMap with the authorities of upload servers.
    bundle: String,
    namespace: String,
    listener: (String, u16),
    metrics: Vec<SocketAddr>,
    allowed: UploadLimits,
    dial: Option<SocketAddr>,
}

/// Reads the settings in `env`. The error is the reason why the proxy cannot start.
pub(super) fn read_settings(
    env: &dyn NamedStrings,
    paths: &PodPaths,
) -> Result<ProxySettings, String> {
    let mut reader = EnvReader::new(env);
    let key =
        reader.read_text(KEY_VARIABLE).ok_or_else(|| format!("{KEY_VARIABLE} not defined"))?;
    let verifier = TokenVerifier::new(&key).map_err(|error| {
        format!("unable to retrieve apiserver signing key from {KEY_VARIABLE}: {error}")
    })?;
    let path = |(name, fixed): (&str, &str)| {
        reader.read_text(name).map_or_else(|| paths.resolve_path(fixed), PathBuf::from)
    };
    let settings = ProxySettings {
        verifier,
        tls: ServerFiles {
            certificate: path(SERVER_CERTIFICATE),
            key: path(SERVER_KEY),
            client_ca: None,
        },
        client_certificate: path(CLIENT_CERTIFICATE),
        client_key: path(CLIENT_KEY),
        bundle: reader.read_text(CA_BUNDLE.0).unwrap_or_else(|| CA_BUNDLE.1.to_owned()),
        namespace: own_namespace(paths),
        listener: or_default(&mut reader, LISTEN, values::listen),
        metrics: or_default(&mut reader, METRICS, metrics_addresses),
        allowed: UploadLimits {
            uploads: read_number(&mut reader, MAX_UPLOADS),
            uploads_per_client: read_number(&mut reader, MAX_UPLOADS_PER_CLIENT),
            rate: reader.read_parsed(LIMIT_RATE, values::byte_rate),
            rate_per_client: reader.read_parsed(LIMIT_RATE_PER_CLIENT, values::byte_rate),
        },
        dial: reader.read_parsed(UPSTREAM, SocketAddr::from_str),
    };
    reader.into_result().map_err(|errors| errors.to_string())?;
    Ok(settings)
}

impl ProxySettings {
    /// Adds what a proxy with these settings opens to `rules`. Kubernetes replaces the files of a
    /// Secret in their folder.
    pub(super) fn extend_rules(&self, rules: &mut SandboxRules) {
        let files =
            [&self.tls.certificate, &self.tls.key, &self.client_certificate, &self.client_key];
        for file in files {
            rules.read(folder_of(file));
        }
        rules.listen(self.listener.1).connect(TcpConnections::Any);
        for address in &self.metrics {
            rules.listen(address.port());
        }
    }

    /// Adds what the cluster says: the configuration of its client is in `flags` and `env`. Waits
    /// for the first TLS profile.
    pub(super) async fn into_config(
        this: Result<Self, String>,
        flags: &KlogFlags,
        env: &dyn NamedStrings,
    ) -> Result<Config, String> {
        let cluster = cluster::client_config(flags, env).await;
        let cluster = cluster.map_err(|error| format!("Unable to get kube config: {error}"))?;
        let no_client = |error: kube::Error| format!("Unable to get kube client: {error}");
        let client = api::api_client(with_timeouts(cluster.clone())).map_err(no_client)?;
        let watching = api::watch_client(cluster).map_err(no_client)?;
        let settings = this?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &settings.namespace);
        let identity = ProxyIdentity::new(
            settings.client_certificate,
            settings.client_key,
            AuthorityBundle::ConfigMap(Box::new(maps), settings.bundle),
        );
        Ok(Config {
            address: settings.listener.0,
            port: settings.listener.1,
            tls: settings.tls,
            // This waits for the first profile. Without it, a client could connect with ciphers
            // that the cluster forbids.
            profile: profile::follow_profile(watching).await,
            verifier: settings.verifier,
            volumes: ClaimDirectory::Cluster(ClusterClaims::new(client)),
            identity,
            dial: settings.dial,
            allowed: settings.allowed,
            metrics: settings.metrics,
        })
    }
}

/// Returns the folder of `file`, or the file itself in the root and the current folder.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| folder.parent().is_some()).unwrap_or(file)
}

/// Sets timeouts for requests that are answered at once, so that a connection that has silently
/// died is detected and replaced. A watch uses a separate connection, on which silence is normal.
fn with_timeouts(mut config: kube::Config) -> kube::Config {
    config.connect_timeout = Some(API_PATIENCE);
    config.read_timeout = Some(API_PATIENCE);
    config.write_timeout = Some(API_PATIENCE);
    // Without this, the time between two requests on a connection would count as silence.
    config.reset_reader_on_write = true;
    config
}

fn own_namespace(paths: &PodPaths) -> String {
    let file = paths.resolve_path(ACCOUNT).join("namespace");
    let written = std::fs::read_to_string(file).unwrap_or_default();
    match written.trim() {
        "" => NAMESPACE.to_owned(),
        namespace => namespace.to_owned(),
    }
}

fn or_default<T>(
    reader: &mut EnvReader<'_>,
    (name, default): (&str, &str),
    parse: impl Fn(&str) -> Result<T, String>,
) -> T
where
    T: Default,
{
    let given = reader.read_parsed(name, &parse);
    given.unwrap_or_else(|| parse(default).unwrap_or_default())
}

fn read_number<T: FromStr>(reader: &mut EnvReader<'_>, name: &str) -> Option<T> {
    reader.read_parsed(name, |text| {
        text.parse().map_err(|_| format!("{text:?} is not a whole number of at least 1"))
    })
}

/// Parses `ADDRESS:PORT` for the metrics endpoint. An empty address means all addresses, and `off`
/// disables the endpoint.
pub(crate) fn metrics_addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    if text == "off" {
        return Ok(Vec::new());
    }
    let (address, port) = values::listen(text)?;
    if address.is_empty() {
        return Ok(metrics::all_interfaces(port));
    }
    let ip: IpAddr = address.parse().map_err(|_| format!("{address:?} is not an IP address"))?;
    Ok(vec![SocketAddr::new(ip, port)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_option_is_an_address_or_off() {
        assert_eq!(metrics_addresses("off"), Ok(Vec::new()));
        assert_eq!(metrics_addresses(":9").unwrap().len(), 2);
        assert_eq!(metrics_addresses("[::1]:9").unwrap(), ["[::1]:9".parse().unwrap()]);
        for text in ["", "localhost:9", "127.0.0.1"] {
            metrics_addresses(text).unwrap_err();
        }
    }

    #[test]
    fn the_namespace_is_that_of_the_pod_or_cdi() {
        let dir = tempfile::tempdir().unwrap();
        let paths = PodPaths::from_prefix(dir.path().to_str());
        assert_eq!(own_namespace(&paths), "cdi");
        let file = paths.resolve_path(ACCOUNT).join("namespace");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "other\n").unwrap();
        assert_eq!(own_namespace(&paths), "other");
    }
}
