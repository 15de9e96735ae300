//! CDIConfig, the object in which CDI publishes its configuration for clients: the URL of the
//! upload proxy and the overhead of file systems.

use std::collections::BTreeMap;

use serde_json::Value;
use url::Url;

use super::Cluster;
use super::error::no_cdi;
use super::object::{printable_line, text_at};
use super::resource::ResourceKind;
use crate::error::PluginError;

/// The name of the only CDIConfig object.
const NAME: &str = "config";

/// The namespace of CDI, unless its operator is installed in another one.
pub(super) const CDI_NAMESPACE: &str = "cdi";

/// Annotations that mark a default storage class: the first for claims, the second for
/// DataVolumes.
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.kubevirt.io/is-default-virt-class",
];

/// The part of CDI's configuration that clients need.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CdiConfig {
    proxy_url: Option<String>,
    proxy_ca: Option<String>,
    overhead: f64,
    overheads: BTreeMap<String, f64>,
}

impl CdiConfig {
    fn from_object(config: &Value) -> Self {
        let at = |pointer| text_at(config, pointer).filter(|text| !text.is_empty());
        let overhead = |value: &Value| value.as_str().map_or(0.0, program::space::parse_overhead);
        let overheads = &config["status"]["filesystemOverhead"];
        let classes = overheads["storageClass"].as_object().into_iter().flatten();
        Self {
            proxy_url: at("/spec/uploadProxyURLOverride")
                .or_else(|| at("/status/uploadProxyURL"))
                .map(str::to_owned),
            proxy_ca: at("/status/uploadProxyCA").map(str::to_owned),
            overhead: overhead(&overheads["global"]),
            overheads: classes.map(|(class, value)| (class.clone(), overhead(value))).collect(),
        }
    }

    /// Returns the URL of the upload proxy outside of the cluster. The URL set by the
    /// administrator takes precedence over the one that CDI has found.
    pub fn proxy_url(&self) -> Result<Url, PluginError> {
        let Some(url) = &self.proxy_url else {
            return Err(PluginError::target(
                "the cluster does not publish an external address of its upload proxy: an administrator can create an Ingress or a \
                 Route for the service cdi-uploadproxy; or run `kubectl port-forward -n cdi service/cdi-uploadproxy 8443:443` and give \
                 --uploadproxy-url https://localhost:8443",
            ));
        };
        proxy_url(url).ok_or_else(|| {
            let url = printable_line(url);
            PluginError::target(format!(
                "CDIConfig says that the upload proxy is at {url:?}, which is not a host and a path of plain letters: give \
                 --uploadproxy-url"
            ))
        })
    }

    /// Returns the CA certificates (PEM) that verify the upload proxy, if CDI publishes them. They
    /// are needed if the system's root certificates are not sufficient.
    pub fn proxy_ca(&self) -> Option<&str> {
        self.proxy_ca.as_deref()
    }

    /// Returns the fraction of a volume of this class that is reserved for the file system: 0.06
    /// means 6 %.
    pub fn class_overhead(&self, storage_class: Option<&str>) -> f64 {
        let own = storage_class.and_then(|class| self.overheads.get(class));
        own.copied().unwrap_or(self.overhead)
    }
}

/// Parses the URL of an upload proxy, with HTTPS as the default scheme.
pub fn proxy_url(text: &str) -> Option<Url> {
    let url = if text.contains("://") {
        Url::parse(text)
    } else {
        Url::parse(&format!("https://{text}"))
    };
    url.ok().filter(is_plain)
}

/// Returns true if the URL contains only safe characters. This matters because users copy the
/// printed command that contains it.
fn is_plain(url: &Url) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/%[]".contains(&b);
    matches!(url.scheme(), "http" | "https") && url.has_host() && url.as_str().bytes().all(is_plain)
}

impl Cluster {
    /// Reads CDI's configuration from the cluster.
    pub async fn cdi_config(&self) -> Result<CdiConfig, PluginError> {
        let config = self.get_object(ResourceKind::CDI_CONFIGS, NAME).await?;
        // CDI's operator creates this object first, so if it is missing, CDI is not installed.
        Ok(CdiConfig::from_object(&config.ok_or_else(no_cdi)?))
    }

    /// Returns the image of CDI's pods that this `variable` of its controller names, such as
    /// `CLONER_IMAGE`, if CDI is in its usual namespace. Other namespaces are not searched, because
    /// their users choose the names of their Deployments.
    pub async fn worker_image(&self, variable: &str) -> Result<Option<String>, PluginError> {
        let cdi = self.in_namespace(CDI_NAMESPACE);
        let found = cdi.get_object(ResourceKind::DEPLOYMENTS, "cdi-deployment").await?;
        let env =
            found.as_ref().map(|found| &found["spec"]["template"]["spec"]["containers"][0]["env"]);
        let env = env.and_then(Value::as_array).into_iter().flatten();
        let mut images = env.filter(|known| known["name"] == variable);
        Ok(images.find_map(|known| text_at(known, "/value")).map(str::to_owned))
    }

