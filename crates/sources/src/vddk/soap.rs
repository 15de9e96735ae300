//! A session with vSphere: method calls in SOAP, as far as they are needed to find a disk.
//!
//! The methods and their types are those of the vSphere Web Services API (`urn:vim25`).

use std::sync::Arc;

use datapath::error::SourceError;
use http::{HeaderMap, Method, header};
use url::Url;

use super::answer::{CallFailed, Reference, first, response};
use crate::credentials::Credentials;
use crate::error::invalid;
use crate::http::{Agent, USER_AGENT};
use crate::network::Network;
use crate::xml::{Element, escaped};

/// Bytes of an answer: the devices of one machine take some tens of KiB, a tree of snapshots less.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// The version of the API that is spoken: vSphere 6.5, which all later ones understand.
const ACTION: &str = "urn:vim25/6.5";

/// A session of a user who has logged in.
pub(super) struct Session {
    agent: Agent,
    url: Url,
    credentials: Credentials,
    cookie: Option<String>,
    /// `ServiceContent`: the names of the managers.
    content: Element,
}

/// The fault of a call after the session has ended, half an hour after its last call or when an administrator ends it.
const EXPIRED: &str = "NotAuthenticated";

impl Session {
    /// Logs in at `endpoint` with the credentials of `network`.
    pub(super) async fn open(endpoint: &Url, network: &Arc<Network>) -> Result<Self, SourceError> {
        let Some(credentials) = &network.credentials else {
            return Err(invalid("vSphere needs a user name and a password"));
        };
        network.policy.reveal("the password of vSphere", endpoint)?;
        let mut session = Self {
            agent: Agent::new(network, USER_AGENT)?,
            url: sdk(endpoint),
            credentials: credentials.clone(),
            cookie: None,
            content: Element::default(),
        };
        let root = Reference::new("ServiceInstance", "ServiceInstance");
        let answer = session.call(&root, "RetrieveServiceContent", "").await?;
        session.content = first(answer).ok_or_else(|| unexpected("RetrieveServiceContent"))?;
        session.log_in().await?;
        Ok(session)
    }

    async fn log_in(&mut self) -> Result<(), CallFailed> {
        let arguments = format!(
            "<userName>{}</userName><password>{}</password>",
            escaped(self.credentials.user()),
            escaped(self.credentials.password())
        );
        let manager = self.manager("SessionManager", "sessionManager")?;
        self.ask(&manager, "Login", &arguments).await.map(drop)
    }

    /// Ends the session; that it ends by itself later is good enough if this fails.
    pub(super) async fn close(mut self) {
        let ending = async {
            let manager = self.manager("SessionManager", "sessionManager")?;
            self.ask(&manager, "Logout", "").await
        };
        if let Err(error) = ending.await {
            tracing::debug!("logging out of vSphere: {}", SourceError::from(error));
        }
    }

    /// The machine with this uuid in any data centre; of its instance, or of its BIOS.
    pub(super) async fn machine(
        &mut self,
        uuid: &str,
        of_instance: bool,
    ) -> Result<Option<Reference>, SourceError> {
        let index = self.manager("SearchIndex", "searchIndex")?;
        let arguments = format!(
            "<uuid>{}</uuid><vmSearch>true</vmSearch><instanceUuid>{of_instance}</instanceUuid>",
            escaped(uuid)
        );
        let found = first(self.call(&index, "FindByUuid", &arguments).await?);
        found
            .map(|found| Reference::found("VirtualMachine", &found.text))
            .transpose()
    }

