//! The paths of the server.

use program::cdi;

/// The meaning of a path. Paths match exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerRoute<'p> {
    /// Is the server there? For the kubelet.
    Health,
    /// For Prometheus.
    Metrics,
    /// The status as JSON.
    Status,
    /// An upload.
    Upload(UploadEndpoint<'p>),
    /// A path that this server does not have.
    Unknown,
}

/// A path of uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadEndpoint<'p> {
    /// An upload in one request.
    Whole(WholeEndpoint),
    /// Beginning of resumable uploads.
    Beginning,
    /// The resumable upload of this name.
    Continuation(&'p str),
}

/// The form of an upload in one request, and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WholeEndpoint {
    /// In the part `file` of multipart/form-data.
    pub(crate) is_form: bool,
    /// Answered as soon as everything is received and verified.
    pub(crate) is_async: bool,
    /// A tar for a directory instead of a disk.
    pub(crate) is_archive: bool,
}

impl UploadEndpoint<'_> {
    /// True if it is not one of CDI's.
    pub(crate) fn is_resumable(self) -> bool {
        !matches!(self, Self::Whole(_))
    }
}

/// The route of `path`.
pub(crate) fn find_route(path: &str) -> ServerRoute<'_> {
    match path {
        // Ready as soon as it listens: an upload in progress is told to who asks for another.
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
        // What follows is ours: the older version has CDI's five paths only.
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

#[cfg(test)]
mod tests {
    use program::cdi::RESUMABLE;

    use super::*;

    #[test]
    fn the_five_ways_to_upload_exist_in_both_versions() {
        for version in ["/v1beta1", "/v1alpha1"] {
            for (name, endpoint) in [
                ("upload", WholeEndpoint::default()),
                ("upload-async", WholeEndpoint { is_async: true, ..WholeEndpoint::default() }),
                ("upload-form", WholeEndpoint { is_form: true, ..WholeEndpoint::default() }),
                ("upload-form-async", WholeEndpoint { is_form: true, is_async: true, is_archive: false }),
                ("upload-archive", WholeEndpoint { is_archive: true, ..WholeEndpoint::default() }),
            ] {
                assert_eq!(
                    find_route(&format!("{version}/{name}")),
                    ServerRoute::Upload(UploadEndpoint::Whole(endpoint))
                );
            }
        }
    }

    #[test]
    fn paths_match_exactly() {
        let resumable = |path| match find_route(path) {
            ServerRoute::Upload(endpoint) => endpoint,
            other => panic!("{other:?}"),
        };
        let path = format!("{RESUMABLE}/a1");
        assert_eq!(resumable(&path), UploadEndpoint::Continuation("a1"));
        assert_eq!(resumable(RESUMABLE), UploadEndpoint::Beginning);
        for path in [
            "",
            "/",
            "/v1beta1/upload/",
            "//v1beta1/upload",
            "/v1beta1/Upload",
            "/v1beta2/upload",
            "/v1alpha1/status",
            "/v1alpha1/upload-resumable/x",
            "/healthz/",
        ] {
            assert_eq!(find_route(path), ServerRoute::Unknown, "{path}");
        }
    }
}
