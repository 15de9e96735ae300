//! Requests to the API server, bounded in time and memory. One way for all of them: plain JSON, of which a few fields are looked at.
//!
//! Not by kube's `request`, which takes answers of any length and logs the text of those that it cannot read, tokens included.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::timeout;
use url::form_urlencoded;

use super::error::ClusterError;
use super::object;
use super::question::Question;
use super::resource::{CDI, Resource, Verb};
use super::{Cluster, PATIENCE};

/// Bytes of an answer. An object has 1.5 MiB at most (etcd), and of lists [`PAGE`] objects come at once, of some KiB each.
const MOST_BYTES: usize = 32 << 20;

/// Objects of a list that come at once, as kubectl asks for them.
const PAGE: &str = "500";

impl Cluster {
    /// The object of this name, if it is there.
    pub(crate) async fn get(&self, resource: Resource, name: &str) -> Result<Option<Value>, ClusterError> {
        match self.ask(Verb::Get, resource, name, "", None).await {
            Ok(object) => Ok(Some(object)),
            Err(ClusterError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All objects that a selector lets through, such as `("fieldSelector", "type=Warning")`.
    pub(crate) async fn list(
        &self,
        resource: Resource,
        selector: Option<(&str, &str)>,
    ) -> Result<Vec<Value>, ClusterError> {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("limit", PAGE)
                .extend_pairs(selector)
                .append_pair("continue", &next)
                .finish();
            let mut page = self.ask(Verb::List, resource, "", &query, None).await?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                all.extend(items);
            }
            match object::text(&page, "/metadata/continue") {
                Some(more) if !more.is_empty() => next = more.to_owned(),
                _ => return Ok(all),
            }
        }
    }

    /// Makes an object; `name` is what sentences call it.
    pub(crate) async fn make(
        &self,
        resource: Resource,
        name: &str,
        object: &Value,
    ) -> Result<Value, ClusterError> {
        self.ask(Verb::Create, resource, name, "", Some(object)).await
    }

    /// Deletes the object of this name, if it is still the one with this UID.
    pub(crate) async fn delete(&self, resource: Resource, name: &str, uid: &str) -> Result<(), ClusterError> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
        self.ask(Verb::Delete, resource, name, "", Some(&options))
            .await
            .map(drop)
    }

    async fn ask(
        &self,
        verb: Verb,
        resource: Resource,
        name: &str,
        query: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClusterError> {
        let question = Question {
            verb,
            resource,
            namespace: &self.namespace,
            name,
        };
        let target = format!("{}?{query}", question.path());
        let (code, answer) = self.exchange(verb.method(), &target, body).await?;
        if (200..300).contains(&code) {
            return serde_json::from_slice(&answer).map_err(|source| ClusterError::Answer {
                host: self.host.clone(),
                source,
            });
        }
        let refused = question.refused(&self.host, code, &answer);
        // Nobody has rights on what is not there.
        if matches!(refused, ClusterError::Denied { .. }) && resource.is_of_cdi() && !self.has_cdi().await? {
            return Err(ClusterError::NoCdi);
        }
        Err(refused)
    }

    /// False if CDI's API is unknown here, which everybody may ask.
    async fn has_cdi(&self) -> Result<bool, ClusterError> {
        let (code, _) = self.exchange(Method::GET, &format!("/apis/{CDI}"), None).await?;
        Ok(code != 404)
    }

    /// The code of an answer, and its body.
    async fn exchange(
        &self,
        method: Method,
        target: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Bytes), ClusterError> {
        let body = body.map(|object| object.to_string().into_bytes());
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(body.unwrap_or_default().into());
        let answer = async {
            let response = self.client.send(request.map_err(kube::Error::HttpError)?).await?;
            let code = response.status().as_u16();
            let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
            Ok((code, body.map_err(kube::Error::Service)?.to_bytes()))
        };
        match timeout(PATIENCE, answer).await {
            Ok(answer) => answer.map_err(|error| ClusterError::asked(&self.host, error)),
            Err(_) => Err(ClusterError::Silent {
                host: self.host.clone(),
                seconds: PATIENCE.as_secs(),
            }),
        }
    }
}
