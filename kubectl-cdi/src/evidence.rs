//! Verifies on this machine who published an image, and determines what CDI must verify: a checksum
//! or a digest.

use std::sync::Arc;

use fetch::Network;
use fetch::http::{HttpConfig, HttpSource};
use program::exit::ExitReason;
use publisher::{DocumentReader, EvidenceError, ListDemand, location_name, require_name};
use stream::digest::Checksum;
use stream::error::SourceErrorKind;
use url::Url;

use crate::error::PluginError;
use crate::remote::within_read_limit;

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

/// Runs `work`, which reads evidence from servers, for a limited time.
pub(crate) async fn verify<T: Send + 'static>(
    work: impl FnOnce(Arc<Network>) -> Result<T, EvidenceError> + Send + 'static,
) -> Result<T, PluginError> {
    let verified = within_read_limit(work).await.map_err(|reason| {
        PluginError::unread(format!("cannot verify the image: {reason}; give --checksum"))
    })?;
    Ok(verified?)
}

/// Returns the checksum that the list has for the image at `url`.
pub(crate) fn find_checksum(
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
