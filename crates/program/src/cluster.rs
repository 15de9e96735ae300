//! Configures a Kubernetes client from the flags `-kubeconfig` and `-server`, which all of CDI's
//! programs accept.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::vec::IntoIter;

use crate::env::NamedStrings;
use crate::flags::{KlogFlags, OwnFlag};
use crate::sockets;
use http::{Request, Response};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tower::retry::RetryLayer;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};

const KUBECONFIG: &str = "kubeconfig";
const SERVER: &str = "server";

/// The variable that is read if the flag is not given.
const KUBECONFIG_VARIABLE: &str = "KUBECONFIG";

/// The two flags.
pub const FLAGS: [OwnFlag; 2] = [
    OwnFlag { name: KUBECONFIG, purpose: "path of a kubeconfig; only needed outside of a cluster" },
    OwnFlag {
        name: SERVER,
        purpose: "address of the Kubernetes API server; overrides the one in the kubeconfig",
    },
];

/// The HTTP service below a Kubernetes client.
pub type ClusterService = BoxService<Request<Body>, Response<hyper::body::Incoming>, BoxError>;

/// Builds a client for `config`. It differs from kube's own client only in name resolution: hyper
/// would use one of tokio's blocking threads for it, and would wait forever or panic if tokio
/// cannot start one.
pub fn client(config: Config) -> Result<ClientBuilder<ClusterService>, kube::Error> {
    if config.proxy_url.is_some() {
        // kube is built without proxy support; this call returns its error.
        ClientBuilder::try_from(config.clone())?;
    }
    let mut connector = HttpConnector::new_with_resolver(service_fn(resolve_name));
    // Without this, the connector rejects `https` addresses; TLS is added in a layer above it.
    connector.enforce_http(false);
    let mut connector =
        TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let retry = RetryLayer::new(RetryPolicy::server_retry());
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then_some(retry))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Client::builder(TokioExecutor::new()).build(connector));
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace))
}

async fn resolve_name(name: Name) -> io::Result<IntoIter<SocketAddr>> {
    // Port 0 is a placeholder: the connector sets the actual port.
    Ok(sockets::resolve_host(name.as_str(), 0).await?.into_iter())
}

fn kubeconfig_path(flags: &KlogFlags, env: &dyn NamedStrings) -> Option<String> {
    let given = flags.own_value(KUBECONFIG).map(str::to_owned);
    given.or_else(|| env.get(KUBECONFIG_VARIABLE)).filter(|file| !file.is_empty())
}

/// Returns the kubeconfig that [`client_config`] reads, if any, and the files that it names.
pub fn config_files(flags: &KlogFlags, env: &dyn NamedStrings) -> Vec<PathBuf> {
    let Some(path) = kubeconfig_path(flags, env) else {
        return Vec::new();
    };
    let read = Kubeconfig::read_from(&path).unwrap_or_default();
    let users = read.auth_infos.into_iter().filter_map(|named| named.auth_info);
    let users = users.flat_map(|user| [user.client_certificate, user.client_key, user.token_file]);
    let clusters = read.clusters.into_iter().filter_map(|named| named.cluster);
    let named = users.flatten().chain(clusters.filter_map(|cluster| cluster.certificate_authority));
    named.chain([path]).map(PathBuf::from).collect()
}

/// Finds the cluster configuration: first from the flags, then from the environment, and finally
/// from the pod itself. The error is a message.
pub async fn client_config(flags: &KlogFlags, env: &dyn NamedStrings) -> Result<Config, String> {
    let server = flags.own_value(SERVER).filter(|server| !server.is_empty());
    let mut config = match (kubeconfig_path(flags, env), server) {
        (Some(file), _) => {
            let read = Kubeconfig::read_from(file).map_err(complain)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(read, &options).await.map_err(complain)?
        }
        (None, None) => Config::incluster().map_err(complain)?,
        (None, Some(server)) => Config::new(server.parse().map_err(complain)?),
    };
    if let Some(server) = server {
        // The flag overrides the kubeconfig, as in `BuildConfigFromFlags` of client-go, which CDI
        // uses.
        config.cluster_url = server.parse().map_err(complain)?;
    }
    Ok(config)
}

fn complain(error: impl Display) -> String {
    error.to_string()
}
