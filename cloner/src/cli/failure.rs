//! The errors of the commands, with their messages and exit codes.

use http::StatusCode;
use https::client::NoResponseError;
use program::command_line::FailedCommand;
use program::exit::ExitReason;
use program::signal::{ShutdownRequest, StopSignal};
use program::start::ProcessStartError;
use sandbox::SandboxError;

use crate::clone::CloneError;

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClonerCommandError {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Source(String),
    #[error("{0}")]
    Server(String),
    #[error("cannot write to stdout: {0}")]
    Output(String),
    #[error("stopped by {}", .0.name())]
    Signalled(StopSignal),
    #[error(transparent)]
    Start(#[from] ProcessStartError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("{0}")]
    Internal(String),
}

impl ClonerCommandError {
    pub(super) fn from_shutdown(shutdown: &ShutdownRequest) -> Self {
        Self::Signalled(shutdown.first_signal().unwrap_or(StopSignal::Terminate))
    }
}

impl FailedCommand for ClonerCommandError {
    fn exit_reason(&self) -> ExitReason {
        match self {
            Self::Internal(_) | Self::Output(_) | Self::Start(_) => ExitReason::Internal,
            Self::Sandbox(error) => error.exit_reason(),
            Self::Usage(_) => ExitReason::Usage,
            Self::Source(_) => ExitReason::Source,
            // The server is the target of a clone.
            Self::Server(_) => ExitReason::Target,
            Self::Signalled(signal) => ExitReason::Signalled(*signal),
        }
    }
}

impl ClonerCommandError {
    /// Returns the command's error for a clone to `url` that failed with `error`. The messages of
    /// [`CloneError`] are CDI's and do not name the server, so the URL is added here.
    pub(super) fn from_clone(error: &CloneError, url: &str) -> Self {
        match error {
            CloneError::Source(_) => Self::Source(error.to_string()),
            CloneError::Transport(error) => {
                let (reason, advice) = describe_transport(error);
                Self::Server(format!("{url}: {reason}; {advice}"))
            }
            CloneError::Refused(answer) => {
                // An HTML page is meant for browsers, so it is omitted.
                let sentence = if answer.reason.starts_with('<') {
                    format!("Unexpected status code {}", answer.status.as_u16())
                } else {
                    error.to_string()
                };
                Self::Server(format!("{url}: {sentence}; {}", refusal_advice(answer.status)))
            }
            CloneError::Early(_) => {
                Self::Server(format!("{url}: {error}; is it the upload server of a clone?"))
            }
            CloneError::Thread(_) | CloneError::Internal(_) => Self::Internal(error.to_string()),
        }
    }
}

/// Returns a description of a connection error, and advice on what to do. The description omits
/// Go's wording, which CDI's cloner uses.
fn describe_transport(error: &NoResponseError) -> (String, &'static str) {
    match error {
        NoResponseError::Unreachable(error) => (
            format!("cannot connect: {}", error.cause),
            "is the address right, and is the server running?",
        ),
        NoResponseError::NoTls(_) => {
            ("it does not speak TLS".to_owned(), "is it the port of an upload server?")
        }
        NoResponseError::UnknownIssuer(_) => (
            "its certificate is not signed by an authority in --cacert".to_owned(),
            "check --cacert",
        ),
        NoResponseError::InvalidCertificate(reason) => {
            (reason.clone(), "check the address, and the clock of this machine")
        }
        // A rejected client certificate can end the connection at any time, because the server's
        // alert races with the first bytes that are sent.
        NoResponseError::Ended(reason) => (
            format!("the server ended the connection ({reason})"),
            "does it accept this client? Check --cert and --key, and the server's log",
        ),
        NoResponseError::Broken(reason) => {
            (reason.clone(), "check the server's log, and clone again")
        }
    }
}

fn refusal_advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "check --cert and --key: the server expects a client certificate with another authority or name"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            "the path of an upload server is /v1beta1/upload"
        }
        _ => "check the server's log",
    }
}
