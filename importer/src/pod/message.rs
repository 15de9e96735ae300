//! The messages of a pod that fails: CDI's controllers, tests and users know these sentences.

use datapath::error::{SourceError, SourceErrorKind};
use datapath::observe::TransferPhase;
use datapath::{Error, disk};
use volume::messages::{self, ProductKind};

/// Everything after that.
pub(super) const PROCESS: &str = "Unable to process data: ";

/// Upstream's words when it reads a container image, which it does when the transfer has begun.
const REGISTRY: &str = "Unable to transfer source data to scratch space: Failed to read registry image: ";

/// The words before the reason why a source of this `kind` could not be opened.
pub(super) fn connect_prefix(kind: &str) -> String {
    match kind {
        "registry" => format!("{PROCESS}{REGISTRY}"),
        _ => format!("Unable to connect to {kind} data source: "),
    }
}

/// A pod that did not do its work.
#[derive(Debug)]
pub(super) enum PodImportError {
    /// Exit 1 with this text; an empty text leaves the termination message alone.
    Text(String),
    /// Exit 0 with this text as JSON: the controller must not try again.
    Final(String),
    /// A signal was obeyed.
    Stopped,
}

impl PodImportError {
    /// The source could not be opened.
    pub(super) fn from_connect(kind: &str, error: &SourceError) -> Self {
        match error.kind() {
            SourceErrorKind::Stopped => Self::Stopped,
            _ => Self::Text(format!("{}{error}", connect_prefix(kind))),
        }
    }

    /// The making of `made` failed while it was in `phase`.
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

    /// The blank disk of `options` could not be made.
    pub(super) fn from_blank(error: &Error, options: &disk::DiskOptions) -> Self {
        if matches!(error, Error::Stopped) {
            return Self::Stopped;
        }
        let (size, path) = (options.available, options.path.display());
        Self::Text(format!(
            "Unable to create blank image: could not create raw image with size {size} in {path}: {error}"
        ))
    }

    /// A failure outside of the stages, such as the last sync.
    pub(super) fn from_process(cause: impl std::fmt::Display) -> Self {
        Self::Text(format!("{PROCESS}{cause}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_checksum_is_final_and_a_stop_is_no_failure_of_the_data() {
        let wrong = Error::Checksum { expected: "md5:a".to_owned(), calculated: "md5:b".to_owned() };
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
            PodImportError::from_transfer(&stopped.into(), TransferPhase::Transfer, ProductKind::Disk),
            PodImportError::Stopped
        ));
        assert!(matches!(
            PodImportError::from_transfer(&Error::Stopped, TransferPhase::Info, ProductKind::Disk),
            PodImportError::Stopped
        ));
    }
}
