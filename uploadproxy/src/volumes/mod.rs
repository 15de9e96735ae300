//! Finds the upload server of a PVC, and checks that the PVC is waiting for an upload.

pub(crate) mod cluster;
mod judge;

use std::collections::HashMap;

use crate::token::UploadGrant;

/// The address of an upload server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UpstreamAddress {
    /// The host name, which the server's certificate must also contain.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// The content of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadContent {
    /// A disk image.
    Disk,
    /// A tar archive.
    Archive,
}

/// A PVC that is waiting for an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingClaim {
    /// The address of its upload server.
    pub place: UpstreamAddress,
    /// The content that its upload server expects.
    pub content: UploadContent,
}

/// Maximum number of characters that clients receive of an API server's message or of an
/// annotation.
const MESSAGE_CHARS: usize = 1 << 10;

/// Reasons why an upload is not possible now, worded for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnavailableError {
    #[error("rejecting Upload Request for PVC {0} that doesn't exist")]
    NotFound(String),
    #[error("rejecting Upload Request for PVC {0}, PVC' wasn't created yet")]
    NoPrime(String),
    #[error("PVC {0} is not an upload target")]
    NoTarget(String),
    #[error("rejecting Upload Request for PVC {0} that already finished uploading")]
    Finished(String),
    #[error(
        "rejecting upload request for PVC {pvc} - upload content-type {content_type} is invalid"
    )]
    ContentType { pvc: String, content_type: String },
    /// The text is the one that Go uses, because clients recognize it.
    #[error("context deadline exceeded")]
    TimedOut,
    /// The message of the API server.
    #[error("{0}")]
    Api(String),
}

/// The source from which information about PVCs is obtained.
pub enum ClaimDirectory {
    /// The API server of a cluster.
    Cluster(cluster::ClusterClaims),
    /// A fixed list of PVCs and their upload servers, for a proxy without a cluster.
    Fixed(HashMap<UploadGrant, WaitingClaim>),
}

impl ClaimDirectory {
    /// Returns the upload server of a PVC. Waits for a limited time until the server is ready.
    pub(crate) async fn find_volume(
        &self,
        grant: &UploadGrant,
    ) -> Result<WaitingClaim, UnavailableError> {
        match self {
            Self::Cluster(claims) => claims.find_volume(grant).await,
            Self::Fixed(volumes) => volumes
                .get(grant)
                .cloned()
                .ok_or_else(|| UnavailableError::NotFound(grant.pvc.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pvc_that_is_not_listed_does_not_exist() {
        let grant = UploadGrant { namespace: "b".to_owned(), pvc: "disk".to_owned() };
        assert_eq!(
            ClaimDirectory::Fixed(HashMap::new())
                .find_volume(&grant)
                .await
                .unwrap_err()
                .to_string(),
            "rejecting Upload Request for PVC disk that doesn't exist"
        );
    }
}
