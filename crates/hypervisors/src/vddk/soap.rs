//! A session with vSphere: the method calls in SOAP that are needed to find a disk.
//!
//! The methods and their types belong to the vSphere Web Services API (`urn:vim25`).

use std::sync::Arc;
use std::time::Duration;

use fetch::BasicCredentials;
use fetch::Network;
use fetch::error::invalid_error;
use fetch::http::{ExtraHeader, HttpAgent, USER_AGENT, parse_header};
use http::{HeaderMap, HeaderValue, Method, header};
use stream::error::SourceError;
use url::Url;

use super::answer::{ManagedObjectReference, VsphereFault, parse_response};
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
    /// The session's cookie, once there is one.
    cookie: HeaderMap,
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
            cookie: HeaderMap::new(),
            content: XmlElement::default(),
        };
        let root = ManagedObjectReference::new("ServiceInstance", "ServiceInstance");
        session.content = session.call_method(&root, "RetrieveServiceContent", "").await?;
        session.log_in().await?;
        Ok(session)
    }

    async fn log_in(&mut self) -> Result<(), SourceError> {
        let arguments = format!(
            "<userName>{}</userName><password>{}</password>",
            escape_text(self.credentials.user()),
            escape_text(self.credentials.password())
        );
        let manager = self.manager_reference("SessionManager", "sessionManager")?;
        self.send_call(&manager, "Login", &arguments).await.map(drop)
    }

    /// Opens a session for `work`, and ends it also if that fails: otherwise vSphere would keep the
    /// session until it expires.
    pub(crate) async fn run<T>(
        endpoint: &Url,
        network: &Arc<Network>,
        work: impl AsyncFnOnce(&mut Self) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        let mut session = Self::open(endpoint, network).await?;
        let done = work(&mut session).await;
        session.close().await;
        done
    }

    /// Ends the session. A failure is only logged, because the session also ends by itself later.
    pub(crate) async fn close(&mut self) {
        let ending = async {
            let manager = self.manager_reference("SessionManager", "sessionManager")?;
            self.send_call(&manager, "Logout", "").await
        };
        if let Ok(Err(error)) = tokio::time::timeout(LOGOUT_LIMIT, ending).await {
            tracing::debug!("logging out of vSphere: {error}");
        }
    }

    /// Returns the header with the session's cookie, for requests to `url` if it belongs to the
    /// same server.
    pub(crate) fn cookie_for(&self, url: &Url) -> Option<ExtraHeader> {
        let cookie = self.cookie.get(header::COOKIE).filter(|_| url.origin() == self.url.origin());
        parse_header(&format!("Cookie: {}", cookie?.to_str().ok()?), true).ok().flatten()
    }

    /// Reads some properties of an object, as from [`properties_of`].
    pub(crate) async fn read_properties(
        &mut self,
        object: &ManagedObjectReference,
        paths: &[&str],
    ) -> Result<XmlElement, SourceError> {
        let collector = self.manager_reference("PropertyCollector", "propertyCollector")?;
        let paths: String = paths.iter().map(|path| format!("<pathSet>{path}</pathSet>")).collect();
        let arguments = format!(
            "<specSet><propSet><type>{}</type>{paths}</propSet><objectSet>{}</objectSet></specSet><options/>",
            object.kind,
            object.to_xml("obj")
        );
        let found = self.call_method(&collector, "RetrievePropertiesEx", &arguments).await?;
        Ok(found.child("objects").map(properties_of).unwrap_or_default())
    }

    /// Returns the reference to the manager in the element `element` of the server's content.
    pub(crate) fn manager_reference(
        &self,
        kind: &'static str,
        element: &str,
    ) -> Result<ManagedObjectReference, SourceError> {
        let name = self.content.text_of(element);
        name.map(|name| ManagedObjectReference::new(kind, name)).ok_or_else(|| {
            invalid_error("vSphere answers RetrieveServiceContent with an unexpected document")
        })
    }

    /// Calls `method` of `this` and returns its result. A session that has expired is renewed once.
    pub(crate) async fn call_method(
        &mut self,
        this: &ManagedObjectReference,
        method: &str,
        arguments: &str,
    ) -> Result<XmlElement, SourceError> {
        match self.send_call(this, method, arguments).await {
            Err(error) if VsphereFault::of(&error).is_some_and(|fault| fault.kind == EXPIRED) => {
                tracing::info!("the session with vSphere has expired: logging in again");
                self.cookie.clear();
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
    ) -> Result<XmlElement, SourceError> {
        let envelope = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <Envelope xmlns=\"http://schemas.xmlsoap.org/soap/envelope/\"><Body>\
             <{method} xmlns=\"urn:vim25\">{}{arguments}</{method}></Body></Envelope>",
            this.to_xml("_this")
        );
        let make = || {
            self.agent
                .build_request(Method::POST, self.url.clone())
                .header(header::CONTENT_TYPE, "text/xml; charset=utf-8")
                .header("SOAPAction", ACTION)
                .headers(self.cookie.clone())
                .body(envelope.clone())
        };
        // All calls may be repeated, although they are POST requests. Each one only reads, logs in
        // or logs out; if the answer to a request for a lease is lost, vSphere refuses another
        // lease until that one expires.
        let answer = self.agent.send_patiently(make, MAX_ANSWER_BYTES).await?;
        if let Some(cookie) = session_cookie(&answer.headers) {
            self.cookie.insert(header::COOKIE, cookie);
        }
        parse_response(method, answer.status, &answer.body)
    }
}

/// Returns the properties that `object`, an `ObjectContent`, has. Each is a child that is called
/// like its path.
pub(super) fn properties_of(object: &XmlElement) -> XmlElement {
    let named = object.children_named("propSet").filter_map(|set| {
        let name = set.text_of("name")?.to_owned();
        Some(XmlElement { name, ..set.child("val")?.clone() })
    });
    XmlElement { children: named.collect(), ..XmlElement::default() }
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
fn session_cookie(headers: &HeaderMap) -> Option<HeaderValue> {
    let cookie = headers.get(header::SET_COOKIE)?.to_str().ok()?;
    HeaderValue::from_str(cookie.split(';').next()?.trim()).ok()
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
