//! The objects that CDI's operator, its controllers and its users put into a cluster, as far as an
//! upload proxy uses them.

use serde_json::{Map, Value, json};

use super::Cluster;
use super::servers::ADMIN_TOKEN;

/// The namespace of CDI's own pods.
pub const CDI_NAMESPACE: &str = "cdi";

/// The name of the proxy's ServiceAccount, and of its roles.
pub const PROXY_ACCOUNT: &str = "cdi-uploadproxy";

/// The ConfigMap with the CA certificates of the upload servers.
pub const CA_BUNDLE: &str = "cdi-uploadserver-signer-bundle";

/// The prefix of CDI's annotations.
pub const ANNOTATION_PREFIX: &str = "cdi.kubevirt.io/";

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The path of the only CDIConfig.
pub const CDI_CONFIG: &str = "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

impl Cluster {
    /// Makes the namespace `cdi`, the CDIConfig `config`, and the ServiceAccount `cdi-uploadproxy`
    /// with exactly the rights that CDI's operator gives it. Waits until all of them take effect.
    #[track_caller]
    pub fn install_cdi(&self) {
        self.create_namespace(CDI_NAMESPACE);
        self.install_cdi_config();
        let path = format!("/api/v1/namespaces/{CDI_NAMESPACE}/serviceaccounts/{PROXY_ACCOUNT}");
        self.apply(
            &path,
            &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": PROXY_ACCOUNT}}),
        );
        let account =
            json!({"kind": "ServiceAccount", "name": PROXY_ACCOUNT, "namespace": CDI_NAMESPACE});
        let claims =
            json!({"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]});
        self.grant(None, PROXY_ACCOUNT, &claims, &account);
        let config_maps = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
        self.grant(Some(CDI_NAMESPACE), PROXY_ACCOUNT, &config_maps, &account);
        let everybody =
            json!({"apiGroup": RBAC_GROUP, "kind": "Group", "name": "system:authenticated"});
        let verbs = ["get", "list", "watch"];
        let configs =
            json!({"apiGroups": ["cdi.kubevirt.io"], "resources": ["cdiconfigs"], "verbs": verbs});
        self.grant(None, "cdi.kubevirt.io:config-reader", &configs, &everybody);
        for (group, resource, verb) in [
            ("", "persistentvolumeclaims", "get"),
            ("", "configmaps", "get"),
            ("cdi.kubevirt.io", "cdiconfigs", "watch"),
        ] {
            self.wait_for(&format!("{PROXY_ACCOUNT} may {verb} {resource}"), || {
                self.may(PROXY_ACCOUNT, group, resource, verb)
            });
        }
    }

    /// Sets `spec.tlsSecurityProfile` of CDIConfig, such as `{"type": "Modern", "modern": {}}`.
    /// `null` removes it.
    #[track_caller]
    pub fn set_tls_profile(&self, profile: &Value) {
        // Not a merge patch, which would keep fields of the previous profile.
        let mut config = self.get(CDI_CONFIG);
        config["spec"] = json!({"tlsSecurityProfile": profile});
        if profile.is_null() {
            config["spec"] = json!({});
        }
        self.replace(CDI_CONFIG, &config);
    }

    /// Sets the CA certificates of the upload servers in the ConfigMap `name`: [`CA_BUNDLE`], or
    /// another one for tests that run at the same time.
    #[track_caller]
    pub fn set_ca_bundle(&self, name: &str, pem: &str) {
        let path = format!("/api/v1/namespaces/{CDI_NAMESPACE}/configmaps/{name}");
        self.apply(
            &path,
            &json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name},
                "data": {"ca-bundle.crt": pem},
            }),
        );
    }

    /// Makes a claim with these annotations; CDI's prefix is added to their names.
    #[track_caller]
    pub fn create_pvc(&self, namespace: &str, name: &str, annotations: &[(&str, &str)]) {
        let annotations: Map<_, _> = annotations
            .iter()
            .map(|(name, value)| (format!("{ANNOTATION_PREFIX}{name}"), json!(value)))
            .collect();
        self.create(
            &format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims"),
            &json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }),
        );
    }

    /// Makes a claim that is ready for an upload except for `storage.pod.ready`, with these
    /// additional annotations.
    #[track_caller]
    pub fn create_upload_pvc(&self, namespace: &str, name: &str, annotations: &[(&str, &str)]) {
        let waiting = [("storage.upload.target", ""), ("storage.pod.phase", "Running")];
        self.create_pvc(namespace, name, &[&waiting, annotations].concat());
    }

    /// Sets an annotation, or removes it if there is no value. CDI's prefix is added to its name.
    #[track_caller]
    pub fn annotate_pvc(&self, namespace: &str, name: &str, annotation: &str, value: Option<&str>) {
        let annotation = format!("{ANNOTATION_PREFIX}{annotation}");
        self.patch(
            &pvc_path(namespace, name),
            &json!({"metadata": {"annotations": {annotation: value}}}),
        );
    }

    /// Defines the kind CDIConfig and makes its only object.
    #[track_caller]
    fn install_cdi_config(&self) {
        self.define("CDIConfig", "Cluster");
        self.create_cdi_config();
    }

    /// Defines a kind of CDI whose objects belong to a namespace or to the whole cluster
    /// (`scope`). Its schema accepts everything.
    #[track_caller]
    pub(super) fn define(&self, kind: &str, scope: &str) {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        self.define_with(kind, scope, &any);
    }

    /// Defines a kind of CDI with this schema, in the same way.
    #[track_caller]
    pub fn define_with(&self, kind: &str, scope: &str, schema: &Value) {
        self.define_in(("cdi.kubevirt.io", "v1beta1"), kind, scope, schema);
    }

    /// Like [`define_with`](Self::define_with), in this API group and version.
    #[track_caller]
    pub fn define_in(
        &self,
        (group, version): (&str, &str),
        kind: &str,
        scope: &str,
        schema: &Value,
    ) {
        let singular = kind.to_lowercase();
        let plural = format!("{singular}s");
        let name = format!("{plural}.{group}");
        self.apply(
            &format!("{CRDS}/{name}"),
            &json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": name},
                "spec": {
                    "group": group,
                    "scope": scope,
                    "names": {"kind": kind, "plural": plural, "singular": singular},
                    "versions": [{
                        "name": version,
                        "served": true,
                        "storage": true,
                        "schema": {"openAPIV3Schema": schema},
                    }],
                },
            }),
        );
        let collection = format!("/apis/{group}/{version}/{plural}");
        self.wait_for(&format!("{plural} are served"), || {
            self.get_as(ADMIN_TOKEN, &collection).status == 200
        });
    }

    /// Makes the only CDIConfig, without a TLS profile, unless it exists.
    #[track_caller]
    pub fn create_cdi_config(&self) {
        let config = json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig", "metadata": {"name": "config"}});
        self.apply(CDI_CONFIG, &config);
    }

    /// Makes a role with this rule and binds it to `subject`, in a namespace or, if none is given,
    /// in the whole cluster.
    #[track_caller]
    pub(super) fn grant(&self, namespace: Option<&str>, name: &str, rule: &Value, subject: &Value) {
        let (namespace, kind) = match namespace {
            Some(namespace) => (format!("/namespaces/{namespace}"), "Role"),
            None => (String::new(), "ClusterRole"),
        };
        let apply = |kind: &str, mut object: Value| {
            object["apiVersion"] = json!(format!("{RBAC_GROUP}/v1"));
            object["kind"] = json!(kind);
            object["metadata"] = json!({"name": name});
            let resource = format!("{}s", kind.to_lowercase());
            self.apply(&format!("/apis/{RBAC_GROUP}/v1{namespace}/{resource}/{name}"), &object);
        };
        apply(kind, json!({"rules": [rule]}));
        let role = json!({"apiGroup": RBAC_GROUP, "kind": kind, "name": name});
        apply(&format!("{kind}Binding"), json!({"roleRef": role, "subjects": [subject]}));
    }

    /// Asks the API server's authorizer whether an account of CDI may do this. It learns of new
    /// roles only a moment after they were written.
    #[track_caller]
    pub(super) fn may(&self, account: &str, group: &str, resource: &str, verb: &str) -> bool {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": format!("system:serviceaccount:{CDI_NAMESPACE}:{account}"),
                "groups": ["system:authenticated"],
                "resourceAttributes": {"namespace": CDI_NAMESPACE, "group": group, "resource": resource, "verb": verb},
            },
        });
        let answer = self.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review);
        answer["status"]["allowed"] == json!(true)
    }
}

