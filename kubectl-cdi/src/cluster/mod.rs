//! The cluster: everything that is asked of the API server, with the rights of who runs the program and no others.
//!
//! ```text
//!  target   what people write: dv/NAME, pvc/NAME
//!  size ─► volume    how large a claim must be, and the object that is made, with the source of an `import`
//!  look ─► wait      what is there, and what it still waits for (`waiting`, from `pods`)
//!       ├► follow    an import until its end; `final_reason` tells which failures no retry changes
//!       └► status    one screen, with a rate
//!  config, token     where the upload proxy is, and what it lets in
//!  ask  ─► question  every request, and what is said when it fails; `resource` is what can be asked for
//!       └► json      what is answered, in bounded memory
//! ```

mod api_query;
mod ask;
pub mod config;
pub mod destination;
pub mod error;
mod final_reason;
pub mod follow;
mod import;
mod import_progress;
mod json;
pub mod look;
mod mode;
pub mod names;
mod object;
mod pods;
mod rate;
mod resource;
pub mod size;
pub mod status;
pub mod token;
mod uid;
pub mod volume;
pub mod wait;
mod waiting;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use program::env::{NamedStrings, ProcessEnv};

pub use config::CdiConfig;
pub use destination::{VolumeTarget, VolumeTargetKind};
pub use error::ClusterError;
pub use import::{ClusterImport, ImportError};
pub use import_progress::ImportProgress;
pub use look::TargetObjects;
pub use mode::{VolumeMode, parse_access_mode};
pub(crate) use object::printable_line;
pub use status::StatusRow;
pub use token::UploadToken;
pub use uid::ObjectUid;
pub use volume::{ContentSource, WantedVolume};
pub use waiting::WaitReason;

/// Longest silence of the API server. It answers in milliseconds, and in seconds where a webhook or an aggregated API is slow: the API
/// server itself gives those 30 s at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// The way to a cluster, as a command line says it.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// A kubeconfig; without one, the files of `KUBECONFIG`, `~/.kube/config`, or the ServiceAccount of the pod around.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig instead of its current one.
    pub context: Option<String>,
    /// A namespace instead of the context's.
    pub namespace: Option<String>,
}

/// A cluster, seen from one namespace.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    /// Host and port of the API server, for sentences.
    host: String,
    /// Empty for all.
    namespace: String,
}

impl Cluster {
    /// Prepares the way to the cluster; an exec plugin logs in here. The API server is not asked yet.
    pub async fn connect(reach: &ClusterOptions) -> Result<Self, ClusterError> {
        let mut config = load_configuration(reach).await?;
        config.connect_timeout = Some(PATIENCE);
        config.read_timeout = Some(PATIENCE);
        config.write_timeout = Some(PATIENCE);
        // Who waits asks again by itself. kube would ask a server that is too busy for longer than our patience, and its words were lost.
        config.default_retry = false;
        let namespace = reach.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        if !program::names::is_label(&namespace) {
            return Err(ClusterError::Namespace(namespace));
        }
        // Not the authority, which may hold a password.
        let host = config.cluster_url.host().unwrap_or_default();
        let host = match config.cluster_url.port_u16() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let client =
            program::cluster::client(config).map_err(|error| ClusterError::from_request(&host, error))?;
        let client = client.build();
        Ok(Self { client, host, namespace })
    }

    /// The same cluster, seen from all namespaces: for lists.
    pub fn in_all_namespaces(mut self) -> Self {
        self.namespace.clear();
        self
    }

    /// The namespace of everything that is asked for; empty for all.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

async fn load_configuration(reach: &ClusterOptions) -> Result<Config, ClusterError> {
    let options = KubeConfigOptions { context: reach.context.clone(), ..KubeConfigOptions::default() };
    let read = match &reach.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let configured = match read {
        Ok(read) => {
            let known: Vec<_> = read.contexts.iter().map(|context| context.name.clone()).collect();
            let configured = Config::from_custom_kubeconfig(read, &options).await;
            if let Err(KubeconfigError::LoadContext(name)) = &configured {
                return Err(ClusterError::no_context(name, &kubeconfig_name(reach), &known));
            }
            configured
        }
        Err(error) => Err(error),
    };
    match configured {
        // As kubectl: in a pod there is no file.
        Err(error) if is_absent(&error) && reach.kubeconfig.is_none() && reach.context.is_none() => {
            Config::incluster().map_err(|_| ClusterError::from_kubeconfig(&error))
        }
        configured => configured.map_err(|error| ClusterError::from_kubeconfig(&error)),
    }
}

/// The file, or the files, that the kubeconfig comes from.
fn kubeconfig_name(reach: &ClusterOptions) -> String {
    let given = reach.kubeconfig.as_ref().map(|path| path.display().to_string());
    given.or_else(|| ProcessEnv.get("KUBECONFIG")).unwrap_or_else(|| "~/.kube/config".to_owned())
}

fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(cause, _) => cause.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}
