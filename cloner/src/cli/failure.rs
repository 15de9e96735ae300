//! The errors of the commands, with their messages and exit codes.

use std::fmt::Display;

use http::StatusCode;
use https::client::NoResponseError;
use program::command_line::CommandError;
use program::exit::ExitReason;

use crate::clone::CloneError;

/// Returns the command's error for a clone to `url` that failed with `error`. The messages of
/// [`CloneError`] are CDI's and do not name the server, so the URL is added here.
pub(super) fn clone_error(error: &CloneError, url: &str) -> CommandError {
    // The server is the target of a clone.
    let of_server = |sentence: String, advice: &str| {
        CommandError::new(ExitReason::Target, format_args!("{url}: {sentence}; {advice}"))
    };
    match error {
        CloneError::Source(_) => CommandError::new(ExitReason::Source, error),
        CloneError::Transport(error) => {
            let (reason, advice) = describe_transport(error);
            of_server(reason, advice)
        }
        CloneError::Refused(answer) => {
            // An HTML page is meant for browsers, so it is omitted.
            let sentence = if answer.reason.starts_with('<') {
                format!("Unexpected status code {}", answer.status.as_u16())
            } else {
                error.to_string()
            };
            of_server(sentence, refusal_advice(answer.status))
        }
        CloneError::Early(_) => of_server(error.to_string(), "is it the upload server of a clone?"),
        CloneError::Thread(_) | CloneError::Internal(_) => internal_error(error),
    }
}

/// Returns the error for a failure of this program or of the machine.
pub(super) fn internal_error(cause: impl Display) -> CommandError {
    CommandError::new(ExitReason::Internal, cause)
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
