//! A session with vSphere: the method calls in SOAP that are needed to find a disk.
//!
//! The methods and their types belong to the vSphere Web Services API (`urn:vim25`).

use std::sync::Arc;
use std::time::Duration;

use fetch::BasicCredentials;
use fetch::Network;
use fetch::error::invalid_error;
use fetch::http::{ExtraHeader, HttpAgent, USER_AGENT, parse_header};
use http::{HeaderMap, Method, header};
use stream::error::SourceError;
use url::Url;

use super::answer::{ManagedObjectReference, VsphereCallError, first_child, parse_response};
use crate::xml::{XmlElement, escape_text};

/// Longest response, in bytes. The devices of one machine take tens of KiB, a tree of snapshots
/// less.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// The version of the API that is used: vSphere 6.5, which all later versions support.
const ACTION: &str = "urn:vim25/6.5";

/// Longest time to log out.
pub(crate) const LOGOUT_LIMIT: Duration = Duration::from_secs(5);

/// A session of a user who has logged in.
pub(crate) struct VsphereSession {
    agent: HttpAgent,
    url: Url,
    credentials: BasicCredentials,
    cookie: Option<String>,
    /// `ServiceContent`, which contains the names of the managers.
    content: XmlElement,
}

/// Fault type of a call that is made after the session has ended. A session ends half an hour
/// after its last call, or when an administrator ends it.
const EXPIRED: &str = "NotAuthenticated";

/// Returns the credentials, or an error if there are none, because vSphere requires them.
pub fn require_credentials(
    given: Option<&BasicCredentials>,
) -> Result<&BasicCredentials, SourceError> {
    given.ok_or_else(|| invalid_error("vSphere needs a user name and a password"))
}

impl VsphereSession {
    /// Logs in at `endpoint` with the credentials of `network`.
    pub(crate) async fn open(endpoint: &Url, network: &Arc<Network>) -> Result<Self, SourceError> {
        let credentials = require_credentials(network.credentials.as_ref())?;
        network.policy.check_secret_target("the password of vSphere", endpoint)?;
        let mut session = Self {
            agent: HttpAgent::new(network, USER_AGENT)?,
            url: sdk_url(endpoint),
            credentials: credentials.clone(),
            cookie: None,
            content: XmlElement::default(),
        };
        let root = ManagedObjectReference::new("ServiceInstance", "ServiceInstance");
        let answer = session.call_method(&root, "RetrieveServiceContent", "").await?;
        session.content =
            first_child(answer).ok_or_else(|| unexpected_error("RetrieveServiceContent"))?;
        session.log_in().await?;
        Ok(session)
    }

    async fn log_in(&mut self) -> Result<(), VsphereCallError> {
        let arguments = format!(
            "<userName>{}</userName><password>{}</password>",
            escape_text(self.credentials.user()),
            escape_text(self.credentials.password())
        );
        let manager = self.manager_reference("SessionManager", "sessionManager")?;
        self.send_call(&manager, "Login", &arguments).await.map(drop)
    }

    /// Ends the session. A failure is only logged, because the session also ends by itself later.
    pub(crate) async fn close(&mut self) {
        let ending = async {
            let manager = self.manager_reference("SessionManager", "sessionManager")?;
            self.send_call(&manager, "Logout", "").await
        };
        if let Ok(Err(error)) = tokio::time::timeout(LOGOUT_LIMIT, ending).await {
            tracing::debug!("logging out of vSphere: {}", SourceError::from(error));
        }
    }

    /// Returns the header with the session's cookie, for requests to `url` if it belongs to the
    /// same server.
    pub(crate) fn cookie_for(&self, url: &Url) -> Option<ExtraHeader> {
        let cookie = self.cookie.as_ref().filter(|_| url.origin() == self.url.origin())?;
        parse_header(&format!("Cookie: {cookie}"), true).ok().flatten()
    }

    /// Finds the machine with this UUID in any data centre. `uuid` is the instance UUID if
    /// `of_instance` is true, otherwise the BIOS UUID.
    pub(crate) async fn find_machine(
        &mut self,
        uuid: &str,
        of_instance: bool,
    ) -> Result<Option<ManagedObjectReference>, SourceError> {
        let index = self.manager_reference("SearchIndex", "searchIndex")?;
        let arguments = format!(
            "<uuid>{}</uuid><vmSearch>true</vmSearch><instanceUuid>{of_instance}</instanceUuid>",
            escape_text(uuid)
        );
        let found = first_child(self.call_method(&index, "FindByUuid", &arguments).await?);
        found
            .map(|found| ManagedObjectReference::from_name("VirtualMachine", &found.text))
            .transpose()
    }

