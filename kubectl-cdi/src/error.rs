//! The error of all parts of this program: one sentence for the user, which states what to do, and
//! what the program itself has to know about it. Text from other programs is escaped as by
//! [`printable`]; no sentence contains parts of a kubeconfig or credentials.

use std::fmt::Display;

use program::command_line::FailedCommand;
use program::exit::ExitReason;
use program::start::ProcessStartError;
use program::threads;
use stream::error::ThreadStartError;

/// The part of an error on which the program acts, apart from its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PluginErrorKind {
    /// A temporary failure, such as a broken network or a server that is starting.
    Passing,
    /// The user lacks a permission (RBAC).
    Denied,
    /// CDI is not installed in the cluster.
    NoCdi,
    /// The response does not come from a Kubernetes API server, or not from this part of it.
    NotKubernetes,
    /// The object does not exist.
    NotFound,
    /// Another program has changed the object since it was read.
    Changed,
    /// The upload server does not accept this image for this volume.
    Rejected,
    /// The program only reports the error.
    Other,
}

/// The failure of a command, or of a part of it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    pub(crate) kind: PluginErrorKind,
    pub(crate) exit: ExitReason,
    message: String,
}

impl PluginError {
    /// Creates an error that the program only reports.
    pub(crate) fn new(exit: ExitReason, message: impl Into<String>) -> Self {
        Self { kind: PluginErrorKind::Other, exit, message: message.into() }
    }

    /// Creates an error of this kind.
    pub(crate) fn of_kind(kind: PluginErrorKind, message: impl Into<String>) -> Self {
        Self { kind, ..Self::new(ExitReason::Target, message) }
    }

    /// Creates the error for an image that the upload server does not accept.
    pub(crate) fn rejected(exit: ExitReason, message: impl Into<String>) -> Self {
        Self { kind: PluginErrorKind::Rejected, ..Self::new(exit, message) }
    }

    /// Creates the error of a temporary failure.
    pub(crate) fn passing(message: impl Into<String>) -> Self {
        Self::of_kind(PluginErrorKind::Passing, message)
    }

    /// Creates the error for a target that cannot be written, or a cluster that cannot be used.
    pub(crate) fn target(message: impl Into<String>) -> Self {
        Self::new(ExitReason::Target, message)
    }

    /// Creates the error for a source, such as an image or a volume, that cannot be read.
    pub(crate) fn unread(message: impl Into<String>) -> Self {
        Self::new(ExitReason::Source, message)
    }

    /// Creates the error for a wrong command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitReason::Usage, message)
    }

    /// Creates the error for a failure inside this program.
    pub(crate) fn internal(cause: impl Display) -> Self {
        Self::new(ExitReason::Internal, cause.to_string())
    }

    /// Creates the error for an output that cannot be written.
    pub(crate) fn stdout(cause: impl Display) -> Self {
        Self::internal(format_args!("cannot write to stdout: {cause}"))
    }

    /// Returns true for temporary failures.
    pub(crate) fn may_pass(&self) -> bool {
        self.kind == PluginErrorKind::Passing
    }
}

impl FailedCommand for PluginError {
    fn exit_reason(&self) -> ExitReason {
        self.exit
    }
}

impl From<ProcessStartError> for PluginError {
    fn from(error: ProcessStartError) -> Self {
        Self::internal(error)
    }
}

impl From<ThreadStartError> for PluginError {
    fn from(error: ThreadStartError) -> Self {
        Self::internal(error)
    }
}

/// Runs `work` on a thread of its own, where it may block.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PluginError> + Send + 'static,
) -> Result<T, PluginError> {
    let ended = threads::run_blocking(work).await;
    ended.map_err(PluginError::internal)?
}
