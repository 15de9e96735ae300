//! The errors of the data path: one enum a stage, so that callers can branch on the stage and the kind.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

use crate::archive::{ArchiveError, ArchiveErrorKind};
use crate::memory::Exceeded;

/// The four nouns of the data path; also the label of log fields, metrics and exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Bytes did not arrive: not found, refused, cut, changed.
    Source,
    /// A compressed layer is corrupt, unsupported or over its limits.
    Decode,
    /// The disk image is invalid, unsupported or refers to another file.
    Format,
    /// The disk that is written: no space, too small, I/O error.
    Target,
}

impl Stage {
    /// The lower-case noun.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Decode => "decode",
            Self::Format => "format",
            Self::Target => "target",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Any failure of a transfer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source failed for good (after its own retries).
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A compressed layer could not be undone.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The disk image could not be understood, or is refused.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The target could not be written.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// All bytes arrived but they are not the ones that were asked for.
    #[error("checksum validation failed: checksum mismatch: expected {expected}, calculated {calculated}")]
    Checksum {
        /// `algorithm:hex` as asked for.
        expected: String,
        /// `algorithm:hex` of what arrived.
        calculated: String,
    },
    /// Somebody asked the transfer to stop (a signal, a caller).
    #[error("the transfer was stopped before it was complete")]
    Stopped,
}

impl Error {
    /// The stage to blame; a checksum mismatch is the source's, a stop is nobody's.
    pub fn stage(&self) -> Option<Stage> {
        match self {
            Self::Source(_) | Self::Checksum { .. } => Some(Stage::Source),
            Self::Decode(_) => Some(Stage::Decode),
            Self::Format(_) => Some(Stage::Format),
            Self::Target(_) => Some(Stage::Target),
            Self::Stopped => None,
        }
    }
}

/// What kind of trouble a source has; decides exit codes and whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// The name does not resolve, nobody listens, TLS or the proxy refused.
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

/// Longest message of a source, in characters: whatever servers say, there is room for what is ours.
const MAX_MESSAGE_CHARS: usize = 2000;

/// A failure of the source stage. The message never holds a secret.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    kind: SourceErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl SourceError {
    /// A failure of `kind` with a whole sentence for the user. Parts of it may be a server's words: whatever they are, it stays one
    /// line of bounded length.
    pub fn new(kind: SourceErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: printable::line(&message.into(), MAX_MESSAGE_CHARS),
            source: None,
        }
    }

    /// A failure of `kind` in doing `what`, as `cause` says. The sentence is `what: cause`.
    pub fn caused(
        kind: SourceErrorKind,
        what: impl fmt::Display,
        cause: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        let cause = cause.into();
        Self::new(kind, format!("{what}: {cause}")).because(cause)
    }

    /// Keeps `cause` for those who follow the chain of causes. The sentence says already what the user should know of it.
    #[must_use]
    pub fn because(self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            source: Some(cause.into()),
            ..self
        }
    }

    /// The kind to branch on.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }
}

/// A failure of the decode stage. `codec` is the name of the layer, outermost layer first in a stack.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The stream ended inside a member, frame, block or trailer.
    #[error("the {codec} stream is truncated after {offset} compressed bytes")]
    Truncated {
        /// Name of the layer.
        codec: &'static str,
        /// Compressed bytes of this layer that were read.
        offset: u64,
    },
    /// The decoder found bytes that its format does not allow, or a checksum of it does not match.
    #[error("the {codec} stream is corrupt at compressed byte {offset}: {reason}")]
    Corrupt {
        /// Name of the layer.
        codec: &'static str,
        /// Compressed bytes of this layer that were read.
        offset: u64,
        /// What the decoder said.
        reason: String,
    },
    /// Something follows the end of the compressed stream that is not another member of it.
    #[error("the {codec} stream is followed by bytes that do not belong to it, at compressed byte {offset}")]
    TrailingGarbage {
        /// Name of the layer.
        codec: &'static str,
        /// Where the foreign bytes begin.
        offset: u64,
    },
    /// The stream needs a larger window or dictionary than there is memory for.
    #[error(
        "the {codec} stream {exceeded}: recompress it with a smaller window, or give the process more memory"
    )]
    Memory {
        /// Name of the layer.
        codec: &'static str,
        /// What it asks for, and what there is.
        exceeded: Exceeded,
    },
    /// A layer goes on and on, and next to nothing comes out of the stack.
    #[error(
        "{consumed} bytes of the {codec} stream came, and only {decoded} bytes of an image came out of them: it is not worth its transfer"
    )]
    Barren {
        /// Name of the layer.
        codec: &'static str,
        /// Compressed bytes of this layer that were read.
        consumed: u64,
        /// Bytes that came out below all layers.
        decoded: u64,
    },
    /// More layers inside each other than the documented depth.
    #[error("more than {limit} compressed layers inside each other")]
    TooDeep {
        /// The documented depth.
        limit: usize,
    },
    /// A codec that is recognised but not supported.
    #[error("{0} compression is not supported: recompress the image with gzip, xz, zstd or bzip2")]
    Unsupported(&'static str),
    /// A stream that has no bytes at all.
    #[error("could not process image header: EOF")]
    Empty,
    /// A stream that ends within the header that an image was to have. The text is upstream's.
    #[error("could not process image header: unexpected EOF")]
    ShortHeader,
}

