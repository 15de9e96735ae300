//! Verifies on this machine who published an image, and determines what CDI must verify: a checksum
//! or a digest.

use std::path::PathBuf;
use std::sync::Arc;

use fetch::Network;
use fetch::http::{HttpConfig, HttpSource};
use oci::pin_signed_image;
use program::exit::ExitReason;
use publisher::{
    DocumentReader, EvidenceError, ImageSigner, ListDemand, is_url, location_name, read_key_file,
    read_keyring_file, require_name,
};
use stream::digest::Checksum;
use stream::error::SourceErrorKind;
use url::Url;

use crate::error::PluginError;
use crate::keyless::{KeylessDemand, KeylessSigner};
use crate::remote::{REGISTRY, within_read_limit};

/// The signer that a container image must have.
#[derive(Debug, Clone)]
pub(crate) enum SignatureDemand {
    /// The key in this file.
    Key(PathBuf),
    /// The identity in a certificate.
    Keyless(KeylessDemand),
}

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

/// Returns the URL, by its digest, of the container image at `url`, which the signer has signed.
pub(crate) async fn pin_image(url: String, demand: SignatureDemand) -> Result<String, PluginError> {
    if !url.starts_with(REGISTRY) {
        let options = "--verify-key and --certificate-identity are";
        return Err(PluginError::usage(format!("{options} only for {REGISTRY}")));
    }
    let signer: Box<dyn ImageSigner> = match demand {
        SignatureDemand::Key(path) => Box::new(read_key_file(&path)?),
        SignatureDemand::Keyless(demand) => Box::new(KeylessSigner::new(demand)?),
    };
    verify(move |network| Ok(pin_signed_image(&url, &network, &*signer)?)).await
}

/// Returns the checksum that the list at `place` has for the image at `url`.
pub(crate) async fn find_checksum(
    url: String,
    place: String,
    keyring: Option<PathBuf>,
    signature: Option<String>,
) -> Result<String, PluginError> {
    if !is_url(&url) {
        return Err(PluginError::usage("--verify-sums is only for http:// and https://"));
    }
    let keyring = keyring.as_deref().map(read_keyring_file).transpose()?;
    let demand = ListDemand { place, keyring, signature };
    Ok(verify(move |network| look_up(&url, &demand, network)).await?.to_string())
}

/// Runs `work`, which reads the evidence from servers, for a limited time.
async fn verify<T: Send + 'static>(
    work: impl FnOnce(Arc<Network>) -> Result<T, EvidenceError> + Send + 'static,
) -> Result<T, PluginError> {
    let verified = within_read_limit(work).await.map_err(|reason| {
        let message = format!("cannot verify the image: {reason}; give --checksum");
        PluginError::new(ExitReason::Source, message)
    })?;
    Ok(verified?)
}

fn look_up(
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
