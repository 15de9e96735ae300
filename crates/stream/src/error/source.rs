//! Errors of sources.

use std::error::Error;
use std::fmt;

/// The kind of a source's error. It decides the exit code and whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// Nothing listens, name servers do not answer, or TLS or the proxy refused the connection.
    Connect,
    /// The name of the server, or of the proxy, has no address.
    UnknownHost,
    /// The server answered with a status other than the one needed.
    Status(u16),
    /// The object changed after its first bytes were read.
    Changed,
    /// The body is shorter or longer than its announced length.
    Length,
    /// All bytes arrived, but they do not match the digest that the source itself announced.
    Digest,
    /// The publisher's signature is missing, wrong or made with another key than the user trusts.
    Signature,
    /// No byte arrived for longer than the limit.
    Stalled,
    /// Reading was interrupted, and the source cannot be resumed from the middle.
    NotResumable,
    /// Configuration or input that can never work, such as an invalid URL or header.
    Invalid,
    /// Any other error while reading.
    Io,
    /// Stopped on request while waiting for the source.
    Stopped,
}

/// Kind of the error when all bytes arrived, but do not match the checksum that the user
/// requested.
pub(super) const CHECKSUM: &str = "checksum";

impl SourceErrorKind {
    /// Names of all kinds and, last, the name for a wrong checksum. A stop is left out because it
    /// does not count as an error.
    pub(super) const NAMES: [&'static str; 12] = [
        "connect",
        "unknown-host",
        "status",
        "changed",
        "length",
        "digest",
        "signature",
        "stalled",
        "not-resumable",
        "invalid",
        "io",
        CHECKSUM,
    ];

    /// The lower-case name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::UnknownHost => "unknown-host",
            Self::Status(_) => "status",
            Self::Changed => "changed",
            Self::Length => "length",
            Self::Digest => "digest",
            Self::Signature => "signature",
            Self::Stalled => "stalled",
            Self::NotResumable => "not-resumable",
            Self::Invalid => "invalid",
            Self::Io => "io",
            Self::Stopped => "stopped",
        }
    }
}

/// The remedy of a failure. Each program names the option with which its user can apply it, if it
/// has such an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceAdvice {
    /// No further advice: the message states the remedy.
    InMessage,
    /// Write the address as a URL.
    WriteUrl,
    /// Trust the authority that has signed the server's certificate.
    TrustAuthority,
    /// Correct the address.
    CheckAddress,
    /// Give a user name and a password.
    GiveLogin,
    /// Correct the name of the NBD export.
    CheckExport,
    /// Correct the path of the socket.
    CheckSocket,
    /// Name the directory of an image layout.
    NameDirectory,
    /// Name the tar of an image layout.
    NameTar,
    /// Fetch the map of a backup again.
    FetchMap,
    /// Copy a file of a backup again.
    CopyBackup,
    /// Correct the name of the object.
    CheckObject,
    /// Correct the name of the bucket, or where the store is.
    CheckBucket,
    /// Give keys that may read the object.
    GiveKeys,
    /// Correct the name of the key, which is the user name.
    CheckUser,
    /// Correct the secret of the key, which is the password.
    CheckPassword,
    /// Correct user name and password.
    CheckLogin,
    /// Correct the name of the image in a registry.
    CheckImage,
    /// Correct the name or the tag of the image.
    CheckTag,
}

impl SourceAdvice {
    /// Returns the remedy for an error code of an object store (S3 API reference, list of error
    /// codes) or of a registry (OCI distribution specification, error codes).
    pub fn of_server_code(code: &str) -> Option<Self> {
        Some(match code {
            "NoSuchKey" => Self::CheckObject,
            "NoSuchBucket" => Self::CheckBucket,
            "AccessDenied" => Self::GiveKeys,
            "InvalidAccessKeyId" => Self::CheckUser,
            "SignatureDoesNotMatch" => Self::CheckPassword,
            "UNAUTHORIZED" => Self::CheckLogin,
            "NAME_UNKNOWN" => Self::CheckImage,
            "MANIFEST_UNKNOWN" => Self::CheckTag,
            _ => return None,
        })
    }
}

/// Longest message of a source in characters. The limit leaves room for our own text, however long
/// a server's message is.
const MAX_MESSAGE_CHARS: usize = 2000;

