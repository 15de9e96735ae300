//! Trouble with a source.

use std::error::Error;
use std::fmt;

/// The kind of trouble that a source has; decides exit codes, and if trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// The name does not resolve, nothing listens, TLS or the proxy refused.
    Connect,
    /// The server answered with a status other than the one needed.
    Status(u16),
    /// The object is not the one whose first bytes were read.
    Changed,
    /// The body ended before its announced length, or went beyond it.
    Length,
    /// All bytes came, but not those that the source itself announced.
    Digest,
    /// No byte for longer than the limit.
    Stalled,
    /// The source broke and cannot be continued from the middle.
    NotResumable,
    /// Configuration or input that can never work (bad URL, bad header).
    Invalid,
    /// Anything else that reading met.
    Io,
    /// Stopped on request while waiting for the source.
    Stopped,
}

/// All bytes came, but not those that the user asked for.
pub(super) const CHECKSUM: &str = "checksum";

impl SourceErrorKind {
    /// The names of all kinds but that of a stop, which is no trouble; and that of a wrong checksum.
    // `name` takes them apart, so that it can have no other.
    pub(super) const NAMES: [&'static str; 10] = [
        "connect",
        "status",
        "changed",
        "length",
        "digest",
        "stalled",
        "not-resumable",
        "invalid",
        "io",
        CHECKSUM,
    ];

    /// The lower-case name.
    pub const fn name(self) -> &'static str {
        let [connect, status, changed, length, digest, stalled, not_resumable, invalid, io, _] = Self::NAMES;
        match self {
            Self::Connect => connect,
            Self::Status(_) => status,
            Self::Changed => changed,
            Self::Length => length,
            Self::Digest => digest,
            Self::Stalled => stalled,
            Self::NotResumable => not_resumable,
            Self::Invalid => invalid,
            Self::Io => io,
            Self::Stopped => "stopped",
        }
    }
}

/// Longest message of a source, in characters: whatever servers say, there is room for what is ours.
const MAX_MESSAGE_CHARS: usize = 2000;

/// A failure of the source stage. The message never holds a secret.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    kind: SourceErrorKind,
    message: String,
    plain: Option<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl SourceError {
    /// A failure of `kind` with a whole sentence for the user. Parts of it may be a server's words: whatever they are, it stays one
    /// line of bounded length.
    pub fn new(kind: SourceErrorKind, message: impl Into<String>) -> Self {
        let message = printable::escape_line(&message.into(), MAX_MESSAGE_CHARS);
        Self { kind, message, plain: None, source: None }
    }

    /// A failure of `kind` in doing `what`, as `cause` says. The sentence is `what: cause`.
    pub fn with_context(
        kind: SourceErrorKind,
        what: impl fmt::Display,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        let cause = cause.into();
        let plain = cause.downcast_ref::<Self>().and_then(|cause| cause.plain.as_ref());
        let plain = plain.map(|plain| printable::escape_line(&format!("{what}: {plain}"), MAX_MESSAGE_CHARS));
        Self { plain, ..Self::new(kind, format!("{what}: {cause}")) }.with_cause(cause)
    }

    /// A failure of `kind` whose sentence is that of `cause`.
    pub fn from_cause(kind: SourceErrorKind, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let cause = cause.into();
        Self::new(kind, cause.to_string()).with_cause(cause)
    }

    /// Keeps `cause` for those who follow the chain of causes. The sentence says already what the user should know of it.
    #[must_use]
    pub fn with_cause(self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(cause.into()), ..self }
    }

    /// Adds the sentence for people on a command line, where the message is CDI's, which its tests and controllers know.
    #[must_use]
    pub fn with_plain_words(self, words: &str) -> Self {
        Self { plain: Some(printable::escape_line(words, MAX_MESSAGE_CHARS)), ..self }
    }

    /// The sentence for people on a command line.
    pub fn plain_words(&self) -> &str {
        self.plain.as_deref().unwrap_or(&self.message)
    }

    /// The kind to branch on.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }
}
