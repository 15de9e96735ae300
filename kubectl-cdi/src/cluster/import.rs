//! The source of an import, as represented in CDI's API.

use fetch::scheme::{SCHEMES, SourceKind, find_scheme};
use serde_json::{Map, Value, json};
use url::Url;

use super::object::object_of;
use crate::error::PluginError;

/// The endpoint of Amazon S3. CDI's importer takes the region from a host name of this form. For a
/// host name without a region, it would sign requests for a region "s3".
const AMAZON: &str = "https://s3.us-east-1.amazonaws.com";

/// The source of an import; the cluster fetches the image from it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterImport {
    /// The kind of server.
    pub kind: SourceKind,
    /// The URL, in the form that CDI's webhook accepts.
    pub url: String,
    /// The name of a Secret that contains credentials.
    pub secret: Option<String>,
    /// The name of a ConfigMap that contains certificates.
    pub cert_config_map: Option<String>,
    /// The checksum as `ALGORITHM:HEX`; only for HTTP sources.
    pub checksum: Option<String>,
    /// A header for the importer's pod that states the format; only for HTTP sources.
    pub format: Option<String>,
}

/// Returns the URL schemes from which a cluster can fetch, for use in messages.
fn cluster_schemes() -> String {
    let schemes = SCHEMES.iter().filter(|scheme| scheme.is_for_clusters);
    let schemes: Vec<String> = schemes.map(|scheme| format!("{}://", scheme.name)).collect();
    schemes.join(", ")
}

impl ClusterImport {
    /// Creates a source from the user's address. `endpoint` is the server of an `s3://` address.
    pub fn new(address: &str, endpoint: Option<&Url>) -> Result<Self, PluginError> {
        let scheme = address.split_once("://").and_then(|(scheme, _)| find_scheme(scheme));
        let Some(kind) = scheme.filter(|scheme| scheme.is_for_clusters).map(|scheme| scheme.kind)
        else {
            return Err(PluginError::usage(format!(
                "{address} is not a source that a cluster can fetch: use {}, or `kubectl cdi upload` for a file",
                cluster_schemes()
            )));
        };
        let url = if kind == SourceKind::S3 {
            let amazon =
                Url::parse(AMAZON).map_err(|error| PluginError::usage(error.to_string()))?;
            let url = stores::s3::url_at(endpoint.unwrap_or(&amazon), address);
            url.map_err(|error| PluginError::usage(error.to_string()))?.into()
        } else if endpoint.is_some() {
            return Err(only_for("--endpoint", "s3://"));
        } else {
            address.to_owned()
        };
        Ok(Self { kind, url, ..Self::default() })
    }

    /// Fails if a value has no field in CDI's API for this kind of source. Without this check, the
    /// API server would drop the value silently.
    pub fn check_fields(&self) -> Result<(), PluginError> {
        let is_http = self.kind == SourceKind::Http;
        if self.checksum.is_some() && !is_http {
            return Err(only_for("--checksum", "http:// and https://"));
        }
        if self.format.is_some() && !is_http {
            return Err(only_for("--format", "http:// and https://"));
        }
        if self.cert_config_map.is_some() && self.kind == SourceKind::Gcs {
            return Err(only_for("--cert-configmap", "http://, https://, docker:// and s3://"));
        }
        Ok(())
    }

    /// Returns the `source` field of a DataVolume.
    pub(super) fn source_value(&self) -> Value {
        let mut fields = object_of([
            ("url", Some(self.url.as_str())),
            ("secretRef", self.secret.as_deref()),
            ("certConfigMap", self.cert_config_map.as_deref()),
            ("checksum", self.checksum.as_deref()),
        ]);
        fields.extend(self.format.iter().map(|line| ("extraHeaders".to_owned(), json!([line]))));
        json!({self.kind.name(): fields})
    }

