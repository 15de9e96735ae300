//! DataVolumes and their claims, to which nothing happens but what a test does in the place of CDI's controllers.

use serde_json::{Value, json};

use super::Cluster;
use super::cdi::CDI_CONFIG;

impl Cluster {
    /// Makes DataVolume known.
    #[track_caller]
    pub fn install_data_volumes(&self) {
        self.define("DataVolume", "Namespaced");
    }

    /// Makes a DataVolume with this source, such as `{"upload": {}}`.
    #[track_caller]
    pub fn create_data_volume(&self, namespace: &str, name: &str, source: &Value) {
        let path = data_volume_path(namespace, "");
        self.create(
            path.trim_end_matches('/'),
            &json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1",
                "kind": "DataVolume",
                "metadata": {"name": name},
                "spec": {"source": source, "storage": {"resources": {"requests": {"storage": "1Gi"}}}},
            }),
        );
    }

    /// A DataVolume.
    #[track_caller]
    pub fn data_volume(&self, namespace: &str, name: &str) -> Value {
        self.get(&data_volume_path(namespace, name))
    }

    /// Sets fields of a DataVolume's status, such as `{"phase": "UploadReady"}`.
    #[track_caller]
    pub fn set_data_volume_status(&self, namespace: &str, name: &str, status: &Value) {
        self.patch(&data_volume_path(namespace, name), &json!({"status": status}));
    }

    /// Sets what a claim is bound to and how large that is, as the controller of volumes does it.
    #[track_caller]
    pub fn bind_pvc(&self, namespace: &str, name: &str, size: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}/status");
        self.patch(
            &path,
            &json!({"status": {"phase": "Bound", "capacity": {"storage": size}}}),
        );
    }

    /// Sets fields of `status` of CDIConfig, such as `{"uploadProxyURL": "proxy.example.org"}`.
    #[track_caller]
    pub fn set_cdi_config_status(&self, status: &Value) {
        self.patch(CDI_CONFIG, &json!({"status": status}));
    }
}

fn data_volume_path(namespace: &str, name: &str) -> String {
    format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/datavolumes/{name}")
}
