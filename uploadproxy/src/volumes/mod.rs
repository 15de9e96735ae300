//! The upload server of a PVC: its place, and whether it waits for an upload.

pub(crate) mod cluster;
pub(crate) mod fixed;
mod judge;

use serde::Deserialize;

use crate::token::Grant;

/// The address of an upload server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// The name in its certificate.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The content to be uploaded, which has CDI's names in a file with routes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Content {
    /// A disk image.
    #[default]
    #[serde(rename = "kubevirt")]
    Disk,
    /// A tar.
    Archive,
}

/// A PVC that waits for an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) place: Place,
    pub(crate) content: Content,
}

/// Characters that clients are told of what the API server or an annotation says.
const WORDS_CHARS: usize = 1 << 10;

/// A reason why there can be no upload now, in words for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unavailable {
    #[error("rejecting Upload Request for PVC {0} that doesn't exist")]
    NotFound(String),
    #[error("rejecting Upload Request for PVC {0}, PVC' wasn't created yet")]
    NoPrime(String),
    #[error("PVC {0} is not an upload target")]
    NoTarget(String),
    #[error("rejecting Upload Request for PVC {0} that already finished uploading")]
    Finished(String),
    #[error("rejecting upload request for PVC {pvc} - upload content-type {content_type} is invalid")]
    ContentType { pvc: String, content_type: String },
    /// The text is Go's, and clients know it.
    #[error("context deadline exceeded")]
    TimedOut,
    /// The API server's words.
    #[error("{0}")]
    Api(String),
}

/// The directory of PVCs.
pub(crate) enum Volumes {
    /// The API server.
    Cluster(cluster::Claims),
    /// A file.
    Fixed(fixed::Routes),
}

impl Volumes {
    /// The upload server of a PVC, as soon as it is ready; waits for a while.
    pub(crate) async fn find(&self, grant: &Grant) -> Result<Volume, Unavailable> {
        match self {
            Self::Cluster(claims) => claims.find(grant).await,
            Self::Fixed(routes) => routes.find(grant),
        }
    }
}
