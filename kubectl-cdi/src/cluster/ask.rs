//! Requests to the API server, limited in time and memory. They all share one code path: they
//! exchange plain JSON, and only a few fields of a response are used.
//!
//! This module does not use kube's `request`, which accepts responses of any length and logs
//! responses that it cannot parse, including tokens in them.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Bytes;
use serde_json::{Value, json};
use stream::memory::{MemoryBudget, MemoryGrant, MemoryLimitError};
use tokio::time::timeout;
use url::form_urlencoded;

use super::api_query::ApiQuery;
use super::error::{denied, no_cdi, not_kubernetes, request_error, silent_server};
use super::json::{self, ParseError};
use super::object;
use super::resource::{CDI, RbacVerb, ResourceKind};
use super::uid::ObjectUid;
use super::{ANSWER_LIMIT, Cluster};
use crate::error::{PluginError, PluginErrorKind};

/// Size limit of a response. An object has at most 1.5 MiB (the limit of etcd); a page of a list
/// contains at most [`PAGE`] objects of a few KiB each.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Memory limit of one parsed object.
const MAX_OBJECT_BYTES: u64 = 16 << 20;

/// Number of objects in one page of a list: half of what kubectl requests.
const PAGE: &str = "250";

/// Limits for the number of objects and pages in a list. Pages may be empty if few objects match
/// the selector.
const MAX_OBJECTS: usize = 50_000;
const MAX_PAGES: usize = 1000;

/// Time limit for a whole list.
const LIST_PATIENCE: Duration = Duration::from_secs(60);

/// Returns the memory for one parsed object.
fn object_memory() -> MemoryGrant {
    MemoryBudget::new(MAX_OBJECT_BYTES).empty_grant()
}

impl Cluster {
    /// Returns the object with this name, or `None` if it does not exist.
    pub(crate) async fn get_object(
        &self,
        resource: ResourceKind,
        name: &str,
    ) -> Result<Option<Value>, PluginError> {
        let query = self.query(RbacVerb::Get, resource, name);
        match self.send_query(query, &mut object_memory()).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.kind == PluginErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists all objects that match a selector such as `("fieldSelector", "type=Warning")`. Their
    /// memory is counted only during the call, so the caller should drop them soon.
    pub(crate) async fn list_objects(
        &self,
        resource: ResourceKind,
        selector: Option<(&str, &str)>,
    ) -> Result<Vec<Value>, PluginError> {
        self.list_within(&mut MemoryGrant::default(), resource, selector).await
    }

    /// Lists objects like [`Self::list_objects`], and adds their memory to `memory`, which the
    /// caller keeps as long as the objects.
    pub(crate) async fn list_within(
        &self,
        memory: &mut MemoryGrant,
        resource: ResourceKind,
        selector: Option<(&str, &str)>,
    ) -> Result<Vec<Value>, PluginError> {
        let pages = async {
            let (mut all, mut next) = (Vec::new(), String::new());
            let too_much = |what: &str| Err(self.too_much(RbacVerb::List, resource, what));
            for _ in 0..MAX_PAGES {
                let parameters = form_urlencoded::Serializer::new(String::new())
                    .append_pair("limit", PAGE)
                    .extend_pairs(selector)
                    .append_pair("continue", &next)
                    .finish();
                let query = self.query(RbacVerb::List, resource, "");
                let query = ApiQuery { parameters: &parameters, ..query };
                let mut page = self.send_query(query, memory).await?;
                if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                    all.extend(items);
                }
                if all.len() > MAX_OBJECTS {
                    return too_much(&format!("more than {MAX_OBJECTS} objects"));
                }
                match object::text_at(&page, "/metadata/continue") {
                    None | Some("") => return Ok(all),
                    Some(more) if more == next => return too_much("the same page again and again"),
                    Some(more) => next = more.to_owned(),
                }
            }
            too_much(&format!("more than {MAX_PAGES} pages"))
        };
        let late = format!("a list that does not end within {} s", LIST_PATIENCE.as_secs());
        let listed = timeout(LIST_PATIENCE, pages).await;
        listed.map_err(|_| self.too_much(RbacVerb::List, resource, &late))?
    }

    /// Creates an object and returns it as stored by the server. `name` is used only in error
    /// messages.
    pub(crate) async fn create_object(
        &self,
        resource: ResourceKind,
        name: &str,
        object: &Value,
    ) -> Result<Value, PluginError> {
        let query = self.query(RbacVerb::Create, resource, name);
        self.send_query(ApiQuery { body: Some(object), ..query }, &mut object_memory()).await
    }

    /// Lets the server validate an object like one that is created, without storing it.
    pub(crate) async fn validate_object(
        &self,
        resource: ResourceKind,
        name: &str,
        object: &Value,
    ) -> Result<(), PluginError> {
        let query = self.query(RbacVerb::Create, resource, name);
        let query = ApiQuery { parameters: "dryRun=All", body: Some(object), ..query };
        self.send_query(query, &mut object_memory()).await.map(drop)
    }

    /// Changes an object by a merge patch (RFC 7396) and returns the new object. If `dry_run` is
    /// true, the server only validates the change. A patch that contains the object's
    /// `resourceVersion` fails if the object has changed since.
    pub(crate) async fn patch_object(
        &self,
        resource: ResourceKind,
        name: &str,
        patch: &Value,
        dry_run: bool,
    ) -> Result<Value, PluginError> {
        let query = self.query(RbacVerb::Patch, resource, name);
        let dry_run = if dry_run { "&dryRun=All" } else { "" };
        let parameters = format!("fieldManager=kubectl-cdi{dry_run}");
        let query = ApiQuery { parameters: &parameters, body: Some(patch), ..query };
        self.send_query(query, &mut object_memory()).await
    }