    /// Some properties of an object: an element each, in any order, without those that are not set.
    pub(super) async fn properties(
        &mut self,
        object: &Reference,
        paths: &[&str],
    ) -> Result<Properties, CallFailed> {
        let collector = self.manager("PropertyCollector", "propertyCollector")?;
        let paths: String = paths
            .iter()
            .map(|path| format!("<pathSet>{path}</pathSet>"))
            .collect();
        let arguments = format!(
            "<specSet><propSet><type>{}</type>{paths}</propSet><objectSet>{}</objectSet></specSet><options/>",
            object.kind,
            object.xml("obj")
        );
        let found = first(self.call(&collector, "RetrievePropertiesEx", &arguments).await?);
        let sets = found
            .into_iter()
            .flat_map(|found| found.children)
            .filter(|child| child.name == "objects")
            .flat_map(|object| object.children)
            .filter(|child| child.name == "propSet");
        Ok(Properties(sets.collect()))
    }

    fn manager(&self, kind: &'static str, element: &str) -> Result<Reference, SourceError> {
        let name = self.content.text_of(element);
        name.map(|name| Reference::new(kind, name))
            .ok_or_else(|| unexpected("RetrieveServiceContent"))
    }

    /// Calls `method` of `this`; the answer is the element of its response. A session that has expired is renewed once.
    pub(super) async fn call(
        &mut self,
        this: &Reference,
        method: &str,
        arguments: &str,
    ) -> Result<Element, CallFailed> {
        match self.ask(this, method, arguments).await {
            Err(CallFailed::Fault(fault)) if fault.kind == EXPIRED => {
                tracing::info!("the session with vSphere has expired: logging in again");
                self.cookie = None;
                self.log_in().await?;
                self.ask(this, method, arguments).await
            }
            answer => answer,
        }
    }

    async fn ask(&mut self, this: &Reference, method: &str, arguments: &str) -> Result<Element, CallFailed> {
        let envelope = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <Envelope xmlns=\"http://schemas.xmlsoap.org/soap/envelope/\"><Body>\
             <{method} xmlns=\"urn:vim25\">{}{arguments}</{method}></Body></Envelope>",
            this.xml("_this")
        );
        let make = || {
            let request = self
                .agent
                .request(Method::POST, self.url.clone())
                .header(header::CONTENT_TYPE, "text/xml; charset=utf-8")
                .header("SOAPAction", ACTION)
                .body(envelope.clone());
            match &self.cookie {
                Some(cookie) => request.header(header::COOKIE, cookie),
                None => request,
            }
        };
        let answer = self.agent.send_patiently(make, MAX_ANSWER_BYTES).await?;
        if let Some(cookie) = session_cookie(&answer.headers) {
            self.cookie = Some(cookie);
        }
        response(method, answer.status, &answer.body)
    }
}

/// The finding of [`Session::properties`].
pub(super) struct Properties(Vec<Element>);

impl Properties {
    /// The value at this path.
    pub(super) fn get(&self, path: &str) -> Option<&Element> {
        self.0
            .iter()
            .find(|set| set.text_of("name") == Some(path))
            .and_then(|set| set.child("val"))
    }
}

/// URL for calls of vSphere: `/sdk` below its own.
fn sdk(endpoint: &Url) -> Url {
    let mut url = endpoint.clone();
    let path = url.path().trim_end_matches('/');
    if !path.ends_with("/sdk") {
        url.set_path(&format!("{path}/sdk"));
    }
    url
}

/// `name=value` of the first cookie that is set.
fn session_cookie(headers: &HeaderMap) -> Option<String> {
    let cookie = headers.get(header::SET_COOKIE)?.to_str().ok()?;
    Some(cookie.split(';').next()?.trim().to_owned())
}

fn unexpected(method: &str) -> SourceError {
    invalid(format!("vSphere answers {method} with something else"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_go_to_sdk() {
        for (endpoint, expected) in [
            ("https://vcenter", "https://vcenter/sdk"),
            ("https://vcenter/", "https://vcenter/sdk"),
            ("https://vcenter/sdk", "https://vcenter/sdk"),
            ("https://proxy/vcenter/sdk/", "https://proxy/vcenter/sdk/"),
        ] {
            assert_eq!(sdk(&Url::parse(endpoint).unwrap()).as_str(), expected);
        }
    }
}
