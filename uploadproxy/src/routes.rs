//! The paths that the proxy serves.

use program::cdi::{self, ARCHIVES, RESUMABLE, STATUS};

use crate::page::PageAsset;

/// The route of a request. Paths must match exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyRoute<'p> {
    /// The health check for the kubelet: checks whether the process is running.
    Health,
    /// The readiness check for load balancers: checks whether an upload could begin.
    Ready,
    /// A file of the web page for browsers.
    Page(PageAsset),
    /// A path of the upload server, to which the request is forwarded.
    Upload(UpstreamEndpoint<'p>),
    /// Any other path.
    Unknown,
}

/// A path of an upload server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamEndpoint<'p> {
    /// An upload in one request, as in CDI.
    Whole {
        /// The path of the request.
        path: &'p str,
    },
    /// A resumable upload, or the path that creates one. Only disk images can be uploaded this
    /// way.
    Resumable {
        /// The path of the request.
        path: &'p str,
    },
    /// The status of the upload server.
    Status,
}

/// Returns the route for `path`.
pub(crate) fn find_route(path: &str) -> ProxyRoute<'_> {
    match path {
        "/healthz" => return ProxyRoute::Health,
        "/readyz" => return ProxyRoute::Ready,
        "/" => return ProxyRoute::Page(PageAsset::Html),
        "/page.css" => return ProxyRoute::Page(PageAsset::Css),
        "/page.js" => return ProxyRoute::Page(PageAsset::PageJs),
        "/upload.js" => return ProxyRoute::Page(PageAsset::UploadJs),
        "/parts.js" => return ProxyRoute::Page(PageAsset::PartsJs),
        STATUS => return ProxyRoute::Upload(UpstreamEndpoint::Status),
        _ => {}
    }
    if path == RESUMABLE || cdi::resumable_id(path).is_some() {
        return ProxyRoute::Upload(UpstreamEndpoint::Resumable { path });
    }
    match cdi::strip_version(path) {
        Some("upload" | "upload-async" | "upload-form" | "upload-form-async") => {
            ProxyRoute::Upload(UpstreamEndpoint::Whole { path })
        }
        _ => ProxyRoute::Unknown,
    }
}

impl<'p> UpstreamEndpoint<'p> {
    /// Returns the upload server's path for a disk image.
    pub(crate) fn disk_path(self) -> &'p str {
        match self {
            Self::Whole { path } | Self::Resumable { path } => path,
            Self::Status => STATUS,
        }
    }

    /// Returns the id of a resumable upload that has already begun.
    pub(crate) fn upload_id(self) -> Option<&'p str> {
        match self {
            Self::Resumable { path } => cdi::resumable_id(path),
            Self::Whole { .. } | Self::Status => None,
        }
    }

    /// Returns the upload server's path for an archive. All paths for an upload in one request are
    /// mapped to one path of the same API version. Returns `None` for resumable uploads, which are
    /// not supported for archives.
    pub(crate) fn archive_path(self) -> Option<&'p str> {
        match self {
            Self::Whole { path } if path.contains("alpha") => Some(ARCHIVES[1]),
            Self::Whole { .. } => Some(ARCHIVES[0]),
            Self::Status => Some(STATUS),
            Self::Resumable { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_upload_path_exists_in_both_versions_with_one_archive_path() {
        for (version, archive) in [("/v1beta1", ARCHIVES[0]), ("/v1alpha1", ARCHIVES[1])] {
            for name in ["upload", "upload-async", "upload-form", "upload-form-async"] {
                let path = format!("{version}/{name}");
                let ProxyRoute::Upload(endpoint) = find_route(&path) else {
                    panic!("{path}");
                };
                assert_eq!(endpoint.disk_path(), path);
                assert_eq!(endpoint.archive_path(), Some(archive));
            }
            let route = find_route(archive);
            assert_eq!(route, ProxyRoute::Unknown, "clients cannot request the archive path");
        }
    }

    #[test]
    fn ids_of_resumable_uploads_have_only_url_safe_characters() {
        for path in [RESUMABLE.to_owned(), format!("{RESUMABLE}/0aZ-_")] {
            let route = find_route(&path);
            assert_eq!(route, ProxyRoute::Upload(UpstreamEndpoint::Resumable { path: &path }));
        }
        for id in ["", "../status", "a/b", "a%2fb", "a.b", &"a".repeat(65)] {
            assert_eq!(find_route(&format!("{RESUMABLE}/{id}")), ProxyRoute::Unknown, "{id}");
        }
    }

    #[test]
    fn paths_must_match_exactly() {
        for path in [
            "",
            "//",
            "/index.html",
            "/v1beta1/upload/",
            "//v1beta1/upload",
            "/v1beta1/Upload",
            "/v1beta2/upload",
            "/v1beta1/../healthz",
            "/v1alpha1/status",
            "/v1alpha1/upload-resumable",
            "/v1beta1/upload-resumables",
            "/healthz/",
            "/metrics",
            "example.org:443",
        ] {
            assert_eq!(find_route(path), ProxyRoute::Unknown, "{path}");
        }
    }
}
