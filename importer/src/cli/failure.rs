//! A command that failed: its sentence and its exit code.

use std::fmt;
use std::io::ErrorKind;

use datapath::Error;
use datapath::error::{DecodeError, FormatError, SourceError, SourceErrorKind};
use program::command_line::FailedCommand;
use program::exit::ExitReason;
use program::signal::StopSignal;
use program::start::ProcessStartError;

/// A command that did not succeed.
#[derive(Debug)]
pub enum ImporterCommandError {
    /// The command line cannot be carried out.
    Usage(String),
    /// The transfer failed, at one of its stages.
    Transfer(Error),
    /// A check found this number of errors in an image.
    Damaged(u64),
    /// A bug, or a system that refuses the most basic things.
    Internal(String),
    /// A signal ended the command.
    Signalled(StopSignal),
}

impl ImporterCommandError {
    /// The stage to blame, for scripts.
    pub fn failed_stage(&self) -> Option<&'static str> {
        match self {
            Self::Transfer(error) => error.stage().map(|stage| stage.name()),
            Self::Damaged(_) => Some("format"),
            Self::Usage(_) | Self::Internal(_) | Self::Signalled(_) => None,
        }
    }
}

impl FailedCommand for ImporterCommandError {
    fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Internal(_) | Self::Transfer(Error::Thread(_) | Error::Stopped) => ExitReason::Internal,
            Self::Usage(_) => ExitReason::Usage,
            Self::Transfer(Error::Source(_)) => ExitReason::Source,
            Self::Transfer(Error::Format(format)) if format.is_too_large() => ExitReason::NoSpace,
            Self::Transfer(Error::Decode(_) | Error::Format(_)) | Self::Damaged(_) => ExitReason::Image,
            Self::Transfer(Error::Checksum { .. }) => ExitReason::Checksum,
            Self::Transfer(Error::Target(target)) if target.is_no_space() => ExitReason::NoSpace,
            Self::Transfer(Error::Target(_)) => ExitReason::Target,
            Self::Signalled(signal) => ExitReason::Signalled(*signal),
        }
    }
}

impl fmt::Display for ImporterCommandError {
    /// One line for the user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Usage(text) | Self::Internal(text) => text.clone(),
            Self::Damaged(count) => format!(
                "the image has {count} error(s): repair a copy with `qemu-img check -r all`, or restore it from a backup"
            ),
            Self::Transfer(Error::Target(target)) if target.source.kind() == ErrorKind::AlreadyExists => {
                format!("{target}: pass --force to replace it")
            }
            // CDI's words for these are about a pod and its claim.
            Self::Transfer(Error::Source(source)) => source.plain_words().to_owned(),
            Self::Transfer(Error::Decode(DecodeError::Empty)) => {
                "the source is empty: 0 bytes of an image are in it".to_owned()
            }
            Self::Transfer(Error::Format(FormatError::TooLarge { virtual_size, available })) => {
                format!("the disk has {virtual_size} bytes, and the target has room for {available}")
            }
            Self::Transfer(error) => error.to_string(),
            Self::Signalled(signal) => format!("stopped by {}", signal.name()),
        };
        f.write_str(&text.replace(['\n', '\r'], " "))
    }
}

impl From<ProcessStartError> for ImporterCommandError {
    fn from(error: ProcessStartError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl From<Error> for ImporterCommandError {
    fn from(error: Error) -> Self {
        match error {
            Error::Source(source) if source.kind() == SourceErrorKind::Stopped => {
                Self::Transfer(Error::Stopped)
            }
            other => Self::Transfer(other),
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

    use datapath::error::TargetError;

    use super::*;

    fn target(errno: rustix::io::Errno) -> Error {
        let source = io::Error::from_raw_os_error(errno.raw_os_error());
        Error::Target(TargetError { action: "write", path: "/d".to_owned(), source })
    }

    #[test]
    fn every_kind_of_failure_has_its_documented_code() {
        let checksum = Error::Checksum { expected: "md5:a".to_owned(), calculated: "md5:b".to_owned() };
        let too_large = FormatError::TooLarge { virtual_size: 2, available: 1 };
        let not_found = SourceError::new(SourceErrorKind::Status(404), "no");
        for (failure, code) in [
            (ImporterCommandError::Internal(String::new()), 1),
            (ImporterCommandError::Usage(String::new()), 2),
            (not_found.into(), 3),
            (Error::from(DecodeError::Empty).into(), 4),
            (Error::from(too_large).into(), 5),
            (target(rustix::io::Errno::NOSPC).into(), 5),
            (checksum.into(), 6),
            (target(rustix::io::Errno::IO).into(), 7),
            (ImporterCommandError::Signalled(StopSignal::Interrupt), 130),
            (ImporterCommandError::Signalled(StopSignal::Terminate), 143),
        ] {
            assert_eq!(failure.exit_reason().exit_code(), code, "{failure:?}");
        }
    }

    #[test]
    fn an_existing_target_tells_about_force() {
        let sentence = ImporterCommandError::from(target(rustix::io::Errno::EXIST)).to_string();
        assert_eq!(sentence, "write /d: file exists: pass --force to replace it");
    }
}
