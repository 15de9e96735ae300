//! Users of the API server who have exactly the rights that a test gives them.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::Cluster;
use super::servers::ADMIN_TOKEN;

/// A right: an API group, one of its resources, and the allowed verbs.
pub type Right<'a> = (&'a str, &'a str, &'a [&'a str]);

impl Cluster {
    /// Writes a kubeconfig of the administrator, whom RBAC allows everything.
    pub fn administrator(&self) -> PathBuf {
        self.kubeconfig_for(ADMIN_TOKEN)
    }

    /// Makes a ServiceAccount with these rights in the whole cluster and writes a kubeconfig for
    /// it. Waits until the rights take effect.
    #[track_caller]
    pub fn user(&self, name: &str, rights: &[Right<'_>]) -> PathBuf {
        let namespace = "default";
        self.create_namespace(namespace);
        self.apply(
            &format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}"),
            &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}),
        );
        let account = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        for (number, (group, resource, verbs)) in rights.iter().enumerate() {
            let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
            self.grant(None, &format!("{name}-{number}"), &rule, &account);
        }
        let user = format!("system:serviceaccount:{namespace}:{name}");
        for (group, resource, verbs) in rights {
            for verb in *verbs {
                self.wait_for(&format!("{name} may {verb} {resource}"), || {
                    let what =
                        json!({"namespace": namespace, "group": group, "resource": resource, "verb": verb});
                    self.lets(&user, &what)
                });
            }
        }
        self.service_account(namespace, name)
    }

    /// Asks the API server's authorizer whether `user` may do `what`.
    #[track_caller]
    fn lets(&self, user: &str, what: &Value) -> bool {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": what},
        });
        let answer = self.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review);
        answer["status"]["allowed"] == json!(true)
    }
}