/// Returns the path of a claim.
fn pvc_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "server: Kubernetes"]
    fn the_account_of_the_proxy_reads_claims_and_its_own_config_maps_and_nothing_else() {
        let cluster = Cluster::start();
        cluster.install_cdi();
        cluster.create_namespace("tenant");
        cluster.set_ca_bundle(CA_BUNDLE, "no certificate");
        cluster.create_upload_pvc("tenant", "disk", &[("storage.pod.ready", "false")]);
        cluster.annotate_pvc("tenant", "disk", "storage.pod.ready", Some("true"));
        cluster.annotate_pvc("tenant", "disk", "storage.pod.phase", None);

        let token = cluster.service_account_token(CDI_NAMESPACE, PROXY_ACCOUNT);
        let answer = cluster.get_as(&token, &pvc_path("tenant", "disk"));
        assert_eq!(answer.status, 200, "{answer:?}");
        let claim: Value = serde_json::from_slice(&answer.body).unwrap();
        let annotations = json!({"cdi.kubevirt.io/storage.upload.target": "", "cdi.kubevirt.io/storage.pod.ready": "true"});
        assert_eq!(claim["metadata"]["annotations"], annotations);

        cluster.set_tls_profile(&json!({"type": "Modern", "modern": {}}));
        cluster.set_tls_profile(&json!({"type": "Old", "old": {}}));
        let config: Value =
            serde_json::from_slice(&cluster.get_as(&token, CDI_CONFIG).body).unwrap();
        assert_eq!(config["spec"], json!({"tlsSecurityProfile": {"type": "Old", "old": {}}}));

        for (path, status) in [
            ("/api/v1/namespaces/cdi/configmaps/cdi-uploadserver-signer-bundle", 200),
            ("/api/v1/namespaces/tenant/configmaps/any", 403),
            ("/api/v1/namespaces/tenant/persistentvolumeclaims/none", 404),
            ("/api/v1/namespaces/tenant/persistentvolumeclaims", 403),
            ("/api/v1/namespaces/tenant/secrets/any", 403),
            ("/api/v1/namespaces/cdi/secrets/any", 403),
        ] {
            assert_eq!(cluster.get_as(&token, path).status, status, "{path}");
        }
        assert_eq!(cluster.get_as("nobody's token", &pvc_path("tenant", "disk")).status, 401);
    }

    #[test]
    #[ignore = "server: Kubernetes"]
    #[should_panic(expected = "404")]
    fn an_error_response_fails_the_test() {
        Cluster::start().get(&pvc_path("default", "none"));
    }
}
