//! The outcomes of requests, for the log and the metrics.

use std::fmt;

use http::StatusCode;

/// The outcome of a request to an upload path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// The upload server reported success.
    Completed,
    /// The upload server refused the request (4xx).
    Rejected,
    /// The upload server failed (5xx).
    Failed,
    /// The client disconnected before the end.
    ClientGone,
    /// The connection to the upload server failed.
    Unreachable,
    /// The certificates for connections to upload servers are not available.
    NoCredentials,
    /// The PVC is not waiting for an upload.
    NotReady,
    /// Too many uploads or requests were in progress.
    Limited,
    /// The token was missing, or was issued for another purpose.
    BadRequest,
    /// The token was invalid.
    Unauthorized,
}

impl RequestOutcome {
    /// All outcomes with their names in the log and the metrics.
    pub(crate) const NAMES: [(Self, &'static str); 10] = [
        (Self::Completed, "completed"),
        (Self::Rejected, "rejected"),
        (Self::Failed, "failed"),
        (Self::ClientGone, "client-gone"),
        (Self::Unreachable, "unreachable"),
        (Self::NoCredentials, "no-credentials"),
        (Self::NotReady, "not-ready"),
        (Self::Limited, "limited"),
        (Self::BadRequest, "bad-request"),
        (Self::Unauthorized, "unauthorized"),
    ];

    /// Returns the outcome for the status of an upload server's response.
    pub(crate) fn from_status(status: StatusCode) -> Self {
        if status.is_client_error() {
            Self::Rejected
        } else if status.is_server_error() {
            Self::Failed
        } else {
            Self::Completed
        }
    }
}

impl fmt::Display for RequestOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.into_iter().find(|(outcome, _)| outcome == self);
        f.write_str(name.map_or("unknown", |(_, name)| name))
    }
}
