//! The exit codes of all programs, in one table.

use std::process::ExitCode;

use crate::signal::StopSignal;

/// The table, as it stands below `--help`.
pub const HELP: &str = "\
Exit codes:
  0  success                              5  no space, or too small a target
  1  internal error, or another failure   6  the checksum does not match
  2  wrong usage                          7  the target cannot be written
  3  the source cannot be read      128 + n  ended by signal n
  4  the image is corrupt or refused";

/// The end of a program, as scripts and controllers see it. Codes that CDI's contract gives another meaning to are those of the program
/// that it names (`cdi-image-size-detection`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// Done. The work of the upload proxy is to serve until it is stopped: a signal that it has obeyed is a success.
    Done,
    /// A bug, a server that cannot start or cannot keep what it has promised, or a pod whose termination message says why.
    Internal,
    /// A command line that cannot be carried out.
    Usage,
    /// The source cannot be read.
    Source,
    /// The image is corrupt, or refused.
    Image,
    /// No space, or a target that is too small.
    NoSpace,
    /// The checksum does not match.
    Checksum,
    /// The target cannot be written, or is a server that refuses.
    Target,
    /// Ended by a signal before the work was done. Not zero: a container that ends well is not started again, and the upload that it
    /// waited for would never come.
    Signalled(StopSignal),
    /// The `Fatal` of klog, by which CDI's servers and its cloner end when they cannot do their work.
    Fatal,
}

impl ExitReason {
    /// The number of the table.
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
