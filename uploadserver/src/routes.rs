//! The paths of the server.

use program::cdi;

/// The purpose of a path. Only exact paths match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerRoute<'p> {
    /// The health check of the kubelet.
    Health,
    /// The metrics for Prometheus.
    Metrics,
    /// The status of the server as JSON.
    Status,
    /// A path for uploads.
    Upload(UploadEndpoint<'p>),
    /// A path that this server does not serve.
    Unknown,
}

/// A path for uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadEndpoint<'p> {
    /// An upload in one request.
    Whole(WholeEndpoint),
    /// The path at which resumable uploads are created.
    Beginning,
    /// The resumable upload with this id.
    Continuation(&'p str),
}

/// How an upload in one request is sent and answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WholeEndpoint {
    /// The object is the part `file` of multipart/form-data.
    pub(crate) is_form: bool,
    /// The request is answered as soon as the whole upload is received and verified.
    pub(crate) is_async: bool,
    /// The object is a tar archive for a directory instead of a disk image.
    pub(crate) is_archive: bool,
}

impl UploadEndpoint<'_> {
    /// Returns true for the paths of resumable uploads, which CDI does not support.
    pub(crate) fn is_resumable(self) -> bool {
        !matches!(self, Self::Whole(_))
    }
}

/// Returns the route of `path`.
pub(crate) fn find_route(path: &str) -> ServerRoute<'_> {
    match path {
        // The server is ready as soon as it listens. During an upload, it rejects other uploads
        // itself.
        "/healthz" | "/readyz" => return ServerRoute::Health,
        "/metrics" => return ServerRoute::Metrics,
        _ => {}
    }
    let Some(rest) = cdi::strip_version(path) else {
        return ServerRoute::Unknown;
    };
    let (is_form, is_async, is_archive) = match rest {
        "upload" => (false, false, false),
        "upload-async" => (false, true, false),
        "upload-form" => (true, false, false),
        "upload-form-async" => (true, true, false),
        "upload-archive" => (false, false, true),
        // The paths below this line are our own. The older API version has only CDI's five paths.
        _ if path.starts_with("/v1alpha1/") => return ServerRoute::Unknown,
        "status" => return ServerRoute::Status,
        "upload-resumable" => return ServerRoute::Upload(UploadEndpoint::Beginning),
        other => {
            return match other.strip_prefix("upload-resumable/") {
                Some(id) => ServerRoute::Upload(UploadEndpoint::Continuation(id)),
                None => ServerRoute::Unknown,
            };
        }
    };
    ServerRoute::Upload(UploadEndpoint::Whole(WholeEndpoint { is_form, is_async, is_archive }))
}
