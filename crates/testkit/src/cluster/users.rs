//! People who ask the API server, with the rights that a test gives them and no others.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::Cluster;
use super::servers::ADMIN_TOKEN;

/// A right: an API group, a resource in it, and the verbs that are allowed.
pub type Right<'a> = (&'a str, &'a str, &'a [&'a str]);

impl Cluster {
    /// A kubeconfig of the administrator, whom RBAC lets do everything.
    pub fn administrator(&self) -> PathBuf {
        self.kubeconfig_for(ADMIN_TOKEN)
    }

    /// A kubeconfig of a new ServiceAccount with these rights in the whole cluster; waits until they have their effect.
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

    /// The verdict of the API server's authorizer.
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
