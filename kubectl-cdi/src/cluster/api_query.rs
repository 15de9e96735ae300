//! A request to the API server: a verb on a resource, its path, and the error to report if it is
//! rejected.

use program::names::is_subdomain;
use serde_json::Value;
use stream::memory::MemoryBudget;

use super::error::{
    busy_server, denied, exceeded_quota, no_cdi, not_found, not_kubernetes, refused_object,
};
use super::json;
use super::object;
use super::resource::{RbacVerb, ResourceKind};
use crate::error::{PluginError, PluginErrorKind};

/// Memory limit for a parsed `Status` object, which holds a few sentences and names.
const MAX_STATUS_BYTES: u64 = 1 << 20;

/// The parts of a request. The first four appear in its path and in its error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApiQuery<'a> {
    pub(crate) verb: RbacVerb,
    pub(crate) resource: ResourceKind,
    /// The namespace; empty for a list of objects in all namespaces.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The query of the URL.
    pub(crate) parameters: &'a str,
    pub(crate) body: Option<&'a Value>,
}

impl ApiQuery<'_> {
    /// Returns the path of the request. The name is validated first, because it may come from the
    /// API server, or from annotations that other users have written.
    pub(crate) fn request_path(&self) -> Result<String, PluginError> {
        let ResourceKind { group, version, plural, is_namespaced, suffix, .. } = self.resource;
        let root = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let namespace = if is_namespaced && !self.namespace.is_empty() {
            format!("/namespaces/{}", self.namespace)
        } else {
            String::new()
        };
        let name = match self.verb {
            RbacVerb::Get | RbacVerb::Patch | RbacVerb::Delete if !is_subdomain(self.name) => {
                return Err(PluginError::target(format!(
                    "{:?} cannot be the name of a Kubernetes object: use small letters, digits, - and .",
                    object::printable_line(self.name)
                )));
            }
            RbacVerb::Get | RbacVerb::Patch | RbacVerb::Delete => {
                format!("/{}{suffix}", self.name)
            }
            RbacVerb::List | RbacVerb::Create => String::new(),
        };
        Ok(format!("{root}{namespace}/{plural}{name}"))
    }

    /// Returns the object in the notation of users, such as `dv/NAME`.
    fn object_name(&self) -> String {
        format!("{}/{}", self.resource.short, self.name)
    }

    /// Converts an unsuccessful response into an error.
    pub(crate) fn response_error(&self, host: &str, code: u16, body: &[u8]) -> PluginError {
        let mut memory = MemoryBudget::new(MAX_STATUS_BYTES).empty_grant();
        let status = json::parse(body, &mut memory).unwrap_or_default();
        let is_status = object::text_at(&status, "/kind") == Some("Status");
        let words = object::text_at(&status, "/message")
            .map_or_else(|| String::from_utf8_lossy(body), Into::into);
        let words = object::printable_line(&words);
        match code {
            401 => PluginError::target(format!(
                "the API server at {host} rejected your credentials (401): log in again, or choose another user with --context"
            )),
            // Rejections by quotas, RBAC and admission have the same status and reason, so only
            // the message distinguishes them.
            403 if words.contains("quota") => exceeded_quota(&words),
            // This text is part of RBAC's message. All other responses with status 403 are
            // rejections by admission.
            403 if words.contains("is forbidden: User ") => {
                let namespace = if self.resource.is_namespaced { self.namespace } else { "" };
                denied(self.verb.name(), &self.resource.to_string(), namespace)
            }
            404 if object::text_at(&status, "/details/kind") == Some("namespaces") => {
                let namespace = self.namespace;
                PluginError::target(format!("namespace {namespace} not found: check --namespace"))
            }
            // If the response is not a `Status` object, the API server does not serve the path.
            // Only CDI's paths can be missing in a Kubernetes API server.
            404 if !is_status && self.resource.is_of_cdi() => no_cdi(),
            404 if !is_status => not_kubernetes(host, "it answers 404 without a Status object"),
            404 => not_found(&self.object_name(), self.namespace),
            409 if object::text_at(&status, "/reason") == Some("AlreadyExists") => {
                let object = self.object_name();
                PluginError::target(format!(
                    "{object} already exists: give --no-create to fill it, or choose another name"
                ))
            }
            409 if object::text_at(&status, "/reason") == Some("Conflict")
                && self.verb == RbacVerb::Patch =>
            {
                let (object, namespace) = (self.object_name(), self.namespace);
                let words = format!(
                    "another program has just changed {object} in namespace {namespace}, so this one did not: run the command again"
                );
                PluginError::of_kind(PluginErrorKind::Changed, words)
            }
            429 | 500.. => busy_server(host, &words),
            _ => refused_object(&self.object_name(), &words),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(verb: RbacVerb, resource: ResourceKind) -> ApiQuery<'static> {
        ApiQuery { verb, resource, namespace: "vms", name: "disk", parameters: "", body: None }
    }

    #[test]
    fn paths_are_those_of_the_kubernetes_api() {
        for (verb, resource, path) in [
            (
                RbacVerb::Get,
                ResourceKind::CLAIMS,
                "/api/v1/namespaces/vms/persistentvolumeclaims/disk",
            ),
            (RbacVerb::List, ResourceKind::EVENTS, "/api/v1/namespaces/vms/events"),
            (
                RbacVerb::Create,
                ResourceKind::DATA_VOLUMES,
                "/apis/cdi.kubevirt.io/v1beta1/namespaces/vms/datavolumes",
            ),
            (
                RbacVerb::Get,
                ResourceKind::CDI_CONFIGS,
                "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/disk",
            ),
            (
                RbacVerb::Create,
                ResourceKind::TOKENS,
                "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/vms/uploadtokenrequests",
            ),
        ] {
            assert_eq!(question(verb, resource).request_path().unwrap(), path);
        }
    }

    fn sentence(verb: RbacVerb, resource: ResourceKind, code: u16, body: &Value) -> String {
        let body = body.to_string();
        question(verb, resource)
            .response_error("example.org:6443", code, body.as_bytes())
            .to_string()
    }

    #[test]
    fn refusals_name_what_was_requested() {
        let status = |message: &str| json!({"kind": "Status", "message": message});
        let rbac =
            status("datavolumes.cdi.kubevirt.io is forbidden: User \"me\" cannot create resource");
        let said = sentence(RbacVerb::Create, ResourceKind::DATA_VOLUMES, 403, &rbac);
        assert!(
            said.starts_with("you may not create datavolumes.cdi.kubevirt.io in namespace vms"),
            "{said}"
        );
        let said = sentence(RbacVerb::List, ResourceKind::STORAGE_CLASSES, 403, &rbac);
        assert!(
            said.starts_with("you may not list storageclasses.storage.k8s.io in the cluster"),
            "{said}"
        );
        let quota = status(
            "persistentvolumeclaims \"disk\" is forbidden: exceeded quota: small, requested: 2Gi",
        );
        let said = sentence(RbacVerb::Create, ResourceKind::CLAIMS, 403, &quota);
        assert!(said.contains("exceeded quota: small, requested: 2Gi"), "{said}");
        let webhook = status("admission webhook \"w\" denied the request: Missing\n\u{1b}[31msize");
        for code in [400, 403, 422] {
            let said = sentence(RbacVerb::Create, ResourceKind::DATA_VOLUMES, code, &webhook);
            assert!(said.contains("denied the request: Missing \\u{1b}[31msize"), "{said}");
        }
        let said = sentence(RbacVerb::Create, ResourceKind::CLAIMS, 500, &json!("oh"));
        assert!(said.contains("example.org:6443") && said.contains("oh"), "{said}");
    }

    #[test]
    fn a_404_means_a_missing_object_namespace_or_cdi() {
        let code = |resource, body: &[u8]| {
            question(RbacVerb::Create, resource).response_error("h", 404, body).to_string()
        };
        let page = b"404 page not found\n";
        assert!(code(ResourceKind::TOKENS, page).starts_with("CDI is not installed"));
        let object =
            br#"{"kind": "Status", "reason": "NotFound", "details": {"kind": "datavolumes"}}"#;
        assert!(code(ResourceKind::DATA_VOLUMES, object).starts_with("dv/disk not found"));
        let namespace =
            br#"{"kind": "Status", "reason": "NotFound", "details": {"kind": "namespaces"}}"#;
        assert!(code(ResourceKind::CLAIMS, namespace).starts_with("namespace vms not found"));
    }
}
