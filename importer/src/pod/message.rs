//! The messages of a pod that fails. CDI's controllers, tests and users know these sentences.

use datapath::disk;
use reporting::messages::{self, ProductKind};
use stream::Error;
use stream::error::{SourceAdvice, SourceError, SourceErrorKind};
use stream::observe::TransferPhase;

use super::image_volume::ImageVolumeError;

/// Prefix of most messages. Failures to connect to the source have prefixes of their own.
pub(super) const PROCESS: &str = "Unable to process data: ";

/// Upstream's words for a failure while it fills the scratch space.
const SCRATCH: &str = "Unable to transfer source data to scratch space: ";

/// Upstream's words for a failure to read a container image. The text follows [`SCRATCH`],
/// because upstream reads it only after the transfer has begun.
const REGISTRY: &str = "Failed to read registry image: ";

/// Returns the prefix of messages about a source of this `kind` that could not be opened.
pub(super) fn connect_prefix(kind: &str) -> String {
    match kind {
        "registry" => format!("{PROCESS}{SCRATCH}{REGISTRY}"),
        _ => format!("Unable to connect to {kind} data source: "),
    }
}

/// Returns what the author of a DataVolume can do about `error`, as the end of a sentence.
fn advice(error: &SourceError) -> &'static str {
    match error.advice() {
        Some(SourceAdvice::TrustAuthority) => {
            "; add its authority to the ConfigMap that the DataVolume's certConfigMap names"
        }
        _ => "",
    }
}

/// The reason why a pod did not do its work.
#[derive(Debug)]
pub(super) enum PodImportError {
    /// Exit with code 1 and this text. An empty text leaves the termination message unchanged.
    Text(String),
    /// Exit with code 0 and this text as JSON, so that the controller does not retry.
    Final(String),
    /// A signal stopped the work.
    Stopped,
}

impl PodImportError {
    /// Creates the error for a source that could not be opened.
    pub(super) fn from_connect(kind: &str, error: &SourceError) -> Self {
        match error.kind() {
            SourceErrorKind::Stopped => Self::Stopped,
            _ => Self::Text(format!("{}{error}{}", connect_prefix(kind), advice(error))),
        }
    }

    /// Creates the error for an image that the kubelet has mounted, and whose disk cannot be used.
    pub(super) fn from_image_volume(error: &ImageVolumeError) -> Self {
        let read = if matches!(error, ImageVolumeError::Bootc(_)) { REGISTRY } else { "" };
        Self::Text(format!("{PROCESS}{SCRATCH}{read}{error}"))
    }

    /// Creates the error for a transfer that failed in `phase` while it made `made`.
    pub(super) fn from_transfer(error: &Error, phase: TransferPhase, made: ProductKind) -> Self {
        if messages::is_stop(error) {
            return Self::Stopped;
        }
        let text = format!("{PROCESS}{}", messages::transfer_error_message(error, phase, made));
        match error {
            Error::Checksum { .. } => Self::Final(text),
            _ => Self::Text(text),
        }
    }

    /// Creates the error for a blank disk that could not be made with `options`.
    pub(super) fn from_blank(error: &Error, options: &disk::DiskOptions) -> Self {
        if matches!(error, Error::Stopped) {
            return Self::Stopped;
        }
        let (size, path) = (options.available, options.path.display());
        Self::Text(format!(
            "Unable to create blank image: could not create raw image with size {size} in {path}: {error}"
        ))
    }

    /// Creates the error for a failure outside the phases of a transfer, such as the last sync.
    pub(super) fn from_process(cause: impl std::fmt::Display) -> Self {
        Self::Text(format!("{PROCESS}{cause}"))
    }
}

#[cfg(test)]
mod tests {
    use stream::digest::ChecksumMismatchError;

    use super::*;

    #[test]
    fn a_wrong_checksum_is_final_and_a_stop_is_not_a_data_error() {
        let wrong =
            ChecksumMismatchError { expected: "md5:a".to_owned(), calculated: "md5:b".to_owned() };
        let wrong = Error::from(wrong);
        let PodImportError::Final(text) =
            PodImportError::from_transfer(&wrong, TransferPhase::Transfer, ProductKind::Disk)
        else {
            panic!("final")
        };
        assert_eq!(
            text,
            "Unable to process data: Unable to transfer source data to target file: checksum validation failed: \
             checksum mismatch: expected md5:a, calculated md5:b"
        );
        let stopped = SourceError::new(SourceErrorKind::Stopped, "stopped");
        assert!(matches!(PodImportError::from_connect("s3", &stopped), PodImportError::Stopped));
        assert!(matches!(
            PodImportError::from_transfer(
                &stopped.into(),
                TransferPhase::Transfer,
                ProductKind::Disk
            ),
            PodImportError::Stopped
        ));
        assert!(matches!(
            PodImportError::from_transfer(&Error::Stopped, TransferPhase::Info, ProductKind::Disk),
            PodImportError::Stopped
        ));
    }
}
