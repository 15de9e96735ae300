//! The errors of the commands, with their messages and exit codes.

use std::fmt;

use datapath::restore::RestoreError;
use diskimage::Format;
use program::command_line::{CommandError, FailedCommand};
use program::exit::ExitReason;
use program::start::ProcessStartError;
use publisher::EvidenceError;
use stream::Error;
use stream::error::{SourceError, SourceErrorKind};

use super::advice;

/// Reasons why a command failed.
#[derive(Debug)]
pub enum ImporterCommandError {
    /// Neither the source nor the image nor the target is the reason.
    Other(CommandError),
    /// The transfer failed. The second field is the name of the source, if it could be opened.
    Transfer(Error, Option<String>),
    /// `check` found this number of errors in the image of this name.
    Damaged(u64, String, Format),
}

impl ImporterCommandError {
    /// Returns the name of the stage that failed. `--progress json` reports it to scripts.
    pub fn failed_stage(&self) -> Option<&'static str> {
        match self {
            Self::Transfer(error, _) => error.stage().map(|stage| stage.name()),
            Self::Damaged(..) => Some("format"),
            Self::Other(_) => None,
        }
    }
}

/// Returns an error for a mistake on the command line, in contrast to a failure of the source.
pub(super) fn usage_error(text: impl fmt::Display) -> ImporterCommandError {
    CommandError::new(ExitReason::Usage, text).into()
}

/// Returns an error for a bug, or for the failure of a basic system operation, such as starting a
/// thread or writing to stdout.
pub(super) fn internal_error(text: impl fmt::Display) -> ImporterCommandError {
    CommandError::new(ExitReason::Internal, text).into()
}

/// Returns a function that adds the source's name to the error of a transfer.
pub(super) fn of_source<E: Into<ImporterCommandError>>(
    name: impl FnOnce() -> String,
) -> impl FnOnce(E) -> ImporterCommandError {
    |error| match error.into() {
        ImporterCommandError::Transfer(error, None) => {
            ImporterCommandError::Transfer(error, Some(name()))
        }
        other => other,
    }
}

impl From<CommandError> for ImporterCommandError {
    fn from(error: CommandError) -> Self {
        Self::Other(error)
    }
}

impl FailedCommand for ImporterCommandError {
    fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Other(error) => error.exit_reason(),
            Self::Transfer(Error::Thread(_) | Error::Stopped, _) => ExitReason::Internal,
            Self::Transfer(Error::Source(source), _)
                if source.kind() == SourceErrorKind::Signature =>
            {
                ExitReason::Checksum
            }
            Self::Transfer(Error::Source(_), _) => ExitReason::Source,
            Self::Transfer(Error::Format(format), _) if format.is_too_large() => {
                ExitReason::NoSpace
            }
            Self::Transfer(Error::Decode(_) | Error::Format(_), _) | Self::Damaged(..) => {
                ExitReason::Image
            }
            Self::Transfer(Error::Checksum { .. }, _) => ExitReason::Checksum,
            Self::Transfer(Error::Target(target), _) if target.is_no_space() => ExitReason::NoSpace,
            Self::Transfer(Error::Target(_), _) => ExitReason::Target,
        }
    }
}

impl fmt::Display for ImporterCommandError {
    /// Writes one line for the user; line breaks within the message become spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Other(error) => error.to_string(),
            Self::Damaged(count, name, format) => {
                format!("{name}: the image has {count} error(s): {}", format.repair_advice())
            }
            Self::Transfer(error, source) => advice::describe(error, source.as_deref()),
        };
        f.write_str(&text.replace(['\n', '\r'], " "))
    }
}

impl From<ProcessStartError> for ImporterCommandError {
    fn from(error: ProcessStartError) -> Self {
        Self::Other(error.into())
    }
}

impl From<Error> for ImporterCommandError {
    fn from(error: Error) -> Self {
        match error {
            // The source did not fail here, so the exit code for source errors would be wrong.
            Error::Source(source) if source.kind() == SourceErrorKind::Stopped => {
                Self::Transfer(Error::Stopped, None)
            }
            other => Self::Transfer(other, None),
        }
    }
}

impl From<RestoreError> for ImporterCommandError {
    fn from(failed: RestoreError) -> Self {
        match (failed.error.into(), failed.file) {
            (Self::Transfer(error, None), file) => Self::Transfer(error, file),
            (other, _) => other,
        }
    }
}

impl From<EvidenceError> for ImporterCommandError {
    fn from(error: EvidenceError) -> Self {
        match error {
            EvidenceError::Usage(text) => usage_error(text),
            EvidenceError::Source(error) => error.into(),
        }
    }
}

impl From<SourceError> for ImporterCommandError {
    fn from(error: SourceError) -> Self {
        Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use program::signal::StopSignal;
    use stream::digest::ChecksumMismatchError;
    use stream::error::{DecodeError, FormatError, TargetError};

    use super::*;

    fn target(errno: rustix::io::Errno) -> Error {
        let source = io::Error::from_raw_os_error(errno.raw_os_error());
        Error::Target(TargetError { action: "write", path: "/d".to_owned(), source })
    }

    #[test]
    fn every_kind_of_failure_has_its_documented_code() {
        let checksum =
            ChecksumMismatchError { expected: "md5:a".to_owned(), calculated: "md5:b".to_owned() };
        let checksum = Error::from(checksum);
        let too_large = FormatError::TooLarge { virtual_size: 2, available: 1 };
        let unsigned = SourceError::new(SourceErrorKind::Signature, "no");
        let not_found = SourceError::new(SourceErrorKind::Status(404), "no");
        for (failure, code) in [
            (internal_error(""), 1),
            (usage_error(""), 2),
            (not_found.into(), 3),
            (Error::from(DecodeError::Empty).into(), 4),
            (Error::from(too_large).into(), 5),
            (target(rustix::io::Errno::NOSPC).into(), 5),
            (checksum.into(), 6),
            (unsigned.into(), 6),
            (target(rustix::io::Errno::IO).into(), 7),
            (CommandError::from_signal(StopSignal::Interrupt).into(), 130),
            (CommandError::from_signal(StopSignal::Terminate).into(), 143),
        ] {
            assert_eq!(failure.exit_reason().exit_code(), code, "{failure:?}");
        }
    }

    #[test]
    fn an_existing_target_suggests_force() {
        let sentence = ImporterCommandError::from(target(rustix::io::Errno::EXIST)).to_string();
        assert_eq!(sentence, "write /d: file exists: pass --force to replace it");
    }
}
