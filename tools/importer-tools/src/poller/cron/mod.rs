//! Reads and updates a DataImportCron in its cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Config};
use program::names::is_subdomain;
use program::report::error_chain;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Annotation with the time of the last check for a new image.
const LAST_TIME: &str = "cdi.kubevirt.io/storage.import.lastCronTime";
/// Annotation with the digest of the image to import next.
const DESIRED_DIGEST: &str = "cdi.kubevirt.io/storage.import.sourceDesiredDigest";

/// Maximum time without data from the API server.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Maximum number of attempts for an update that conflicts with another writer.
const ATTEMPTS: u32 = 5;

/// The status with which Kubernetes refuses an object that was changed since it was read.
const CONFLICT: u16 = 409;

/// A DataImportCron. All other fields are sent back as they came, with `resourceVersion`, by which
/// the API server notices conflicts.
#[derive(Serialize, Deserialize)]
struct CronObject {
    metadata: CronMetadata,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct CronMetadata {
    annotations: Option<BTreeMap<String, String>>,
    #[serde(flatten)]
    others: Map<String, Value>,
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
            let asked = self.send_request(Method::GET, Vec::new()).await;
            let mut found = asked.map_err(|error| self.call_error("getting", &error))?;
            let is_news = found.record_check(digest);
            match self.put_object(&found).await {
                Ok(()) => return Ok(is_news),
                Err(kube::Error::Api(status))
                    if status.code == CONFLICT && !attempts.is_empty() =>
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

    /// Replaces the object. All releases of CDI permit this to the poller's account, but only those
    /// since 1.66 permit patches.
    async fn put_object(&self, object: &CronObject) -> kube::Result<()> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        self.send_request(Method::PUT, body).await.map(drop)
    }

    async fn send_request(&self, method: Method, body: Vec<u8>) -> kube::Result<CronObject> {
        let Self { namespace, name, .. } = self;
        let request = Request::builder()
            .method(method)
            .uri(format!(
                "/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/dataimportcrons/{name}"
            ))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }
}

impl CronObject {
    /// Records the time and the digest in the annotations. Returns true if the digest is new.
    fn record_check(&mut self, digest: &str) -> bool {
        let annotations = self.metadata.annotations.get_or_insert_default();
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        annotations.insert(LAST_TIME.to_owned(), now);
        let before = annotations.insert(DESIRED_DIGEST.to_owned(), digest.to_owned());
        before.is_none_or(|before| before != digest)
    }
}

#[cfg(test)]
mod tests;
