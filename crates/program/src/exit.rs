//! The exit codes of all programs, in one table.

use std::process::ExitCode;

use crate::signal::StopSignal;

/// The table as shown below `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  success                              5  no space, or too small a target
  1  internal error, or another failure   6  wrong checksum or signature
  2  wrong usage                          7  the target cannot be written
  3  the source cannot be read      128 + n  ended by signal n
  4  the image is corrupt or refused";

/// The reason why a program ends, as scripts and controllers see it. If CDI's contract gives the
/// codes another meaning, the program concerned defines its own codes
/// (`cdi-image-size-detection`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// The work is done. The upload proxy runs until it is stopped, so for it a handled signal is
    /// a success.
    Done,
    /// An internal error, or a server that cannot start or cannot complete an upload that it has
    /// already confirmed. A pod also uses it if its termination message states the reason.
    Internal,
    /// The command line is wrong.
    Usage,
    /// The source cannot be read.
    Source,
    /// The image is corrupt or was rejected.
    Image,
    /// The target has no space left or is too small.
    NoSpace,
    /// The checksum does not match, or the publisher's signature is missing or wrong.
    Checksum,
    /// The target cannot be written, or the target server rejected the request.
    Target,
    /// A signal ended the program before the work was done. The code is not zero, because a
    /// container that exits with zero is not restarted, and the upload that it was waiting for
    /// would never arrive.
    Signalled(StopSignal),
    /// The exit code of klog's `Fatal`. CDI's servers and its cloner exit with it when they cannot
    /// do their work.
    Fatal,
}

impl ExitReason {
    /// Returns the exit code from the table.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Internal => 1,
            Self::Usage => 2,
            Self::Source => 3,
            Self::Image => 4,
            Self::NoSpace => 5,
            Self::Checksum => 6,
            Self::Target => 7,
            Self::Signalled(signal) => signal.exit_code(),
            Self::Fatal => 255,
        }
    }
}

impl From<ExitReason> for ExitCode {
    fn from(exit: ExitReason) -> Self {
        Self::from(exit.exit_code())
    }
}
