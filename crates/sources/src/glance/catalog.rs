//! The catalogue of a cloud: which service is where.

use std::fmt;

use datapath::error::SourceError;
use serde::Deserialize;
use url::Url;

use super::access::{Access, Interface};
use crate::error::invalid;
use crate::http::parse_endpoint;
use crate::words::plain;

/// The type of Glance.
const IMAGE: &str = "image";

/// Most names that a sentence lists.
const MAX_NAMES: usize = 8;

/// An answer with a token, of which the token itself is in the head.
#[derive(Debug, Deserialize)]
pub(super) struct Granted {
    token: Token,
}

#[derive(Debug, Deserialize)]
struct Token {
    /// None for a token without a scope.
    #[serde(default)]
    catalog: Vec<Service>,
}

#[derive(Debug, Deserialize)]
struct Service {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    interface: String,
    region: Option<String>,
    region_id: Option<String>,
    url: String,
}

impl Endpoint {
    fn region(&self) -> &str {
        let region = self.region_id.as_deref().or(self.region.as_deref());
        region.unwrap_or_default()
    }

    fn is_in(&self, region: &str) -> bool {
        [&self.region, &self.region_id]
            .iter()
            .any(|own| own.as_deref() == Some(region))
    }
}

impl Granted {
    /// The endpoint of the image service that `access` wants.
    pub(super) fn image_service(&self, access: &Access) -> Result<Url, SourceError> {
        let services = &self.token.catalog;
        if services.is_empty() {
            return Err(invalid(
                "the token is for no services: name the project (by id, or by name and domain) that has the image",
            ));
        }
        let all: Vec<&Endpoint> = services
            .iter()
            .filter(|service| service.kind == IMAGE)
            .flat_map(|service| &service.endpoints)
            .collect();
        if all.is_empty() {
            let kinds = Listed::of(services.iter().map(|service| service.kind.as_str()));
            return Err(invalid(format!(
                "the cloud's catalogue has no image service, only {kinds}"
            )));
        }
        let wanted = access.region.as_deref();
        let near: Vec<&Endpoint> = all
            .iter()
            .copied()
            .filter(|endpoint| wanted.is_none_or(|region| endpoint.is_in(region)))
            .collect();
        let regions = |of: &[&Endpoint]| Listed::of(of.iter().map(|endpoint| endpoint.region()));
        if let (Some(wanted), true) = (wanted, near.is_empty()) {
            return Err(invalid(format!(
                "the cloud has no image service in the region {}: use one of {}",
                plain(wanted),
                regions(&all)
            )));
        }
        let reachable: Vec<&Endpoint> = near
            .iter()
            .copied()
            .filter(|endpoint| endpoint.interface == access.interface.name())
            .collect();
        let Some(first) = reachable.first() else {
            let interfaces = Listed::of(near.iter().map(|endpoint| endpoint.interface.as_str()));
            return Err(invalid(format!(
                "the image service has no {} endpoint: use one of {interfaces}",
                access.interface
            )));
        };
        if reachable.iter().any(|other| other.region() != first.region()) {
            return Err(invalid(format!(
                "the cloud has image services in several regions: name one of {}",
                regions(&reachable)
            )));
        }
        usable(&first.url)
    }
}

/// The URL in a catalogue: it may be anything.
fn usable(text: &str) -> Result<Url, SourceError> {
    let said = "the catalogue's address of the image service cannot be used";
    let url = parse_endpoint(text).map_err(|error| SourceError::caused(error.kind(), said, error))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(invalid(format!("{said}: it has a user, a password or a query")));
    }
    Ok(url)
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Names of a server, for a sentence.
struct Listed(String);

impl Listed {
    fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut distinct: Vec<&str> = Vec::new();
        for name in names {
            // Bounded before it is searched: a catalogue may have tens of thousands.
            if distinct.len() <= MAX_NAMES && !distinct.contains(&name) {
                distinct.push(name);
            }
        }
        let shown: Vec<String> = distinct.iter().take(MAX_NAMES).map(|name| short(name)).collect();
        let rest = if distinct.len() > MAX_NAMES { ", …" } else { "" };
        Self(format!("{}{rest}", shown.join(", ")))
    }
}

/// A name in a list; real ones are words.
fn short(name: &str) -> String {
    const MAX_CHARS: usize = 64;
    printable::line(name, MAX_CHARS)
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
