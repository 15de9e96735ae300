//! The cluster and the account, by the flags `-kubeconfig` and `-server` of all of CDI's programs.

use std::fmt;

use daemon::flags::{Flags, OwnFlag};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

const KUBECONFIG: &str = "kubeconfig";
const SERVER: &str = "server";

/// The variable that is asked when the flag is not given.
const KUBECONFIG_VARIABLE: &str = "KUBECONFIG";

/// The flags themselves.
pub const FLAGS: [OwnFlag; 2] = [
    OwnFlag {
        name: KUBECONFIG,
        purpose: "path of a kubeconfig; only needed outside of a cluster",
    },
    OwnFlag {
        name: SERVER,
        purpose: "address of the Kubernetes API server; overrides the one in the kubeconfig",
    },
];

/// No way to a cluster, in a sentence.
#[derive(Debug)]
pub struct NoCluster(String);

impl fmt::Display for NoCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoCluster {}

/// The configuration of the cluster's client, in which nothing is found twice: the flags, the environment, the pod.
pub async fn config(flags: &Flags, env: &dyn daemon::env::Strings) -> Result<Config, NoCluster> {
    let complain = |error: &dyn fmt::Display| NoCluster(error.to_string());
    let given = |name| flags.own(name).map(str::to_owned);
    let file = given(KUBECONFIG).or_else(|| env.get(KUBECONFIG_VARIABLE));
    let server = flags.own(SERVER).filter(|server| !server.is_empty());
    let mut config = match (file.filter(|file| !file.is_empty()), server) {
        (Some(file), _) => {
            let read = Kubeconfig::read_from(file).map_err(|error| complain(&error))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .map_err(|error| complain(&error))?
        }
        (None, None) => Config::incluster().map_err(|error| complain(&error))?,
        (None, Some(server)) => Config::new(server.parse().map_err(|error| complain(&error))?),
    };
    if let Some(server) = server {
        config.cluster_url = server.parse().map_err(|error| complain(&error))?;
    }
    Ok(config)
}