/// A failure of the format stage.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The image itself is invalid or unsupported.
    #[error(transparent)]
    Image(#[from] diskimage::Error),
    /// The head of the image is larger than there is memory for.
    #[error("the head of the image {0}: give the process more memory")]
    Head(#[source] Exceeded),
    /// The tables of the image are larger than there is memory for.
    #[error("the tables of the image {0}: give the process more memory")]
    Tables(#[source] Exceeded),
    /// More of the image has to wait for its place than there is memory to remember.
    #[error(
        "to remember which clusters of the image wait for their place {0}: give the process more memory, or convert the image once with `qemu-img convert`"
    )]
    Waiting(#[source] Exceeded),
    /// The image goes on long after a disk of its size must have come.
    #[error(
        "{passed} bytes of the image came, and one of its virtual size has {most} at most: it may never end; convert it once with `qemu-img convert`"
    )]
    Endless {
        /// Bytes that came.
        passed: u64,
        /// Bytes that it may have.
        most: u64,
    },
    /// The virtual disk does not fit. The text is matched by CDI's controllers.
    #[error(
        "virtual image size {virtual_size} is larger than the reported available storage {available}. A larger PVC is required"
    )]
    TooLarge {
        /// Bytes of the virtual disk (at least, when the image states no size).
        virtual_size: u64,
        /// Bytes that the target can hold.
        available: u64,
    },
    /// The archive is damaged, unsupported, refused or too large.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A delta is the difference to something else. The text is upstream's.
    #[error(
        "snapshot backing file '{found}' does not match expected checkpoint '{expected}', unable to safely rebase snapshot"
    )]
    Base {
        /// What the delta names, without folders.
        found: String,
        /// What the target holds.
        expected: String,
    },
    /// The order of the image makes more bytes wait for their place than may be kept, and there is nowhere to put them.
    #[error(
        "the image refers to {parked} bytes before it says where they belong, and neither memory ({budget} bytes), the target nor a scratch directory can hold them: convert it once with `qemu-img convert`, serve it uncompressed from a server with ranges, or name a scratch directory"
    )]
    Parking {
        /// Bytes that had to wait.
        parked: u64,
        /// Bytes that may wait in memory.
        budget: u64,
    },
}

impl FormatError {
    /// True if a larger volume would have helped.
    pub fn is_too_large(&self) -> bool {
        match self {
            Self::TooLarge { .. } => true,
            Self::Archive(error) => matches!(error.kind, ArchiveErrorKind::NoRoom { .. }),
            _ => false,
        }
    }
}

/// A failure of the target stage.
#[derive(Debug, thiserror::Error)]
#[error("{action} {path}: {}", errno_text(.source))]
pub struct TargetError {
    /// What was being done: `write`, `open`, `fsync`, …
    pub action: &'static str,
    /// The target's path.
    pub path: String,
    /// The system's answer.
    #[source]
    pub source: std::io::Error,
}

/// A target that is not ours to write, or no longer is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Neither a regular file nor a block device.
    #[error("it is {0}: a disk is written to a regular file or a block device")]
    Kind(&'static str),
    /// Another process holds the lock.
    #[error("another import or upload is writing it: wait for its end, or name another target")]
    InUse,
    /// The name leads to something else than what was made there.
    #[error("it was removed or replaced by something else meanwhile")]
    Replaced,
    /// Writing it would change what is being read.
    #[error("it is the source, or holds bytes of it: write to another target")]
    Source,
    /// Something was removed from, or put into, the folder in which an archive was unpacked.
    #[error("of {made} names that were made, {found} are there: something else has changed them")]
    NotWhole {
        /// Names that were made.
        made: u64,
        /// Names that are there.
        found: u64,
    },
}