    /// Reads some properties of an object. The result contains one element for each property that
    /// is set, in any order.
    pub(crate) async fn read_properties(
        &mut self,
        object: &ManagedObjectReference,
        paths: &[&str],
    ) -> Result<ObjectProperties, VsphereCallError> {
        let collector = self.manager_reference("PropertyCollector", "propertyCollector")?;
        let paths: String = paths.iter().map(|path| format!("<pathSet>{path}</pathSet>")).collect();
        let arguments = format!(
            "<specSet><propSet><type>{}</type>{paths}</propSet><objectSet>{}</objectSet></specSet><options/>",
            object.kind,
            object.to_xml("obj")
        );
        let found =
            first_child(self.call_method(&collector, "RetrievePropertiesEx", &arguments).await?);
        let sets = found
            .into_iter()
            .flat_map(|found| found.children)
            .filter(|child| child.name == "objects")
            .flat_map(|object| object.children)
            .filter(|child| child.name == "propSet");
        Ok(ObjectProperties(sets.collect()))
    }

    /// Returns the reference to the manager in the element `element` of the server's content.
    pub(crate) fn manager_reference(
        &self,
        kind: &'static str,
        element: &str,
    ) -> Result<ManagedObjectReference, SourceError> {
        let name = self.content.text_of(element);
        name.map(|name| ManagedObjectReference::new(kind, name))
            .ok_or_else(|| unexpected_error("RetrieveServiceContent"))
    }

    /// Calls `method` of `this` and returns the element of its response. A session that has
    /// expired is renewed once.
    pub(crate) async fn call_method(
        &mut self,
        this: &ManagedObjectReference,
        method: &str,
        arguments: &str,
    ) -> Result<XmlElement, VsphereCallError> {
        match self.send_call(this, method, arguments).await {
            Err(VsphereCallError::Fault(fault)) if fault.kind == EXPIRED => {
                tracing::info!("the session with vSphere has expired: logging in again");
                self.cookie = None;
                self.log_in().await?;
                self.send_call(this, method, arguments).await
            }
            answer => answer,
        }
    }

    async fn send_call(
        &mut self,
        this: &ManagedObjectReference,
        method: &str,
        arguments: &str,
    ) -> Result<XmlElement, VsphereCallError> {
        let envelope = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <Envelope xmlns=\"http://schemas.xmlsoap.org/soap/envelope/\"><Body>\
             <{method} xmlns=\"urn:vim25\">{}{arguments}</{method}></Body></Envelope>",
            this.to_xml("_this")
        );
        let make = || {
            let request = self
                .agent
                .build_request(Method::POST, self.url.clone())
                .header(header::CONTENT_TYPE, "text/xml; charset=utf-8")
                .header("SOAPAction", ACTION)
                .body(envelope.clone());
            match &self.cookie {
                Some(cookie) => request.header(header::COOKIE, cookie),
                None => request,
            }
        };
        // All calls may be repeated, although they are POST requests. Each one only reads, logs in
        // or logs out; if the answer to a request for a lease is lost, vSphere refuses another
        // lease until that one expires.
        let answer = self.agent.send_patiently(make, MAX_ANSWER_BYTES).await?;
        if let Some(cookie) = session_cookie(&answer.headers) {
            self.cookie = Some(cookie);
        }
        parse_response(method, answer.status, &answer.body)
    }
}

/// The result of [`VsphereSession::read_properties`].
pub(crate) struct ObjectProperties(Vec<XmlElement>);

impl ObjectProperties {
    /// Returns the value at `path`.
    pub(crate) fn get(&self, path: &str) -> Option<&XmlElement> {
        self.0.iter().find(|set| set.text_of("name") == Some(path)).and_then(|set| set.child("val"))
    }
}

/// Returns the URL for calls of vSphere: `/sdk` below its own URL.
fn sdk_url(endpoint: &Url) -> Url {
    let mut url = endpoint.clone();
    let path = url.path().trim_end_matches('/');
    if !path.ends_with("/sdk") {
        url.set_path(&format!("{path}/sdk"));
    }
    url
}

/// Returns `name=value` of the first cookie that is set.
fn session_cookie(headers: &HeaderMap) -> Option<String> {
    let cookie = headers.get(header::SET_COOKIE)?.to_str().ok()?;
    Some(cookie.split(';').next()?.trim().to_owned())
}

fn unexpected_error(method: &str) -> SourceError {
    invalid_error(format!("vSphere answers {method} with an unexpected document"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_sent_to_the_path_sdk() {
        for (endpoint, expected) in [
            ("https://vcenter", "https://vcenter/sdk"),
            ("https://vcenter/", "https://vcenter/sdk"),
            ("https://vcenter/sdk", "https://vcenter/sdk"),
            ("https://proxy/vcenter/sdk/", "https://proxy/vcenter/sdk/"),
        ] {
            assert_eq!(sdk_url(&Url::parse(endpoint).unwrap()).as_str(), expected);
        }
    }
}
