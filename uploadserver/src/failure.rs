//! Responses to failed uploads, in the wording of CDI's upload server.

use std::path::Path;

use http::StatusCode;
use reporting::messages::{self, ProductKind};
use stream::Error;
use stream::error::{ArchiveErrorKind, DecodeError, FormatError, SourceErrorKind};
use stream::observe::TransferPhase;

/// Prefix of every failure message.
const FAILED: &str = "Saving stream failed: ";

/// Upstream's tests look for this text in the log of the pod.
const TOO_SMALL: &str = "effective image size is larger than the reported available storage: ";

/// The reason why an upload failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UploadError {
    /// The HTTP status of the response.
    pub(crate) status: StatusCode,
    /// The body of the response.
    pub(crate) sentence: String,
    /// True if the response ends its line, as terminals expect. CDI's server does not.
    pub(crate) ends_line: bool,
}

/// The step of an upload that failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailedStep<'d> {
    /// The phase that began last.
    pub(crate) phase: TransferPhase,
    /// True if the image is a raw disk, whose bytes are written unchanged.
    pub(crate) is_raw: bool,
    /// True if the client does not wait for the end of the transfer.
    pub(crate) is_async: bool,
    /// The directory that an archive is unpacked into.
    pub(crate) dir: Option<&'d Path>,
    /// True if the archive is a clone of a filesystem.
    pub(crate) is_clone: bool,
    /// True in a pod, where CDI's wording is expected.
    pub(crate) is_pod: bool,
}

impl UploadError {
    /// Creates an error whose cause is not the image.
    pub(crate) fn new(status: StatusCode, reason: impl std::fmt::Display) -> Self {
        Self { status, sentence: format!("{FAILED}{reason}"), ends_line: false }
    }

    /// Creates the error for a transfer that ended with `error`.
    pub(crate) fn from_error(error: &Error, doing: FailedStep<'_>) -> Self {
        let way_out = way_out(error).map(|way_out| format!("; {way_out}")).unwrap_or_default();
        if !doing.is_pod {
            let (text, keep) = (plain_text(error), messages::keep_advice(error));
            let failed = Self::new(error_status(error), format_args!("{text}{way_out}{keep}"));
            return Self { ends_line: true, ..failed };
        }
        let cause = match error {
            // For an asynchronous upload, upstream makes this check before the conversion, and its
            // message names no phase.
            Error::Format(FormatError::TooLarge { .. }) if doing.is_async => error.to_string(),
            Error::Format(FormatError::TooLarge { .. }) if doing.is_raw => {
                messages::raw_too_large(error)
            }
            Error::Source(source)
                if doing.phase == TransferPhase::Info
                    && source.kind() == SourceErrorKind::Length =>
            {
                messages::header_cut(error)
            }
            _ => match doing.dir {
                Some(dir) if doing.is_clone => {
                    format!("error unarchiving to {}: {error}", dir.display())
                }
                Some(_) => {
                    messages::transfer_error_message(error, doing.phase, ProductKind::Directory)
                }
                None => messages::transfer_error_message(error, doing.phase, ProductKind::Disk),
            },
        };
        if messages::is_too_small(error) {
            return Self::new(StatusCode::BAD_REQUEST, format_args!("{TOO_SMALL}{cause}"));
        }
        Self::new(error_status(error), format_args!("{cause}{way_out}"))
    }
}

/// Returns the text of `error` for people. CDI's own texts name the phase and claims.
fn plain_text(error: &Error) -> String {
    match error {
        Error::Decode(DecodeError::Empty) => {
            "the upload is empty: 0 bytes were received".to_owned()
        }
        Error::Format(FormatError::TooLarge { virtual_size, available }) => {
            messages::plain_too_large(*virtual_size, *available)
        }
        _ => error.to_string(),
    }
}

/// Returns advice about damaged bytes if the error's own text contains none. Texts that are
/// identical in upstream stay unchanged.
fn way_out(error: &Error) -> Option<&'static str> {
    match error {
        Error::Decode(DecodeError::Truncated { .. } | DecodeError::Corrupt { .. }) => {
            Some("compare the file with its checksum, and send it again")
        }
        Error::Format(FormatError::Image(image)) => image.remedy(),
        Error::Target(target) if target.is_denied() && sandbox::restricts_files() => Some(
            "the sandbox allows only the directory that was there at the start: if it was mounted or made again, start the server again",
        ),
        Error::Format(FormatError::Archive(archive)) => match archive.kind {
            ArchiveErrorKind::Truncated(_) => {
                Some("compare the file with its checksum, and send it again")
            }
            ArchiveErrorKind::Name(_) | ArchiveErrorKind::Symlink(_) => {
                Some("create the archive again without this entry")
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns the HTTP status for an error: 400 if the client's bytes cannot become a disk even when
/// sent again, 415 if this kind of content is never supported, and 5xx otherwise.
fn error_status(error: &Error) -> StatusCode {
    match error {
        Error::Format(FormatError::NotDisk(_)) | Error::Decode(DecodeError::Unsupported(_)) => {
            StatusCode::UNSUPPORTED_MEDIA_TYPE
        }
        Error::Format(_) | Error::Decode(_) | Error::Checksum { .. } => StatusCode::BAD_REQUEST,
        Error::Source(source) if source.kind() == SourceErrorKind::Invalid => {
            StatusCode::BAD_REQUEST
        }
        // The upload may succeed once threads can be created again.
        Error::Thread(_) => StatusCode::SERVICE_UNAVAILABLE,
        Error::Source(_) | Error::Target(_) | Error::Stopped => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use stream::memory::MemoryLimitError;

    use super::*;

    #[test]
    fn a_stop_is_an_internal_error_and_a_lack_of_memory_a_bad_request() {
        let image = FailedStep {
            phase: TransferPhase::Info,
            is_raw: true,
            is_async: false,
            dir: None,
            is_clone: false,
            is_pod: true,
        };
        let exceeded = MemoryLimitError { needed: 3, available: 1, limit: 2 };
        let clone = FailedStep { dir: Some(Path::new("/data")), is_clone: true, ..image };
        for (error, doing, status, sentence) in [
            (Error::Stopped, clone, 500, "error unarchiving to /data: "),
            (
                DecodeError::Memory { codec: "zstd", exceeded }.into(),
                image,
                400,
                "Unable to transfer source data to target file: the zstd stream needs 3 bytes of memory, but only 1 of the 2 allowed for \
                 an image are left: recompress it with a smaller window, or give the process more memory",
            ),
        ] {
            let failure = UploadError::from_error(&error, doing);
            let rest = failure.sentence.strip_prefix(FAILED).unwrap();
            assert_eq!(failure.status, status);
            assert!(rest.starts_with(sentence), "{rest}");
        }
    }
}
