//! Verifies on this machine who published an image, and determines what CDI must verify: a checksum
//! or a digest.

use std::path::PathBuf;
use std::sync::Arc;

use datapath::digest::Checksum;
use datapath::error::{SourceError, SourceErrorKind};
use program::exit::ExitReason;
use sources::Network;
use sources::http::{HttpConfig, HttpSource};
use sources::publisher::{
    DocumentReader, ListDemand, is_url, location_name, read_key_file, read_keyring_file,
    require_name,
};
use sources::registry::pin_signed_image;
use url::Url;

use crate::remote::{DiskSizeError, REGISTRY, within_patience};

/// Reasons why an image is not known to be from its publisher.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvidenceError {
    /// An option, or a file that it names, cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The evidence is missing or wrong, or its server cannot be read.
    #[error("{}", .0.plain_words())]
    Source(#[from] SourceError),
    /// The servers did not answer in time.
    #[error("cannot verify the image: {0}; give --checksum")]
    Unknown(String),
}

impl From<DiskSizeError> for EvidenceError {
    fn from(error: DiskSizeError) -> Self {
        match error {
            DiskSizeError::Unknown(reason) => Self::Unknown(reason),
            other => Self::Unknown(other.to_string()),
        }
    }
}

impl EvidenceError {
    /// Returns the reason why the program ends.
    pub(crate) fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Usage(_) => ExitReason::Usage,
            Self::Source(error) if error.kind() == SourceErrorKind::Signature => {
                ExitReason::Checksum
            }
            Self::Source(_) | Self::Unknown(_) => ExitReason::Source,
        }
    }
}

/// Returns the URL, by its digest, of the container image at `url`, which the key in the file `key`
/// has signed.
pub(crate) async fn pin_image(url: String, key: PathBuf) -> Result<String, EvidenceError> {
    if !url.starts_with(REGISTRY) {
        return Err(EvidenceError::Usage(format!("--verify-key is only for {REGISTRY}")));
    }
    let key = read_key_file(&key).map_err(file_error)?;
    let pinned = within_patience(move |network| pin_signed_image(&url, &network, &key)).await?;
    Ok(pinned?)
}

/// Returns the checksum that the list at `place` has for the image at `url`.
pub(crate) async fn find_checksum(
    url: String,
    place: String,
    keyring: Option<PathBuf>,
    signature: Option<String>,
) -> Result<String, EvidenceError> {
    if !is_url(&url) {
        return Err(EvidenceError::Usage(
            "--verify-sums is only for http:// and https://".to_owned(),
        ));
    }
    let keyring = keyring.as_deref().map(read_keyring_file).transpose().map_err(file_error)?;
    let demand = ListDemand { place, keyring, signature };
    let found = within_patience(move |network| look_up(&url, &demand, network)).await?;
    Ok(found?.to_string())
}

fn look_up(
    url: &str,
    demand: &ListDemand,
    network: Arc<Network>,
) -> Result<Checksum, EvidenceError> {
    let asked = require_name(url, "--verify-sums")
        .map_err(|error| EvidenceError::Usage(error.to_string()))?;
    let reader = DocumentReader { network, image: Url::parse(url).ok(), headers: Vec::new() };
    let list = demand.read(&reader).map_err(|error| match error.kind() {
        SourceErrorKind::Io if !is_url(&demand.place) => {
            EvidenceError::Usage(format!("{error}; check --verify-sums"))
        }
        _ => error.into(),
    })?;
    if let Some(checksum) = list.find_asked(&asked)? {
        return Ok(checksum);
    }
    // The list may have the name at which redirects end.
    let source = HttpSource::open(HttpConfig::new(url, &reader.network)?)?;
    let served = location_name(&source.location());
    Ok(list.find(&asked, served.as_deref().unwrap_or(&asked))?)
}

/// A file on this machine that cannot be used is a mistake on the command line.
fn file_error(error: SourceError) -> EvidenceError {
    match error.kind() {
        SourceErrorKind::Signature => error.into(),
        _ => EvidenceError::Usage(error.to_string()),
    }
}
