//! Reads and updates a DataImportCron in its cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Config};
use program::names::is_subdomain;
use program::report::error_chain;
use serde::Deserialize;
use serde_json::{Value, json};

/// Annotation with the time of the last check for a new image.
const LAST_TIME: &str = "cdi.kubevirt.io/storage.import.lastCronTime";
/// Annotation with the digest of the image to import next.
const DESIRED_DIGEST: &str = "cdi.kubevirt.io/storage.import.sourceDesiredDigest";

/// Maximum time without data from the API server.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Maximum number of attempts for an update that conflicts with another writer.
const ATTEMPTS: u32 = 5;

/// The status with which Kubernetes answers a JSON Patch if its `test` operation fails.
const UNPROCESSABLE: u16 = 422;

/// The part of a DataImportCron that is read.
#[derive(Deserialize)]
struct CronObject {
    metadata: CronMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CronMetadata {
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    resource_version: String,
}

/// A DataImportCron that can be read and updated.
pub(super) struct DataImportCron {
    client: Client,
    namespace: String,
    name: String,
}

impl DataImportCron {
    /// Creates a client for the DataImportCron `namespace/name` in this cluster.
    pub(super) fn new(mut config: Config, namespace: &str, name: &str) -> Result<Self, String> {
        for part in [namespace, name] {
            if !is_subdomain(part) {
                return Err(format!("{part:?} cannot be the name of an object or a namespace"));
            }
        }
        // The environment's proxy variables are for the registry; the cluster is reached directly.
        config.proxy_url = None;
        config.connect_timeout = Some(ANSWER_LIMIT);
        config.read_timeout = Some(ANSWER_LIMIT);
        config.write_timeout = Some(ANSWER_LIMIT);
        let client = program::cluster::client(config)
            .map_err(|error| format!("Failed to connect to Kubernetes: {}", error_chain(&error)))?;
        Ok(Self { client: client.build(), namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Records the time of this check and the digest that was found. Returns true if the digest is
    /// new.
    pub(super) async fn report_digest(&self, digest: &str) -> Result<bool, String> {
        let mut attempts = 1..=ATTEMPTS;
        loop {
            attempts.next();
            let found = self.get_metadata().await?;
            let known = found.annotations.as_ref().and_then(|all| all.get(DESIRED_DIGEST));
            let is_news = known.is_none_or(|known| known != digest);
            let changes = build_patch(&found, is_news.then_some(digest));
            match self.send_patch(&changes).await {
                Ok(()) => return Ok(is_news),
                Err(kube::Error::Api(status))
                    if status.code == UNPROCESSABLE && !attempts.is_empty() =>
                {
                    tracing::debug!(
                        "the object was changed by another writer, retrying: {}",
                        status.message
                    );
                }
                Err(error) => return Err(self.call_error("updating", &error)),
            }
        }
    }

    async fn get_metadata(&self) -> Result<CronMetadata, String> {
        let asked = self.send_request(Method::GET, "application/json", Vec::new()).await;
        let object = asked.map_err(|error| self.call_error("getting", &error))?;
        Ok(object.metadata)
    }

    /// Builds the error for a failed call. It contains the API server's own message, if there is
    /// one.
    fn call_error(&self, doing: &str, error: &kube::Error) -> String {
        let Self { namespace, name, .. } = self;
        let cause = match error {
            kube::Error::Api(status) => status.message.clone(),
            other => error_chain(other),
        };
        format!("Failed {doing} DataImportCron, cronNamespace {namespace} cronName {name}: {cause}")
    }

    async fn send_patch(&self, changes: &Value) -> kube::Result<()> {
        let body = changes.to_string().into_bytes();
        self.send_request(Method::PATCH, "application/json-patch+json", body).await.map(drop)
    }

    async fn send_request(
        &self,
        method: Method,
        content_type: &str,
        body: Vec<u8>,
    ) -> kube::Result<CronObject> {
        let Self { namespace, name, .. } = self;
        let request = Request::builder()
            .method(method)
            .uri(format!(
                "/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/dataimportcrons/{name}"
            ))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, content_type)
            .body(body)
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }
}

/// Builds the JSON Patch (RFC 6902) that records the time and, if given, a new digest.
fn build_patch(found: &CronMetadata, digest: Option<&str>) -> Value {
    let mut changes = Vec::new();
    if found.annotations.is_none() {
        // Adding an empty map would overwrite annotations that were added in the meantime. Testing
        // `resourceVersion` first makes the patch fail in that case.
        changes.push(
            json!({ "op": "test", "path": "/metadata/resourceVersion", "value": found.resource_version }),
        );
        changes.push(json!({ "op": "add", "path": "/metadata/annotations", "value": {} }));
    }
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for (annotation, value) in [(LAST_TIME, Some(now.as_str())), (DESIRED_DIGEST, digest)] {
        if let Some(value) = value {
            // RFC 6901 §3 requires this escape for a slash in a name.
            let name = annotation.replace('/', "~1");
            let path = format!("/metadata/annotations/{name}");
            changes.push(json!({ "op": "add", "path": path, "value": value }));
        }
    }
    Value::Array(changes)
}

#[cfg(test)]
mod tests;
