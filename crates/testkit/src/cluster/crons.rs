//! DataImportCrons, as far as the program that polls their sources uses them.

use serde_json::{Value, json};

use super::Cluster;
use super::cdi::{ANNOTATION_PREFIX, CDI_NAMESPACE};

/// The name of the ServiceAccount of CDI's cron jobs, and of its role.
pub const CRON_ACCOUNT: &str = "cdi-cronjob";

impl Cluster {
    /// Makes the namespace `cdi`, the kind DataImportCron, and a ServiceAccount that may do to
    /// DataImportCrons what all releases of CDI permit. Waits until all of them take effect.
    #[track_caller]
    pub fn install_data_import_crons(&self) {
        self.create_namespace(CDI_NAMESPACE);
        self.define("DataImportCron", "Namespaced");
        let path = format!("/api/v1/namespaces/{CDI_NAMESPACE}/serviceaccounts/{CRON_ACCOUNT}");
        self.apply(
            &path,
            &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": CRON_ACCOUNT}}),
        );
        let account =
            json!({"kind": "ServiceAccount", "name": CRON_ACCOUNT, "namespace": CDI_NAMESPACE});
        let (group, resource) = ("cdi.kubevirt.io", "dataimportcrons");
        let verbs = ["get", "list", "update"];
        let crons = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        self.grant(None, CRON_ACCOUNT, &crons, &account);
        for verb in verbs {
            self.wait_for(&format!("{CRON_ACCOUNT} may {verb} {resource}"), || {
                self.may(CRON_ACCOUNT, group, resource, verb)
            });
        }
    }

    /// Makes a DataImportCron with these annotations. With `None` the object has no annotation
    /// map.
    #[track_caller]
    pub fn create_data_import_cron(
        &self,
        namespace: &str,
        name: &str,
        annotations: Option<&Value>,
    ) {
        let mut cron = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataImportCron",
            "metadata": {"name": name},
            "spec": {"schedule": "0 0 * * *", "managedDataSource": name},
        });
        if let Some(annotations) = annotations {
            cron["metadata"]["annotations"] = annotations.clone();
        }
        let path = cron_path(namespace, "");
        self.create(path.trim_end_matches('/'), &cron);
    }

    /// Returns an annotation of a DataImportCron; CDI's prefix is added to its name.
    #[track_caller]
    pub fn cron_annotation(&self, namespace: &str, name: &str, annotation: &str) -> Option<String> {
        let cron = self.get(&cron_path(namespace, name));
        let value = &cron["metadata"]["annotations"][format!("{ANNOTATION_PREFIX}{annotation}")];
        value.as_str().map(str::to_owned)
    }
}

fn cron_path(namespace: &str, name: &str) -> String {
    format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/dataimportcrons/{name}")
}