/// A failure of the source stage. The message never contains a secret.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    kind: SourceErrorKind,
    message: String,
    plain: Option<String>,
    /// The cause in the end, in a few words, if the message says more.
    short: Option<String>,
    advice: Option<SourceAdvice>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl SourceError {
    /// Creates a failure of `kind` with a complete sentence for the user. Parts of the sentence
    /// may be text from a server, so it is escaped to a single line of bounded length.
    pub fn new(kind: SourceErrorKind, message: impl Into<String>) -> Self {
        let message = printable::escape_line(&message.into(), MAX_MESSAGE_CHARS);
        Self { kind, message, plain: None, short: None, advice: None, source: None }
    }

    /// Creates a failure of `kind` while doing `what`. The sentence is `what: cause`.
    pub fn with_context(
        kind: SourceErrorKind,
        what: impl fmt::Display,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        let cause = cause.into();
        let error = Self::new(kind, format!("{what}: {cause}"));
        let Some(known) = cause.downcast_ref::<Self>() else {
            return error.with_short_cause(&cause.to_string()).with_cause(cause);
        };
        let plain = known.plain.as_ref().map(|plain| format!("{what}: {plain}"));
        let plain = plain.map(|plain| printable::escape_line(&plain, MAX_MESSAGE_CHARS));
        Self { plain, ..error.with_short_cause(known.short_cause()) }.with_cause(cause)
    }

    /// Returns the failure with `what` failed because of it, as the sentence `what: error`. A stop
    /// needs no words.
    #[must_use]
    pub fn in_context(self, what: impl fmt::Display) -> Self {
        match self.kind {
            SourceErrorKind::Stopped => self,
            kind => Self::with_context(kind, what, self),
        }
    }

    /// Creates a failure of `kind` with the sentence of `cause`.
    pub fn from_cause(
        kind: SourceErrorKind,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        let cause = cause.into();
        Self::new(kind, cause.to_string()).with_cause(cause)
    }

    /// Adds `cause` to the chain of causes. The sentence must already contain what the user should
    /// know about it.
    #[must_use]
    pub fn with_cause(self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let cause = cause.into();
        let of_cause = cause.downcast_ref::<Self>().and_then(|cause| cause.advice);
        Self { advice: self.advice.or(of_cause), source: Some(cause), ..self }
    }

    /// Adds advice.
    #[must_use]
    pub fn with_advice(self, advice: impl Into<Option<SourceAdvice>>) -> Self {
        Self { advice: advice.into().or(self.advice), ..self }
    }

    /// The advice of this failure or of its cause.
    pub fn advice(&self) -> Option<SourceAdvice> {
        self.advice
    }

    /// Adds a sentence for users of the command line. It is needed where the main message is fixed
    /// by CDI, whose tests and controllers match it.
    #[must_use]
    pub fn with_plain_words(self, words: &str) -> Self {
        Self { plain: Some(printable::escape_line(words, MAX_MESSAGE_CHARS)), ..self }
    }

    /// The sentence for users of the command line; the main message if no other was added.
    pub fn plain_words(&self) -> &str {
        self.plain.as_deref().unwrap_or(&self.message)
    }

    /// Adds the cause in a few words.
    #[must_use]
    pub fn with_short_cause(self, cause: &str) -> Self {
        Self { short: Some(printable::escape_line(cause, MAX_MESSAGE_CHARS)), ..self }
    }

    /// The cause in a few words, if they are known; otherwise the main message.
    pub fn short_cause(&self) -> &str {
        self.short.as_deref().unwrap_or(&self.message)
    }

    /// The kind, for callers that branch on it.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_but_a_stop_are_listed() {
        let kinds = [
            SourceErrorKind::Connect,
            SourceErrorKind::UnknownHost,
            SourceErrorKind::Status(404),
            SourceErrorKind::Changed,
            SourceErrorKind::Length,
            SourceErrorKind::Digest,
            SourceErrorKind::Signature,
            SourceErrorKind::Stalled,
            SourceErrorKind::NotResumable,
            SourceErrorKind::Invalid,
            SourceErrorKind::Io,
        ];
        let names: Vec<&str> =
            kinds.map(SourceErrorKind::name).into_iter().chain([CHECKSUM]).collect();
        assert_eq!(names, SourceErrorKind::NAMES);
    }
}
