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
    /// Another port, at which the server is if it cannot be reached at the first.
    pub older_port: Option<u16>,
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

/// Returns the sentence for a PVC that does not exist.
fn missing_claim(pvc: &str) -> String {
    format!("rejecting Upload Request for PVC {pvc} that doesn't exist")
}

/// The source from which information about PVCs is obtained.
pub enum ClaimDirectory {
    /// The API server of a cluster.
    Cluster(cluster::ClusterClaims),
    /// A fixed list of PVCs and their upload servers, for a proxy without a cluster.
    Fixed(HashMap<UploadGrant, WaitingClaim>),
}

impl ClaimDirectory {
    /// Returns the upload server of a PVC. Waits for a limited time until the server is ready. The
    /// error is the reason why an upload is not possible now, worded for the client.
    pub(crate) async fn find_volume(&self, grant: &UploadGrant) -> Result<WaitingClaim, String> {
        match self {
            Self::Cluster(claims) => claims.find_volume(grant).await,
            Self::Fixed(volumes) => {
                volumes.get(grant).cloned().ok_or_else(|| missing_claim(&grant.pvc))
            }
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
            ClaimDirectory::Fixed(HashMap::new()).find_volume(&grant).await.unwrap_err(),
            "rejecting Upload Request for PVC disk that doesn't exist"
        );
    }
}
