//! The catalogue of a cloud, which lists the endpoints of its services.

use fetch::error::invalid_error;
use fetch::http::parse_endpoint;
use fetch::messages::plain_line;
use serde::Deserialize;
use stream::error::SourceError;
use url::Url;

use super::access::GlanceAccess;

/// The type of the image service, Glance, in a catalogue.
const IMAGE: &str = "image";

/// Maximum number of names that a message lists.
const MAX_NAMES: usize = 8;

/// Longest name that a message shows, in characters. Real names are single words.
const MAX_NAME_CHARS: usize = 64;

/// The body of a response with a token; the token itself is in a header.
#[derive(Debug, Deserialize)]
pub(super) struct TokenDocument {
    token: CatalogToken,
}

#[derive(Debug, Deserialize)]
struct CatalogToken {
    /// Empty for a token without a scope.
    #[serde(default)]
    catalog: Vec<CatalogService>,
}

#[derive(Debug, Deserialize)]
struct CatalogService {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<CatalogEndpoint>,
}

#[derive(Debug, Deserialize)]
struct CatalogEndpoint {
    interface: String,
    region: Option<String>,
    region_id: Option<String>,
    url: String,
}

impl CatalogEndpoint {
    fn region_name(&self) -> &str {
        let region = self.region_id.as_deref().or(self.region.as_deref());
        region.unwrap_or_default()
    }

    fn is_in(&self, region: &str) -> bool {
        [&self.region, &self.region_id].iter().any(|own| own.as_deref() == Some(region))
    }
}

impl TokenDocument {
    /// Returns the endpoint of the image service that `access` selects.
    pub(super) fn image_service(&self, access: &GlanceAccess) -> Result<Url, SourceError> {
        let services = &self.token.catalog;
        if services.is_empty() {
            return Err(invalid_error(
                "the token is not valid for any service: name the project that contains the image (by id, or by name and domain)",
            ));
        }
        let all: Vec<&CatalogEndpoint> = services
            .iter()
            .filter(|service| service.kind == IMAGE)
            .flat_map(|service| &service.endpoints)
            .collect();
        if all.is_empty() {
            let kinds = list_names(services.iter().map(|service| service.kind.as_str()));
            return Err(invalid_error(format!(
                "the cloud's catalogue has no image service, only {kinds}"
            )));
        }
        let wanted = access.region.as_deref();
        let near: Vec<&CatalogEndpoint> = all
            .iter()
            .copied()
            .filter(|endpoint| wanted.is_none_or(|region| endpoint.is_in(region)))
            .collect();
        let regions =
            |of: &[&CatalogEndpoint]| list_names(of.iter().map(|endpoint| endpoint.region_name()));
        if let (Some(wanted), true) = (wanted, near.is_empty()) {
            return Err(invalid_error(format!(
                "the cloud has no image service in the region {}: use one of {}",
                plain_line(wanted),
                regions(&all)
            )));
        }
        let reachable: Vec<&CatalogEndpoint> = near
            .iter()
            .copied()
            .filter(|endpoint| endpoint.interface == access.interface)
            .collect();
        let Some(first) = reachable.first() else {
            let interfaces = list_names(near.iter().map(|endpoint| endpoint.interface.as_str()));
            return Err(invalid_error(format!(
                "the image service has no {} endpoint: use one of {interfaces}",
                access.interface
            )));
        };
        if reachable.iter().any(|other| other.region_name() != first.region_name()) {
            return Err(invalid_error(format!(
                "the cloud has image services in several regions: name one of {}",
                regions(&reachable)
            )));
        }
        parse_endpoint_url(&first.url)
    }
}

/// Parses an endpoint URL of a catalogue, which may contain any text.
fn parse_endpoint_url(text: &str) -> Result<Url, SourceError> {
    let said = "the catalogue's address of the image service cannot be used";
    let url = parse_endpoint(text)
        .map_err(|error| SourceError::with_context(error.kind(), said, error))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(invalid_error(format!("{said}: it contains a user, a password or a query")));
    }
    Ok(url)
}

/// Lists distinct names sent by a server, for messages.
fn list_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for name in names {
        // The list is limited while it is built, because a catalogue may contain tens of thousands
        // of names.
        if distinct.len() <= MAX_NAMES && !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    let shown = distinct.iter().take(MAX_NAMES);
    let shown: Vec<String> =
        shown.map(|name| printable::escape_line(name, MAX_NAME_CHARS)).collect();
    let rest = if distinct.len() > MAX_NAMES { ", …" } else { "" };
    format!("{}{rest}", shown.join(", "))
}
