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
use stream::error::{SourceError, SourceErrorKind};
use url::Url;

use crate::keyless::{KeylessDemand, KeylessSigner};
use crate::remote::{DiskSizeError, REGISTRY, within_read_limit};

/// The signer that a container image must have.
#[derive(Debug, Clone)]
pub(crate) enum SignatureDemand {
    /// The key in this file.
    Key(PathBuf),
    /// The identity in a certificate.
    Keyless(KeylessDemand),
}

/// Reasons why an image is not known to be from its publisher.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PinningError {
    /// The evidence cannot be used, or does not show it.
    #[error("{}", evidence_text(.0))]
    Evidence(#[from] EvidenceError),
    /// The servers did not answer in time.
    #[error("cannot verify the image: {0}; give --checksum")]
    Unknown(String),
}

fn evidence_text(error: &EvidenceError) -> &str {
    match error {
        EvidenceError::Usage(text) => text,
        EvidenceError::Source(error) => error.plain_words(),
    }
}

impl From<SourceError> for PinningError {
    fn from(error: SourceError) -> Self {
        Self::Evidence(error.into())
    }
}

impl From<DiskSizeError> for PinningError {
    fn from(error: DiskSizeError) -> Self {
        match error {
            DiskSizeError::Unknown(reason) => Self::Unknown(reason),
            other => Self::Unknown(other.to_string()),
        }
    }
}

impl PinningError {
    /// Returns the reason why the program ends.
    pub(crate) fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Evidence(EvidenceError::Usage(_)) => ExitReason::Usage,
            Self::Evidence(EvidenceError::Source(error))
                if error.kind() == SourceErrorKind::Signature =>
            {
                ExitReason::Checksum
            }
            Self::Evidence(_) | Self::Unknown(_) => ExitReason::Source,
        }
    }
}

/// Returns the URL, by its digest, of the container image at `url`, which the signer has signed.
pub(crate) async fn pin_image(
    url: String,
    demand: SignatureDemand,
) -> Result<String, PinningError> {
    if !url.starts_with(REGISTRY) {
        let options = "--verify-key and --certificate-identity are";
        return Err(usage_error(format!("{options} only for {REGISTRY}")));
    }
    let signer: Box<dyn ImageSigner> = match demand {
        SignatureDemand::Key(path) => Box::new(read_key_file(&path)?),
        SignatureDemand::Keyless(demand) => Box::new(KeylessSigner::new(demand)?),
    };
    let pinned =
        within_read_limit(move |network| pin_signed_image(&url, &network, &*signer)).await?;
    Ok(pinned?)
}

/// Returns the checksum that the list at `place` has for the image at `url`.
pub(crate) async fn find_checksum(
    url: String,
    place: String,
    keyring: Option<PathBuf>,
    signature: Option<String>,
) -> Result<String, PinningError> {
    if !is_url(&url) {
        return Err(usage_error("--verify-sums is only for http:// and https://"));
    }
    let keyring = keyring.as_deref().map(read_keyring_file).transpose()?;
    let demand = ListDemand { place, keyring, signature };
    let found = within_read_limit(move |network| look_up(&url, &demand, network)).await?;
    Ok(found?.to_string())
}

fn look_up(
    url: &str,
    demand: &ListDemand,
    network: Arc<Network>,
) -> Result<Checksum, PinningError> {
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

fn usage_error(message: impl Into<String>) -> PinningError {
    EvidenceError::Usage(message.into()).into()
}
