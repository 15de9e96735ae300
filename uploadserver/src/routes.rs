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
    /// An upload in one request.
    Upload(UploadEndpoint),
    /// Beginning of resumable uploads.
    Resumable,
    /// The resumable upload of this name.
    Resume(&'p str),
    /// A path that this server does not have.
    Unknown,
}

/// The form of an upload in one request, and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UploadEndpoint {
    /// In the part `file` of multipart/form-data.
    pub(crate) is_form: bool,
    /// Answered as soon as everything is received and verified.
    pub(crate) is_async: bool,
    /// A tar for a directory instead of a disk.
    pub(crate) is_archive: bool,
}

/// The route of `path`.
pub(crate) fn find_route(path: &str) -> ServerRoute<'_> {
    match path {
        "/healthz" => return ServerRoute::Health,
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
        "upload-resumable" => return ServerRoute::Resumable,
        other => {
            return match other.strip_prefix("upload-resumable/") {
                Some(id) => ServerRoute::Resume(id),
                None => ServerRoute::Unknown,
            };
        }
    };
    ServerRoute::Upload(UploadEndpoint {
        is_form,
        is_async,
        is_archive,
    })
}

#[cfg(test)]
mod tests {
    use program::cdi::RESUMABLE;

    use super::*;

    #[test]
    fn the_five_ways_to_upload_exist_in_both_versions() {
        for version in ["/v1beta1", "/v1alpha1"] {
            for (name, endpoint) in [
                ("upload", UploadEndpoint::default()),
                (
                    "upload-async",
                    UploadEndpoint {
                        is_async: true,
                        ..UploadEndpoint::default()
                    },
                ),
                (
                    "upload-form",
                    UploadEndpoint {
                        is_form: true,
                        ..UploadEndpoint::default()
                    },
                ),
                (
                    "upload-form-async",
                    UploadEndpoint {
                        is_form: true,
                        is_async: true,
                        is_archive: false,
                    },
                ),
                (
                    "upload-archive",
                    UploadEndpoint {
                        is_archive: true,
                        ..UploadEndpoint::default()
                    },
                ),
            ] {
                assert_eq!(
                    find_route(&format!("{version}/{name}")),
                    ServerRoute::Upload(endpoint)
                );
            }
        }
    }

    #[test]
    fn paths_match_exactly() {
        assert_eq!(find_route(&format!("{RESUMABLE}/a1")), ServerRoute::Resume("a1"));
        assert_eq!(find_route(RESUMABLE), ServerRoute::Resumable);
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
