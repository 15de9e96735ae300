//! DataVolumes and their claims. No controller acts on them: the test plays the part of CDI's
//! controllers.

use serde_json::{Map, Value, json};

use super::Cluster;
use super::cdi::CDI_CONFIG;

impl Cluster {
    /// Defines the kind DataVolume. The schema refuses the sources that CDI's API refuses, and
    /// drops unknown fields of sources.
    #[track_caller]
    pub fn install_data_volumes(&self) {
        let open = |properties: Value| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": properties});
        let spec = open(json!({"source": open(sources())}));
        self.define_with("DataVolume", "Namespaced", &open(json!({"spec": spec})));
    }

    /// Defines KubeVirt's kind VirtualMachine.
    #[track_caller]
    pub fn install_machines(&self) {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        self.define_in(("kubevirt.io", "v1"), "VirtualMachine", "Namespaced", &any);
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

    /// Returns a DataVolume.
    #[track_caller]
    pub fn data_volume(&self, namespace: &str, name: &str) -> Value {
        self.get(&data_volume_path(namespace, name))
    }

    /// Sets fields of a DataVolume's status, such as `{"phase": "UploadReady"}`.
    #[track_caller]
    pub fn set_data_volume_status(&self, namespace: &str, name: &str, status: &Value) {
        self.patch(&data_volume_path(namespace, name), &json!({"status": status}));
    }

    /// Marks a claim as bound to a volume of this size, as Kubernetes' volume controller does.
    #[track_caller]
    pub fn bind_pvc(&self, namespace: &str, name: &str, size: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}/status");
        self.patch(&path, &json!({"status": {"phase": "Bound", "capacity": {"storage": size}}}));
    }

    /// Sets fields in `status` of CDIConfig, such as `{"uploadProxyURL": "proxy.example.org"}`.
    #[track_caller]
    pub fn set_cdi_config_status(&self, status: &Value) {
        self.patch(CDI_CONFIG, &json!({"status": status}));
    }
}

/// Returns the schema of the sources that a cluster fetches itself, with the fields of CDI's API
/// and the URL syntax that its webhook requires.
fn sources() -> Value {
    // `validateSourceURL`: Go's ParseRequestURI, which refuses incomplete percent-encodings, and
    // one of three schemes; and `validateDataVolumeSourceRegistry`.
    let fetched = r"^(http|https|gs)://([^%]|%[0-9A-Fa-f]{2})+$";
    let registry = r"^(docker|oci-archive)://([^%]|%[0-9A-Fa-f]{2})+$";
    let source = |pattern: &str, fields: &[&str]| {
        let fields = fields.iter().map(|name| ((*name).to_owned(), json!({"type": "string"})));
        let mut properties: Map<_, _> = fields.collect();
        properties.insert("url".to_owned(), json!({"type": "string", "pattern": pattern}));
        json!({"type": "object", "required": ["url"], "properties": properties})
    };
    json!({
        "http": source(fetched, &["secretRef", "certConfigMap", "checksum"]),
        "s3": source(fetched, &["secretRef", "certConfigMap"]),
        "gcs": source(fetched, &["secretRef"]),
        "registry": source(registry, &["secretRef", "certConfigMap"]),
    })
}

fn data_volume_path(namespace: &str, name: &str) -> String {
    format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/datavolumes/{name}")
}