    /// Returns the annotations that describe the same source on a claim, without CDI's prefix.
    pub(super) fn claim_annotations(&self) -> Map<String, Value> {
        object_of([
            ("storage.import.source", Some(self.kind.name())),
            ("storage.import.endpoint", Some(self.url.as_str())),
            ("storage.import.secretName", self.secret.as_deref()),
            ("storage.import.certConfigMap", self.cert_config_map.as_deref()),
            ("storage.import.checksum", self.checksum.as_deref()),
            ("storage.import.extraHeaders.0", self.format.as_deref()),
        ])
    }
}

/// Parses the URL of an S3 server. The URL must not contain a path, because CDI takes the first
/// part of the path as the bucket.
pub fn parse_endpoint(text: &str) -> Result<Url, String> {
    let wrong = || "use http://HOST, https://HOST, or either with a port".to_owned();
    let url = Url::parse(text).map_err(|_| wrong())?;
    let is_server = matches!(url.scheme(), "http" | "https")
        && matches!(url.path(), "" | "/")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if is_server { Ok(url) } else { Err(wrong()) }
}

/// Creates the error for a flag that does not apply to this kind of source.
fn only_for(flag: &str, schemes: &str) -> PluginError {
    PluginError::usage(format!("{flag} is only for {schemes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(address: &str) -> ClusterImport {
        ClusterImport::new(address, None).unwrap()
    }

    #[test]
    fn a_source_is_recognised_by_its_scheme() {
        for (address, kind, url) in [
            ("https://h/d.qcow2", "http", "https://h/d.qcow2"),
            ("docker://h/d:1", "registry", "docker://h/d:1"),
            ("oci-archive://h/d:1", "registry", "oci-archive://h/d:1"),
            ("s3://b/d", "s3", "https://s3.us-east-1.amazonaws.com/b/d"),
            ("gs://b/d", "gcs", "gs://b/d"),
        ] {
            let import = import(address);
            assert_eq!((import.kind.name(), import.url.as_str()), (kind, url));
        }
        for address in ["ftp://h/d", "d.qcow2", ""] {
            let refused = ClusterImport::new(address, None).unwrap_err().to_string();
            assert!(refused.contains("is not a source that a cluster can fetch"), "{refused}");
        }
    }

    #[test]
    fn flags_are_refused_for_sources_that_lack_them() {
        let endpoint = "http://minio:9000".parse().unwrap();
        let at_minio = ClusterImport::new("s3://b/a dir/d", Some(&endpoint)).unwrap();
        assert_eq!(at_minio.url, "http://minio:9000/b/a%20dir/d");
        let refused = ClusterImport::new("gs://b/d", Some(&endpoint)).unwrap_err();
        assert_eq!(refused.to_string(), "--endpoint is only for s3://");
        for (address, has_checksum, has_certificates) in [
            ("https://h/d", true, true),
            ("docker://h/d", false, true),
            ("s3://b/d", false, true),
            ("gs://b/d", false, false),
        ] {
            let checksum =
                ClusterImport { checksum: Some("sha256:ab".to_owned()), ..import(address) };
            assert_eq!(checksum.check_fields().is_ok(), has_checksum, "{address}");
            let certificates =
                ClusterImport { cert_config_map: Some("c".to_owned()), ..import(address) };
            assert_eq!(certificates.check_fields().is_ok(), has_certificates, "{address}");
        }
    }

    #[test]
    fn volumes_and_claims_name_the_same_source() {
        let full = ClusterImport {
            secret: Some("s".to_owned()),
            cert_config_map: Some("c".to_owned()),
            checksum: Some("sha256:ab".to_owned()),
            ..import("https://h/d")
        };
        assert_eq!(
            full.source_value(),
            json!({"http": {"url": "https://h/d", "secretRef": "s", "certConfigMap": "c", "checksum": "sha256:ab"}})
        );
        assert_eq!(
            Value::Object(full.claim_annotations()),
            json!({
                "storage.import.source": "http",
                "storage.import.endpoint": "https://h/d",
                "storage.import.secretName": "s",
                "storage.import.certConfigMap": "c",
                "storage.import.checksum": "sha256:ab",
            })
        );
    }
}
