//! Access to the cluster. All requests to the API server are sent with the permissions of the user
//! who runs the program.
//!
//! An arrow leads from a module to a module that it uses.
//!
//! ```text
//!  destination          parses targets as users write them: dv/NAME, pvc/NAME
//!  volume ─► size       creates the object; computes a claim's size
//!  follow ─► wait       follows an import; waits for CDI and reports its reason to wait
//!  wait   ─► look       reads the current objects; `final_reason` lists permanent failures
//!  status ─► look       makes the table of volumes, with rates
//!  claim, reader        find the claim of a download, and run the pod that reads it
//!  trial  ─► wait       imports an image with CDI's importer and with ours, and compares
//!  config, token        find the address of the upload proxy, and request tokens that it accepts
//!  images               shows and changes the images that CDI's operator uses
//!  ask    ─► api_query  sends every request and builds the error for a refusal; `resource` lists
//!     │                 the kinds of objects
//!     └────► json       parses the response in bounded memory
//! ```

mod api_query;
mod ask;
mod claim;
pub mod config;
pub mod destination;
mod error;
mod final_reason;
pub mod follow;
pub mod images;
mod import;
mod import_progress;
mod json;
pub mod look;
mod mode;
pub mod names;
mod object;
mod pods;
mod rate;
mod reader;
mod resource;
pub mod size;
pub mod status;
pub mod token;
mod trial;
mod uid;
pub mod volume;
pub mod wait;
mod waiting;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use program::env::{NamedStrings, ProcessEnv};

pub use claim::DownloadSource;
pub use config::{CdiConfig, is_our_image};
pub use destination::{VolumeTarget, VolumeTargetKind};
pub use import::{ClusterImport, parse_endpoint};
pub use import_progress::ImportProgress;
pub use look::TargetObjects;
pub use mode::{VolumeMode, parse_access_mode};
pub(crate) use object::printable_line;
pub(crate) use reader::random_word;
pub use reader::{ReadableClaim, ReaderPod, ReaderState};
pub use status::StatusRow;
pub use trial::{ImportCost, ImportTrial, TrialReport};
pub use uid::ObjectUid;
pub use volume::{ContentSource, VolumeOptions, WantedVolume};
pub use wait::WaitGoal;
pub use waiting::WaitReason;

use self::error::{kubeconfig_error, no_context, request_error};
use crate::error::PluginError;

/// Time limit for the API server's response. It responds within milliseconds, or within seconds if
/// a webhook or an aggregated API is slow; the API server itself waits for those at most 30 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Options that select the cluster and the namespace.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterOptions {
    /// Kubeconfig file [default: the files of KUBECONFIG, or ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,

    /// Namespace [default: the namespace of the context]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// A client for one namespace of a cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    /// Host and port of the API server, for messages.
    host: String,
    /// The namespace of all requests; empty for all namespaces.
    namespace: String,
}

impl Cluster {
    /// Creates the client. Credentials are obtained here, including those from an exec plugin, but
    /// no request is sent to the API server yet.
    pub async fn connect(reach: &ClusterOptions) -> Result<Self, PluginError> {
        let mut config = load_configuration(reach).await?;
        config.connect_timeout = Some(ANSWER_LIMIT);
        config.read_timeout = Some(ANSWER_LIMIT);
        config.write_timeout = Some(ANSWER_LIMIT);
        // Callers that wait do their own retries. kube would retry beyond ANSWER_LIMIT if the
        // server is overloaded, and the server's message would be lost.
        config.default_retry = false;
        let namespace = reach.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        check_namespace(&namespace, "--namespace")?;
        // The name is built from host and port, because the authority part of the URL may contain
        // a password.
        let host = config.cluster_url.host().unwrap_or_default();
        let host = match config.cluster_url.port_u16() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let client =
            program::cluster::client(config).map_err(|error| request_error(&host, error))?;
        let client = client.build();
        Ok(Self { client, host, namespace })
    }

    /// Returns a client for all namespaces, which can only list objects.
    pub fn in_all_namespaces(mut self) -> Self {
        self.namespace.clear();
        self
    }

    /// Returns a client for another namespace, whose name must be valid.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self.clone() }
    }

    /// Returns the namespace of the requests; it is empty for all namespaces.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// Fails if a namespace has a name that is not valid in Kubernetes. The error names `option`.
pub(crate) fn check_namespace(name: &str, option: &str) -> Result<(), PluginError> {
    if program::names::is_label(name) {
        return Ok(());
    }
    Err(PluginError::usage(format!("{name:?} cannot be the name of a namespace: check {option}")))
}

async fn load_configuration(reach: &ClusterOptions) -> Result<Config, PluginError> {
    let options =
        KubeConfigOptions { context: reach.context.clone(), ..KubeConfigOptions::default() };
    let read = match &reach.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let configured = match read {
        Ok(read) => {
            let known: Vec<_> = read.contexts.iter().map(|context| context.name.clone()).collect();
            let configured = Config::from_custom_kubeconfig(read, &options).await;
            if let Err(KubeconfigError::LoadContext(name)) = &configured {
                return Err(no_context(name, &kubeconfig_name(reach), &known));
            }
            configured
        }
        Err(error) => Err(error),
    };
    match configured {
        // Like kubectl, this uses the ServiceAccount of the pod if there is neither a kubeconfig
        // nor an option that needs one.
        Err(error)
            if is_absent(&error) && reach.kubeconfig.is_none() && reach.context.is_none() =>
        {
            Config::incluster().map_err(|_| kubeconfig_error(&error))
        }
        configured => configured.map_err(|error| kubeconfig_error(&error)),
    }
}

/// Returns the names of the kubeconfig files, for messages.
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
