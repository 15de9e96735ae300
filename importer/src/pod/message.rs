//! What the pod says when it fails: CDI's controllers, tests and users know these sentences.

use datapath::error::{DecodeError, SourceError, SourceErrorKind, TargetError};
use datapath::observe::Phase;
use datapath::{Error, target};

/// The source could not be opened.
pub(super) const CONNECT: &str = "Unable to connect to http data source: ";
/// Everything after that.
pub(super) const PROCESS: &str = "Unable to process data: ";

const INFO: &str = "Unable to obtain information about data source: ";
const TRANSFER: &str = "Unable to transfer source data to target file: ";
const CONVERT: &str = "Unable to convert source data to target format: ";
const RESIZE: &str = "Unable to resize disk image to requested size: Resize of image failed: ";

/// Why the pod did not do its work.
#[derive(Debug)]
pub(super) enum Failure {
    /// Exit 1 with this text; an empty text leaves the termination message alone.
    Text(String),
    /// Exit 0 with this text as JSON: the controller must not try again.
    Final(String),
    /// A signal was obeyed.
    Stopped,
}

impl Failure {
    /// The source could not be opened.
    pub(super) fn connect(error: &SourceError) -> Self {
        match error.kind() {
            SourceErrorKind::Stopped => Self::Stopped,
            _ => Self::Text(format!("{CONNECT}{error}")),
        }
    }

    /// A transfer failed while it was in `phase`.
    pub(super) fn transfer(error: &Error, phase: Phase) -> Self {
        let wrapper = match error {
            Error::Stopped => return Self::Stopped,
            Error::Source(source) if source.kind() == SourceErrorKind::Stopped => return Self::Stopped,
            Error::Checksum { .. } => return Self::Final(format!("{PROCESS}{TRANSFER}{error}")),
            Error::Decode(DecodeError::Empty) => INFO,
            Error::Source(_) if phase == Phase::Info => INFO,
            // The controllers search for these words and tell the user that the source is to blame.
            Error::Source(_) => {
                return Self::Text(format!("{PROCESS}{TRANSFER}failed to pull image: {error}"));
            }
            Error::Decode(_) => TRANSFER,
            Error::Format(_) => CONVERT,
            Error::Target(_) if phase == Phase::Resize => RESIZE,
            Error::Target(target) => return Self::write(target),
        };
        Self::Text(format!("{PROCESS}{wrapper}{error}"))
    }

    fn write(error: &TargetError) -> Self {
        Self::Text(format!("{PROCESS}{TRANSFER}unable to write to file: {error}"))
    }

    /// The blank disk of `options` could not be made.
    pub(super) fn blank(error: &Error, options: &target::Options) -> Self {
        if matches!(error, Error::Stopped) {
            return Self::Stopped;
        }
        let (size, path) = (options.available, options.path.display());
        Self::Text(format!(
            "Unable to create blank image: could not create raw image with size {size} in {path}: {error}"
        ))
    }

    /// A failure outside of the stages, such as the last sync.
    pub(super) fn process(cause: impl std::fmt::Display) -> Self {
        Self::Text(format!("{PROCESS}{cause}"))
    }
}

#[cfg(test)]
mod tests {
    use datapath::error::FormatError;
    use rustix::io::Errno;

    use super::*;

    fn text(error: impl Into<Error>, phase: Phase) -> String {
        match Failure::transfer(&error.into(), phase) {
            Failure::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    fn target(errno: Errno) -> TargetError {
        let source = std::io::Error::from_raw_os_error(errno.raw_os_error());
        TargetError {
            action: "write",
            path: "/data/disk.img".to_owned(),
            source,
        }
    }

    #[test]
    fn every_stage_has_the_words_of_its_phase() {
        let cut = || SourceError::new(SourceErrorKind::Length, "cut");
        let corrupt = DecodeError::TrailingGarbage {
            codec: "gzip",
            offset: 9,
        };
        for (actual, expected) in [
            (
                text(DecodeError::Empty, Phase::Info),
                "Unable to process data: Unable to obtain information about data source: \
                 could not process image header: EOF",
            ),
            (
                text(cut(), Phase::Info),
                "Unable to process data: Unable to obtain information about data source: cut",
            ),
            (
                text(cut(), Phase::Transfer),
                "Unable to process data: Unable to transfer source data to target file: failed to pull image: cut",
            ),
            (
                text(corrupt, Phase::Transfer),
                "Unable to process data: Unable to transfer source data to target file: the gzip stream is \
                 followed by bytes that do not belong to it, at compressed byte 9",
            ),
            (
                text(
                    FormatError::TooLarge {
                        virtual_size: 2,
                        available: 1,
                    },
                    Phase::Info,
                ),
                "Unable to process data: Unable to convert source data to target format: virtual image size 2 is \
                 larger than the reported available storage 1. A larger PVC is required",
            ),
            (
                text(target(Errno::NOSPC), Phase::Transfer),
                "Unable to process data: Unable to transfer source data to target file: unable to write to file: \
                 write /data/disk.img: no space left on device",
            ),
            (
                text(target(Errno::DQUOT), Phase::Resize),
                "Unable to process data: Unable to resize disk image to requested size: Resize of image failed: \
                 write /data/disk.img: disk quota exceeded",
            ),
        ] {
            assert_eq!(actual, expected);
        }
    }

    #[test]
    fn a_wrong_checksum_is_final_and_a_stop_is_no_failure_of_the_data() {
        let wrong = Error::Checksum {
            expected: "md5:a".to_owned(),
            calculated: "md5:b".to_owned(),
        };
        let Failure::Final(text) = Failure::transfer(&wrong, Phase::Transfer) else {
            panic!("final")
        };
        assert_eq!(
            text,
            "Unable to process data: Unable to transfer source data to target file: checksum validation failed: \
             checksum mismatch: expected md5:a, calculated md5:b"
        );
        let stopped = SourceError::new(SourceErrorKind::Stopped, "stopped");
        assert!(matches!(Failure::connect(&stopped), Failure::Stopped));
        assert!(matches!(
            Failure::transfer(&stopped.into(), Phase::Transfer),
            Failure::Stopped
        ));
        assert!(matches!(
            Failure::transfer(&Error::Stopped, Phase::Info),
            Failure::Stopped
        ));
    }
}
