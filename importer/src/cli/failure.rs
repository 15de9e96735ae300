//! Why a command failed: its sentence and its exit code.

use std::io::ErrorKind;

use daemon::signal::Signal;
use datapath::Error;
use datapath::error::{SourceError, SourceErrorKind};

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The command line cannot be carried out.
    Usage(String),
    /// The transfer failed, at one of its stages.
    Transfer(Error),
    /// A check found so many errors in an image.
    Damaged(u64),
    /// A bug, or a system that refuses the most basic things.
    Internal(String),
    /// A signal ended the command.
    Signalled(Signal),
}

impl Failure {
    /// The exit code, as documented in `docs/importer.md`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Internal(_) | Self::Transfer(Error::Stopped) => 1,
            Self::Usage(_) => 2,
            Self::Transfer(Error::Source(_)) => 3,
            Self::Transfer(Error::Format(format)) if format.is_too_large() => 5,
            Self::Transfer(Error::Decode(_) | Error::Format(_)) | Self::Damaged(_) => 4,
            Self::Transfer(Error::Checksum { .. }) => 6,
            Self::Transfer(Error::Target(target)) => {
                if target.is_no_space() {
                    5
                } else {
                    7
                }
            }
            Self::Signalled(signal) => signal.exit_code(),
        }
    }

    /// The stage to blame, for scripts.
    pub fn stage(&self) -> Option<&'static str> {
        match self {
            Self::Transfer(error) => error.stage().map(|stage| stage.name()),
            Self::Damaged(_) => Some("format"),
            Self::Usage(_) | Self::Internal(_) | Self::Signalled(_) => None,
        }
    }

    /// One line for the user.
    pub fn sentence(&self) -> String {
        let text = match self {
            Self::Usage(text) | Self::Internal(text) => text.clone(),
            Self::Damaged(count) => format!(
                "the image has {count} error(s): repair a copy with `qemu-img check -r all`, or restore it from a backup"
            ),
            Self::Transfer(Error::Target(target)) if target.source.kind() == ErrorKind::AlreadyExists => {
                format!("{target}: pass --force to replace it")
            }
            Self::Transfer(error) => error.to_string(),
            Self::Signalled(signal) => format!("stopped by {}", signal.name()),
        };
        text.replace(['\n', '\r'], " ")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Source(source) if source.kind() == SourceErrorKind::Stopped => {
                Self::Transfer(Error::Stopped)
            }
            other => Self::Transfer(other),
        }
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use datapath::error::{DecodeError, FormatError, TargetError};

    use super::*;

    fn target(errno: rustix::io::Errno) -> Error {
        let source = io::Error::from_raw_os_error(errno.raw_os_error());
        Error::Target(TargetError {
            action: "write",
            path: "/d".to_owned(),
            source,
        })
    }

    #[test]
    fn every_kind_of_failure_has_its_documented_code() {
        let checksum = Error::Checksum {
            expected: "md5:a".to_owned(),
            calculated: "md5:b".to_owned(),
        };
        let too_large = FormatError::TooLarge {
            virtual_size: 2,
            available: 1,
        };
        let not_found = SourceError::new(SourceErrorKind::Status(404), "no");
        for (failure, code) in [
            (Failure::Internal(String::new()), 1),
            (Failure::Usage(String::new()), 2),
            (not_found.into(), 3),
            (Error::from(DecodeError::Empty).into(), 4),
            (Error::from(too_large).into(), 5),
            (target(rustix::io::Errno::NOSPC).into(), 5),
            (checksum.into(), 6),
            (target(rustix::io::Errno::IO).into(), 7),
            (Failure::Signalled(Signal::Interrupt), 130),
            (Failure::Signalled(Signal::Terminate), 143),
        ] {
            assert_eq!(failure.exit_code(), code, "{failure:?}");
        }
    }

    #[test]
    fn an_existing_target_tells_about_force() {
        let sentence = Failure::from(target(rustix::io::Errno::EXIST)).sentence();
        assert_eq!(sentence, "write /d: file exists: pass --force to replace it");
    }
}
