//! The kinds of objects that this program uses, and the RBAC verbs on them.

use std::fmt;

use http::Method;

/// The API group of CDI.
pub(crate) const CDI: &str = "cdi.kubevirt.io";

/// A kind of object in the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceKind {
    /// Short name of the kind, which precedes the object's name in messages.
    pub(super) short: &'static str,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) is_namespaced: bool,
    /// The part of the path after the name.
    pub(super) suffix: &'static str,
}

impl ResourceKind {
    pub(crate) const DATA_VOLUMES: Self = Self::new("dv", CDI, "v1beta1", "datavolumes");
    pub(crate) const CLAIMS: Self = Self::new("pvc", "", "v1", "persistentvolumeclaims");
    pub(crate) const PODS: Self = Self::new("pod", "", "v1", "pods");
    pub(crate) const EVENTS: Self = Self::new("event", "", "v1", "events");
    pub(crate) const DEPLOYMENTS: Self = Self::new("deployment", "apps", "v1", "deployments");
    pub(crate) const SUBSCRIPTIONS: Self =
        Self::new("subscription", "operators.coreos.com", "v1alpha1", "subscriptions");
    pub(crate) const MACHINES: Self = Self::new("vm", "kubevirt.io", "v1", "virtualmachines");
    pub(crate) const TOKENS: Self =
        Self::new("token", "upload.cdi.kubevirt.io", "v1beta1", "uploadtokenrequests");
    pub(crate) const NAMESPACES: Self = Self::new("namespace", "", "v1", "namespaces").global();
    pub(crate) const REVIEWS: Self =
        Self::new("review", "authorization.k8s.io", "v1", "selfsubjectaccessreviews").global();
    pub(crate) const CDI_CONFIGS: Self =
        Self::new("cdiconfig", CDI, "v1beta1", "cdiconfigs").global();
    pub(crate) const STORAGE_CLASSES: Self =
        Self::new("storageclass", "storage.k8s.io", "v1", "storageclasses").global();
    /// The CPU and memory of pods, from a metrics server.
    pub(crate) const POD_METRICS: Self = Self::new("pod", "metrics.k8s.io", "v1beta1", "pods");
    /// The same for all pods of a node, from its kubelet.
    pub(crate) const NODE_SUMMARIES: Self =
        Self { suffix: "/proxy/stats/summary", ..Self::new("node", "", "v1", "nodes").global() };

    const fn new(
        short: &'static str,
        group: &'static str,
        version: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { short, group, version, plural, is_namespaced: true, suffix: "" }
    }

    const fn global(self) -> Self {
        Self { is_namespaced: false, ..self }
    }

    /// Returns true if only CDI provides this kind.
    pub(crate) fn is_of_cdi(self) -> bool {
        self.group.ends_with(CDI)
    }
}

impl fmt::Display for ResourceKind {
    /// Formats the kind as it appears in RBAC rules: `datavolumes.cdi.kubevirt.io`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.plural)?;
        if self.group.is_empty() {
            return Ok(());
        }
        write!(f, ".{}", self.group)
    }
}

/// A verb in RBAC rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RbacVerb {
    Get,
    List,
    Create,
    Patch,
    Delete,
}

impl RbacVerb {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    pub(crate) fn http_method(self) -> Method {
        match self {
            Self::Get | Self::List => Method::GET,
            Self::Create => Method::POST,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }
}
