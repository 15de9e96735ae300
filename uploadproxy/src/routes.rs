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