impl TargetError {
    /// `action` on `path` is not to be done.
    pub(crate) fn refused(action: &'static str, path: &Path, refusal: Refusal) -> Self {
        Self::new(action, path, std::io::Error::other(refusal))
    }

    /// Why the target was refused, if it was not the system that said no.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.source.get_ref()?.downcast_ref()
    }

    /// This failure of a commit, after which `hiding` the device failed too.
    pub(crate) fn still_visible(self, hiding: Self) -> Self {
        let source = StillVisible {
            cause: self.source,
            hiding: hiding.source,
        };
        Self {
            source: std::io::Error::other(source),
            ..self
        }
    }

    /// True for ENOSPC, EDQUOT and EFBIG: a larger volume would have helped.
    pub fn is_no_space(&self) -> bool {
        use rustix::io::Errno;
        let visible = self.source.get_ref().and_then(|error| error.downcast_ref());
        let errno = visible
            .map_or(&self.source, |StillVisible { cause, .. }| cause)
            .raw_os_error();
        [Errno::NOSPC, Errno::DQUOT, Errno::FBIG]
            .iter()
            .any(|e| errno == Some(e.raw_os_error()))
    }
}

/// A device that is not complete, and may look as if it were.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}; its first MiB could not be zeroed again ({}), so that it may look like a complete disk",
    errno_text(cause),
    errno_text(hiding)
)]
struct StillVisible {
    cause: std::io::Error,
    hiding: std::io::Error,
}

/// The text of an errno as Go (and so CDI's controllers, which search for it) spells it:
/// lower case, without Rust's ` (os error N)`.
pub fn errno_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => {
            let mut text = text;
            text.truncate(end);
            let mut chars = text.chars();
            match chars.next() {
                // "Is a directory" → "is a directory", but "RPC …" and the like stay as they are.
                Some(first) if !chars.as_str().starts_with(char::is_uppercase) => {
                    first.to_lowercase().chain(chars).collect()
                }
                _ => text,
            }
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_source_keeps_its_cause_and_says_it_once() {
        let cut = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let failed = SourceError::caused(SourceErrorKind::Io, "reading the disk", cut());
        assert_eq!(failed.to_string(), "reading the disk: connection reset");

        let failed = SourceError::caused(failed.kind(), "server.example", failed);
        assert_eq!(
            failed.to_string(),
            "server.example: reading the disk: connection reset"
        );
        let error = Error::from(failed);
        let first = StdError::source(&error).and_then(StdError::source);
        let first = first.and_then(|cause| cause.downcast_ref::<std::io::Error>());
        assert_eq!(
            first.map(std::io::Error::kind),
            Some(std::io::ErrorKind::ConnectionReset)
        );

        let failed = SourceError::new(SourceErrorKind::Io, "the server is gone").because(cut());
        assert_eq!(failed.to_string(), "the server is gone");
        assert!(failed.source().is_some());
    }

    #[test]
    fn errno_is_spelled_as_the_controllers_search_for_it() {
        for (errno, text) in [
            (rustix::io::Errno::NOSPC, "no space left on device"),
            (rustix::io::Errno::DQUOT, "disk quota exceeded"),
            (rustix::io::Errno::IO, "input/output error"),
        ] {
            let error = std::io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(errno_text(&error), text);
        }
    }

    #[test]
    fn a_device_that_stays_visible_is_in_the_sentence_and_keeps_its_errno() {
        let failed = |action, errno: rustix::io::Errno| {
            TargetError::new(action, Path::new("/dev/x"), std::io::Error::from(errno))
        };
        let hiding = failed("write", rustix::io::Errno::IO);
        let error = failed("fsync", rustix::io::Errno::NOSPC).still_visible(hiding);
        assert!(error.is_no_space());
        assert_eq!(
            error.to_string(),
            "fsync /dev/x: no space left on device; its first MiB could not be zeroed again (input/output error), \
             so that it may look like a complete disk"
        );
    }

    #[test]
    fn text_without_errno_is_kept() {
        assert_eq!(errno_text(&std::io::Error::other("Odd Thing")), "Odd Thing");
    }
}
