//! CDI's operator: its Deployment, its variables, and the object that holds them.

use serde_json::Value;

use super::ImagesGoal;
use super::owner::OperatorOwner;
use super::record::{HeldVariables, main_container};
use crate::cluster::config::CDI_NAMESPACE;
use crate::cluster::error::no_cdi;
use crate::cluster::object::{printable_line, text_at};
use crate::cluster::resource::ResourceKind;
use crate::cluster::{Cluster, check_namespace};
use crate::error::{PluginError, PluginErrorKind};

/// The name of the operator's Deployment, and of its container.
pub(super) const OPERATOR: &str = "cdi-operator";

/// The operator of CDI in a cluster.
pub struct CdiOperator {
    /// A client for the operator's namespace.
    pub(super) cluster: Cluster,
    pub(super) deployment: Value,
    pub(super) owner: OperatorOwner,
}

impl CdiOperator {
    /// Finds the operator, in all namespaces if none is given.
    pub async fn find(cluster: &Cluster, namespace: Option<&str>) -> Result<Self, PluginError> {
        let found = match namespace {
            Some(namespace) => deployment_in(cluster, namespace).await?,
            None => {
                let all = cluster.clone().in_all_namespaces();
                let selector = Some(("fieldSelector", "metadata.name=cdi-operator"));
                match all.list_objects(ResourceKind::DEPLOYMENTS, selector).await {
                    // Users without rights in the whole cluster may have them where CDI usually is.
                    Err(error) if error.kind == PluginErrorKind::Denied => {
                        let usual = deployment_in(cluster, CDI_NAMESPACE).await;
                        usual.ok().filter(|found| !found.is_empty()).ok_or(error)?
                    }
                    found => found?,
                }
            }
        };
        let [deployment] = found.as_slice() else {
            let namespaces = found.iter().filter_map(|it| text_at(it, "/metadata/namespace"));
            let namespaces: Vec<String> = namespaces.map(printable_line).collect();
            return Err(match namespace {
                Some(namespace) => PluginError::target(format!(
                    "deployment/{OPERATOR} not found in namespace {namespace}: check --operator-namespace"
                )),
                None if found.is_empty() => no_cdi(),
                None => PluginError::usage(format!(
                    "several namespaces have a deployment {OPERATOR}: choose one with --operator-namespace: {}",
                    namespaces.join(", ")
                )),
            });
        };
        let namespace = text_at(deployment, "/metadata/namespace").unwrap_or_default();
        let (cluster, deployment) = (client_in(cluster, namespace)?, deployment.clone());
        let owner = OperatorOwner::find(&cluster, &deployment).await?;
        Ok(Self { cluster, deployment, owner })
    }

    /// Returns the object that holds the variables, as it was read first.
    pub(super) fn holder(&self) -> (ResourceKind, &Value) {
        match &self.owner {
            OperatorOwner::Subscription(object) => (ResourceKind::SUBSCRIPTIONS, object),
            _ => (ResourceKind::DEPLOYMENTS, &self.deployment),
        }
    }

    /// Returns the lines with which the owner reaches `goal`. `None` if a change of the operator is
    /// not undone.
    pub fn recipe(&self, goal: &ImagesGoal) -> Option<String> {
        self.owner.recipe(goal)
    }

    /// Returns the variables in `object`, a newer version of the holder.
    pub(super) fn variables<'a>(&self, object: &'a Value) -> HeldVariables<'a> {
        let is_deployment = self.holder().0 == ResourceKind::DEPLOYMENTS;
        HeldVariables::new(object, is_deployment.then(|| main_container(object)))
    }
}

async fn deployment_in(cluster: &Cluster, namespace: &str) -> Result<Vec<Value>, PluginError> {
    let cluster = client_in(cluster, namespace)?;
    Ok(cluster.get_object(ResourceKind::DEPLOYMENTS, OPERATOR).await?.into_iter().collect())
}

/// Returns a client for a namespace, whose name is validated, because it becomes part of a path.
fn client_in(cluster: &Cluster, namespace: &str) -> Result<Cluster, PluginError> {
    check_namespace(namespace, "--operator-namespace")?;
    Ok(cluster.in_namespace(namespace))
}