    /// Returns true if the volumes of a class, or of the default classes, are formatted with xfs.
    /// Returns false if this is not known, or if the user may not read storage classes.
    pub async fn is_xfs(&self, class: Option<&str>) -> bool {
        let classes = match class {
            Some(class) => {
                self.get_object(ResourceKind::STORAGE_CLASSES, class).await.map(Vec::from_iter)
            }
            None => self.list_objects(ResourceKind::STORAGE_CLASSES, None).await,
        };
        let is_default = |class: &&Value| {
            let annotations = &class["metadata"]["annotations"];
            DEFAULT_CLASS.iter().any(|name| annotations[name] == "true")
        };
        let classes = classes.unwrap_or_default();
        let mut chosen = classes.iter().filter(|each| class.is_some() || is_default(each));
        chosen.any(|class| {
            let parameters = class["parameters"].as_object();
            parameters.into_iter().flatten().any(|(name, value)| {
                // The parameter is called `csi.storage.k8s.io/fstype`, or `fsType` in older
                // drivers.
                name.to_ascii_lowercase().ends_with("fstype") && value == "xfs"
            })
        })
    }
}

/// Returns true if an image shows that it is ours, given the last part of its repository, such as
/// `cdi-cloner`. Upstream's images have the same names, but another repository, and a tag that
/// begins with `v`.
pub fn is_our_image(image: &str, name: &str) -> bool {
    let (image, _digest) = image.split_once('@').unwrap_or((image, ""));
    let (path, file) = image.rsplit_once('/').unwrap_or_default();
    let (found, tag) = file.split_once(':').unwrap_or((file, ""));
    let is_version = |tag: &str| {
        let numbers: Vec<_> = tag.split('.').map(str::parse::<u32>).collect();
        numbers.len() == 3 && numbers.iter().all(Result::is_ok)
    };
    found == name && (path.split('/').any(|part| part == "cdi-workers") || is_version(tag))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_of_an_administrator_come_first() {
        let mut config = json!({"status": {
            "uploadProxyURL": "proxy.example.org",
            "uploadProxyCA": "PEM",
            "filesystemOverhead": {"global": "0.06", "storageClass": {"nfs": "0", "odd": "x"}},
        }});
        let read = CdiConfig::from_object(&config);
        assert_eq!(read.proxy_url().unwrap().as_str(), "https://proxy.example.org/");
        assert_eq!(read.proxy_ca(), Some("PEM"));
        for (class, overhead) in
            [(None, 0.06), (Some("ceph"), 0.06), (Some("nfs"), 0.0), (Some("odd"), 0.0)]
        {
            assert!((read.class_overhead(class) - overhead).abs() < 1e-9, "{class:?}");
        }
        config["spec"] = json!({"uploadProxyURLOverride": "http://override:8080/path"});
        let url = CdiConfig::from_object(&config).proxy_url().unwrap();
        assert_eq!(url.as_str(), "http://override:8080/path");
    }

    #[test]
    fn our_images_are_known_by_their_names() {
        for (image, is_ours) in [
            ("registry.example:5000/vm/cdi-cloner:0.1.0", true),
            ("registry.example/cdi-workers/cdi-cloner", true),
            ("ghcr.io/cdi-workers/cdi-cloner:v0.1.0@sha256:00", true),
            ("quay.io/kubevirt/cdi-cloner:v1.66.0", false),
            ("quay.io/kubevirt/cdi-cloner@sha256:00", false),
            ("registry:5000/cdi-cloner:latest", false),
            ("registry:5000/cdi-cloner:1.66", false),
            ("registry.example/cdi-workers/cdi-importer:0.1.0", false),
            ("cdi-cloner", false),
            ("", false),
        ] {
            assert_eq!(is_our_image(image, "cdi-cloner"), is_ours, "{image}");
        }
    }

    #[test]
    fn without_a_proxy_url_the_error_names_two_ways_to_expose_it() {
        for config in [json!({}), json!({"status": {"uploadProxyURL": ""}})] {
            let said = CdiConfig::from_object(&config).proxy_url().unwrap_err().to_string();
            assert!(said.contains("Ingress or a Route") && said.contains("port-forward"), "{said}");
        }
        for odd in ["ftp://h", "https://", "a b"] {
            let config = json!({"status": {"uploadProxyURL": odd}});
            let said = CdiConfig::from_object(&config).proxy_url().unwrap_err().to_string();
            assert!(said.contains("is not a host and a path of plain letters"), "{odd}");
        }
        assert_eq!(proxy_url("localhost:8443").unwrap().as_str(), "https://localhost:8443/");
    }
}
