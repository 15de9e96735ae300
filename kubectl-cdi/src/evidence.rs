//! Verifies on this machine who published an image, and determines what CDI must verify: a checksum
//! or a digest.

use std::sync::Arc;

use fetch::Network;
use fetch::http::{HttpConfig, HttpSource};
use program::exit::ExitReason;
use publisher::{
    DocumentReader, EvidenceError, ImageSigner, ListDemand, location_name, require_name,
};
use stream::digest::Checksum;
use stream::error::SourceErrorKind;
use stream::options::ChosenFormat;
use url::Url;

use crate::cluster::ClusterImport;
use crate::cluster::size::VolumeSize;
use crate::error::PluginError;
use crate::remote::{self, within_read_limit};
use crate::send::UploadWatch;

impl From<EvidenceError> for PluginError {
    fn from(error: EvidenceError) -> Self {
        match error {
            EvidenceError::Usage(text) => Self::usage(text),
            EvidenceError::Source(error) => {
                let is_signature = error.kind() == SourceErrorKind::Signature;
                let exit = if is_signature { ExitReason::Checksum } else { ExitReason::Source };
                Self::new(exit, error.plain_words())
            }
        }
    }
}

/// A source whose publisher has not been verified yet.
pub(crate) struct ImportDemand {
    pub(crate) source: ClusterImport,
    pub(crate) publisher: PublisherDemand,
    /// The size of the new volume. If the user gives none, the image is inspected.
    pub(crate) size: Option<u64>,
    pub(crate) format: Option<ChosenFormat>,
}

/// The publisher that an image must have.
pub(crate) enum PublisherDemand {
    /// Anybody.
    None,
    /// The signer of the container image.
    Signature(Box<dyn ImageSigner>),
    /// The publisher, or the signer, of the list with the checksum.
    List(ListDemand),
}

impl ImportDemand {
    /// Verifies the publisher, and returns the source with the digest or the checksum that CDI has
    /// to verify, and the size of the volume. `watch` shows what takes so long.
    pub(crate) async fn prepare(
        self,
        watch: &UploadWatch,
    ) -> Result<(ClusterImport, VolumeSize), PluginError> {
        let mut source = self.source;
        let url = source.url.clone();
        match self.publisher {
            PublisherDemand::None => {}
            PublisherDemand::Signature(signer) => {
                watch.set_wait_reason("verifying the image's signature");
                let pinning = move |network| Ok(oci::pin_signed_image(&url, &network, &*signer)?);
                source.url = verify_evidence(pinning).await?;
            }
            PublisherDemand::List(list) => {
                watch.set_wait_reason("verifying the list of checksums");
                let finding = move |network| find_checksum(&url, &list, network);
                source.checksum = Some(verify_evidence(finding).await?.to_string());
            }
        }
        let size = match self.size {
            Some(size) => VolumeSize::Given(size),
            None => {
                watch.set_wait_reason("finding out the disk size");
                VolumeSize::ForDisk(remote::disk_bytes(&source, self.format).await?)
            }
        };
        Ok((source, size))
    }
}

/// Runs `work`, which reads evidence from servers, for a limited time.
async fn verify_evidence<T: Send + 'static>(
    work: impl FnOnce(Arc<Network>) -> Result<T, EvidenceError> + Send + 'static,
) -> Result<T, PluginError> {
    let verified = within_read_limit(work).await.map_err(|reason| {
        PluginError::unread(format!("cannot verify the image: {reason}; give --checksum"))
    })?;
    Ok(verified?)
}

/// Returns the checksum that the list has for the image at `url`.
fn find_checksum(
    url: &str,
    demand: &ListDemand,
    network: Arc<Network>,
) -> Result<Checksum, EvidenceError> {
    let asked = require_name(url, "--verify-sums")?;
    let reader = DocumentReader { network, image: Url::parse(url).ok(), headers: Vec::new() };
    let list = demand.read(&reader)?;
    if let Some(checksum) = list.find_asked(&asked)? {
        return Ok(checksum);
    }
    // The list may have the name at which redirects end.
    let source = HttpSource::open(HttpConfig::new(url, &reader.network)?)?;
    let served = location_name(&source.location());
    Ok(list.find(&asked, served.as_deref().unwrap_or(&asked))?)
}