    /// Fails if the user lacks a right: a verb on a kind, or on one of its subresources. `name` is
    /// empty for any object.
    pub(crate) async fn check_right(
        &self,
        verb: &'static str,
        resource: ResourceKind,
        subresource: &str,
        name: &str,
    ) -> Result<(), PluginError> {
        let what = json!({
            "namespace": self.namespace, "verb": verb, "group": resource.group, "resource": resource.plural,
            "subresource": subresource, "name": name,
        });
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": what},
        });
        let answer = self.create_object(ResourceKind::REVIEWS, "", &review).await;
        match answer {
            Ok(answer) if answer.pointer("/status/allowed") == Some(&json!(false)) => {
                let resource = format!("{resource}/{subresource}");
                Err(denied(verb, resource.trim_end_matches('/'), &self.namespace))
            }
            // If the question is not answered, the later requests show which right is missing.
            _ => Ok(()),
        }
    }

    /// Deletes the object with this name, if its UID is still the given one.
    pub(crate) async fn delete_object(
        &self,
        resource: ResourceKind,
        name: &str,
        uid: &ObjectUid,
    ) -> Result<(), PluginError> {
        // If the UID were checked before the request, another object could take the name in
        // between.
        let preconditions = json!({"uid": uid.as_str()});
        let options =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        let query = self.query(RbacVerb::Delete, resource, name);
        let query = ApiQuery { body: Some(&options), ..query };
        self.send_query(query, &mut object_memory()).await.map(drop)
    }

    /// Returns a request about objects of this namespace, without parameters and body.
    fn query<'a>(&'a self, verb: RbacVerb, resource: ResourceKind, name: &'a str) -> ApiQuery<'a> {
        let namespace = &self.namespace;
        ApiQuery { verb, resource, namespace, name, parameters: "", body: None }
    }

    async fn send_query(
        &self,
        query: ApiQuery<'_>,
        memory: &mut MemoryGrant,
    ) -> Result<Value, PluginError> {
        let ApiQuery { verb, resource, parameters, body, .. } = query;
        let target = format!("{}?{parameters}", query.request_path()?);
        let Some((code, answer)) = self.exchange_request(verb.http_method(), &target, body).await?
        else {
            let what = format!("more than {MAX_ANSWER_BYTES} bytes");
            return Err(self.too_much(verb, resource, &what));
        };
        if (200..300).contains(&code) {
            return json::parse(&answer, memory).map_err(|error| match error {
                ParseError::Json(error) => {
                    not_kubernetes(&self.host, &format!("it does not answer in JSON ({error})"))
                }
                ParseError::Memory(MemoryLimitError { limit, .. }) => {
                    let what = format!("objects that take more than {limit} bytes of memory");
                    self.too_much(verb, resource, &what)
                }
            });
        }
        let refused = query.response_error(&self.host, code, &answer);
        // If CDI is not installed, no user has permissions for its resources. A missing CDI is
        // therefore reported first.
        if refused.kind == PluginErrorKind::Denied
            && resource.is_of_cdi()
            && !self.has_cdi().await?
        {
            return Err(no_cdi());
        }
        if refused.kind == PluginErrorKind::NoCdi && !self.is_kubernetes().await? {
            return Err(not_kubernetes(&self.host, "it does not serve the path /version"));
        }
        Err(refused)
    }

    /// Returns true if the server is a Kubernetes API server. Any user may request the version of
    /// Kubernetes, unless an administrator has forbidden it; in that case the response is a
    /// `Status` object.
    async fn is_kubernetes(&self) -> Result<bool, PluginError> {
        let Some((_, answer)) = self.exchange_request(Method::GET, "/version", None).await? else {
            return Ok(false);
        };
        let answer = json::parse(&answer, &mut object_memory()).unwrap_or_default();
        Ok(object::text_at(&answer, "/gitVersion").is_some()
            || object::text_at(&answer, "/kind") == Some("Status"))
    }

    /// Returns false if the server does not provide CDI's API. Any user may request this.
    async fn has_cdi(&self) -> Result<bool, PluginError> {
        let answer = self.exchange_request(Method::GET, &format!("/apis/{CDI}"), None).await?;
        Ok(answer.is_none_or(|(code, _)| code != 404))
    }

    /// Creates the error for a response or a list that exceeds a limit.
    fn too_much(&self, verb: RbacVerb, resource: ResourceKind, what: &str) -> PluginError {
        let (host, verb) = (&self.host, verb.name());
        PluginError::target(format!(
            "the API server at {host} answers to {verb} {resource} with {what}: choose another cluster with --context, or a smaller \
             namespace"
        ))
    }

    /// Sends a request and returns the status code and the body of the response, or `None` if the
    /// body exceeds [`MAX_ANSWER_BYTES`].
    async fn exchange_request(
        &self,
        method: Method,
        target: &str,
        body: Option<&Value>,
    ) -> Result<Option<(u16, Bytes)>, PluginError> {
        let body = body.map(|object| object.to_string().into_bytes());
        let content_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, content_type)
            .body(body.unwrap_or_default().into());
        let answer = async {
            let response = self.client.send(request.map_err(kube::Error::HttpError)?).await?;
            let code = response.status().as_u16();
            match Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await {
                Ok(body) => Ok(Some((code, body.to_bytes()))),
                Err(error) if error.is::<LengthLimitError>() => Ok(None),
                Err(error) => Err(kube::Error::Service(error)),
            }
        };
        match timeout(ANSWER_LIMIT, answer).await {
            Ok(answer) => answer.map_err(|error| request_error(&self.host, error)),
            Err(_) => Err(silent_server(&self.host)),
        }
    }
}
