//! Reads the upload servers of PVCs from a file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use program::names::{is_label, is_subdomain};
use serde::Deserialize;
use uploadproxy::{UploadContent, UploadGrant, UpstreamAddress, WaitingClaim};
use url::Url;

/// A reason why a file with routes cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoutesError {
    #[error("cannot read {}: {source}; check --static", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot use {}, line {line} (`{content}`): {reason}; `serve --help` shows a route", path.display())]
    Syntax { path: PathBuf, line: usize, content: String, reason: String },
    #[error("cannot use {}: the route of PVC {pvc} in namespace {namespace} {reason}", path.display())]
    Route { path: PathBuf, namespace: String, pvc: String, reason: &'static str },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    route: Vec<Route>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Route {
    namespace: String,
    pvc: String,
    url: Url,
    #[serde(default)]
    content: ContentName,
}

/// CDI's names for the content of a PVC.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ContentName {
    #[default]
    Kubevirt,
    Archive,
}

/// Reads the routes from the TOML file at `path`.
pub(crate) fn read(path: &Path) -> Result<HashMap<UploadGrant, WaitingClaim>, RoutesError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| RoutesError::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<HashMap<UploadGrant, WaitingClaim>, RoutesError> {
    let file: File = toml::from_str(text).map_err(|error| {
        // The error's own text has several lines, and a message must have one.
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        let reason = error.message().lines().collect::<Vec<_>>().join(", ");
        let content = text.lines().nth(line - 1).unwrap_or_default().trim().to_owned();
        RoutesError::Syntax { path: path.to_owned(), line, content, reason }
    })?;
    let mut routes = HashMap::new();
    for route in file.route {
        let complain = |reason| RoutesError::Route {
            path: path.to_owned(),
            namespace: route.namespace.clone(),
            pvc: route.pvc.clone(),
            reason,
        };
        let place = place(&route.url).map_err(complain)?;
        // A token cannot name such a PVC, so the route would never be used.
        if !is_label(&route.namespace) || !is_subdomain(&route.pvc) {
            return Err(complain(
                "has a name that Kubernetes does not allow: use small letters, digits and -",
            ));
        }
        let content = match route.content {
            ContentName::Kubevirt => UploadContent::Disk,
            ContentName::Archive => UploadContent::Archive,
        };
        let grant = UploadGrant { namespace: route.namespace.clone(), pvc: route.pvc.clone() };
        if routes.insert(grant, WaitingClaim { place, content }).is_some() {
            return Err(complain("is there twice: remove one of them"));
        }
    }
    Ok(routes)
}

fn place(url: &Url) -> Result<UpstreamAddress, &'static str> {
    let is_bare = url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    match url.host_str() {
        Some(host) if url.scheme() == "https" && is_bare => Ok(UpstreamAddress {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port_or_known_default().unwrap_or(443),
            older_port: None,
        }),
        _ => Err("needs a URL like https://HOST:PORT, without a path"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_leads_from_a_pvc_to_its_server() {
        let routes = parse(
            Path::new("routes.toml"),
            "[[route]]\nnamespace = \"a\"\npvc = \"disk\"\nurl = \"https://[::1]:9443\"\n\
             [[route]]\nnamespace = \"b\"\npvc = \"files\"\nurl = \"https://localhost/\"\ncontent = \"archive\"\n",
        )
        .unwrap();
        let find = |namespace: &str, pvc: &str| {
            routes.get(&UploadGrant { namespace: namespace.to_owned(), pvc: pvc.to_owned() })
        };
        let disk = find("a", "disk").unwrap();
        assert_eq!((disk.place.host.as_str(), disk.place.port), ("::1", 9443));
        assert_eq!(disk.content, UploadContent::Disk);
        let files = find("b", "files").unwrap();
        assert_eq!((files.place.port, files.content), (443, UploadContent::Archive));
        assert!(find("b", "disk").is_none());
    }
}
